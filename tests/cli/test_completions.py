"""Completions are read by the shells that there are, and complete commands, flags and values."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pagedd.cli.completions import LONGEST, short
from pagedd.cli.events import KINDS
from pagedd.cli.main import VERBS, main
from pagedd.config import START_OPTIONS

SHELLS = ("bash", "zsh", "fish")
# The words of the command line come as arguments, the last of them is to be completed.
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_pagedd
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = """
source $argv[1]
complete -C "$argv[2..]" | string replace -r '\\t.*' ''
"""
Complete = Callable[..., set[str]]


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The completions of each shell, as files."""
    folder = tmp_path_factory.mktemp("completions")
    found = {}
    for shell in SHELLS:
        with pytest.MonkeyPatch.context() as patch:
            file = (folder / shell).open("w")
            patch.setattr("sys.stdout", file)
            assert main(["completions", shell]) == 0
            file.close()
        found[shell] = folder / shell
    return found


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_reads_them(shell: str, scripts: dict[str, Path]) -> None:
    command = [needs(shell), "-n", str(scripts[shell])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_them(shell: str, scripts: dict[str, Path]) -> None:
    text = scripts[shell].read_text()
    for name in [name for name, _ in VERBS] + [option.name for option in START_OPTIONS]:
        assert name in text


@pytest.fixture(params=["bash", "fish"])
def complete(request: pytest.FixtureRequest, scripts: dict[str, Path]) -> Complete:
    """What the shell offers for the last word."""
    shell = str(request.param)
    program = needs(shell)

    def complete(*words: str) -> set[str]:
        script = str(scripts[shell])
        arguments = ["-c", BASH, "bash"] if shell == "bash" else ["-c", FISH]
        done = subprocess.run(
            [program, *arguments, script, *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    return complete


def test_commands_flags_actions_and_values_are_offered(complete: Complete) -> None:
    assert complete("pagedd", "st") == {"start", "stop", "status"}
    assert complete("pagedd", "service", "") >= {"install", "uninstall", "status"}
    assert complete("pagedd", "start", "--max-num") == {
        "--max-num-seqs",
        "--max-num-batched-tokens",
    }
    assert complete("pagedd", "start", "--preemption-mode", "") >= {"auto", "swap", "recompute"}
    assert complete("pagedd", "completions", "") >= set(SHELLS)


def test_the_kinds_of_events_are_offered(complete: Complete) -> None:
    assert complete("pagedd", "events", "--kind", "") >= set(KINDS)


def test_descriptions_fit_beside_their_words(scripts: dict[str, Path]) -> None:
    program = needs("fish")
    said: dict[str, str] = {}
    for words in ("pagedd ", *(f"pagedd {name} --" for name, _ in VERBS)):
        code = "source $argv[1]; complete -C $argv[2]"
        done = subprocess.run(
            [program, "--no-config", "-c", code, str(scripts["fish"]), words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        said |= dict(line.partition("\t")[::2] for line in done.stdout.splitlines())
    assert said.keys() >= {name for name, _ in VERBS} | {f"--{o.name}" for o in START_OPTIONS}
    assert {name: text for name, text in said.items() if len(text) > LONGEST} == {}
    assert said["start"] == "start the daemon and serve a model"


def test_a_description_is_cut_where_it_can_be() -> None:
    clause = "a clause that is long enough to stand alone"
    assert short(f"{clause}; {'and more ' * 9}") == clause
    words = short("word " * 40)
    assert words.endswith("word ...")
    assert LONGEST - 5 <= len(words) <= LONGEST
    assert short(clause) == clause


def test_zsh_loads_them_as_a_completion_of_pagedd(scripts: dict[str, Path], home: Path) -> None:
    folder = home / "functions"
    folder.mkdir()
    shutil.copy(scripts["zsh"], folder / "_pagedd")
    code = (
        f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -d {home}/dump;"
        "print -r -- ${_comps[pagedd]}; autoload +X -Uz _pagedd && print loaded"
    )
    done = subprocess.run(
        [needs("zsh"), "-fc", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.split(), done.stderr) == (["_pagedd", "loaded"], "")
