"""The command line as a whole: help, imports, exit codes, and one line for every mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pagedd.cli.main import VERBS, build_parser, main
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.records import WAITS
from tests.cli.terminal import environment, run

NAMES = [name for name, _ in VERBS]
HEAVY = (
    *("torch", "triton", "transformers", "tokenizers", "safetensors", "gguf", "numpy"),
    *("anyio", "jinja2", "huggingface_hub", "starlette", "uvicorn", "llguidance"),
)
# What --help must not even wait for.
SLOW = (*HEAVY, "websockets", "msgspec", "rich", "asyncio", "tomllib", "psutil")


def imported(arguments: list[str], env: dict[str, str]) -> tuple[int, set[str]]:
    """Exit code and top-level modules of a command that has run."""
    code = (
        "import sys\nfrom pagedd.cli.main import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code\n"
        "print(code, *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    first, *modules = done.stderr.strip().splitlines()[-1].split()
    return int(first), set(modules)


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in NAMES)])
def test_help_loads_nothing_heavy(arguments: list[str], home: Path) -> None:
    code, modules = imported(arguments, environment(home))
    assert code == 0
    assert not modules & set(SLOW)


def test_help_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        for name in NAMES:
            with pytest.raises(SystemExit):
                main([name, "--help"])
            shown = capsys.readouterr().out
            assert max(map(len, shown.splitlines())) <= columns
            assert "\nexamples:\n  pagedd " in shown


def test_status_and_generate_load_neither_torch_nor_an_event_loop(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.explanations["#17"] = WAITS
    for arguments in (
        ["status"],
        ["generate", "hi"],
        ["stop"],
        ["explain", "17"],
        ["events"],
        ["reprioritize", "17", "2"],
        ["cancel", "17"],
    ):
        code, modules = imported(arguments, env)
        assert code == 0
        assert not modules & {*HEAVY, "rich", "psutil"}


@pytest.mark.parametrize("verb", NAMES)
def test_each_command_explains_itself_with_examples(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([verb, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: pagedd {verb}" in text
    assert f"examples:\n  pagedd {verb}" in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["stats"], "there is no command 'stats', did you mean status?"),
        (["start", "--max-num-seq", "3"], "there is no flag --max-num-seq, did you mean --max-num"),
        (["generate", "--tempreture=0", "hi"], "did you mean --temperature?"),
        (["start", "--max-num-seqs", "none"], "--max-num-seqs: must be a whole number from 1"),
        (["start", "--preemption-policy=lenght"], "--preemption-policy: must be one of length, "),
        (["start", "--preemption-policy=lenght"], "not 'lenght', did you mean length?"),
        (["start", "--preemption-mode", "swop"], "--preemption-mode: must be one of auto, swap, "),
        (["start", "--preemption-mode", "swop"], "not 'swop', did you mean swap?"),
        (["start", "--preemption-mode", "AUTO"], "not 'AUTO', did you mean auto?"),
        (["start", "--swap-space", "lots"], "--swap-space: must be a size like 512MiB or 2GiB"),
        (["start", "--priority-aging", "0"], "--priority-aging: must be a number above 0 and at"),
        (["start", "--fair-shares"], "there is no flag --fair-shares, did you mean --fair-share?"),
        (["start", "extra"], "one argument too many: 'extra'"),
        (["status", "--interval", "0"], "--interval: must be from 0.05"),
        (["stop", "--timeout", "-1"], "--timeout: must be from 0"),
        (["generate", "--top-p", "2", "hi"], "--top-p: "),
        (["generate", "--logprobs", "21", "hi"], "--logprobs: "),
        (["generate", "--stop-token-ids", "a", "hi"], "--stop-token-ids: must be ids"),
        (["generate", "--logit-bias", "3", "hi"], "--logit-bias: must be pairs"),
        (["generate", "--logit-bias", "3:200", "hi"], "--logit-bias: "),
        (
            ["generate", "--max-tokens", "x", "hi"],
            "pagedd: --max-tokens: must be a whole number, not 'x'",
        ),
        (["generate", "--raw", "--system", "x", "hi"], "--raw sends no chat"),
        (["generate", ""], "the prompt is empty"),
        (["chat", "--n", "2"], "--n: "),
        (["bench", "--against", "hf", "--request-rate", "1"], "give --concurrency"),
        (["bench", "--url", "unix:/x", "--model", "m"], "--model needs a private daemon"),
        (["bench", "--num-requests", "0"], "--num-requests: must be"),
        (["start", "--listen", "0.0.0.0:0"], "set --api-key"),
        (["status", "--url", "http://x"], "--url: must be unix:PATH"),
        (["stop", "--url", "ws://localhost:1"], "a daemon is stopped by its socket"),
        (["completions", "cmd"], "shell: must be one of bash, zsh, fish, not 'cmd'"),
        (["completions", "bush"], "not 'bush', did you mean bash?"),
        (
            ["--url", "unix:/x", "status"],
            "--url: flags come after the command: pagedd status --url",
        ),
        (["--url=unix:/x", "stop"], "--url: flags come after the command: pagedd stop --url"),
        (["--bogus"], "there is no flag --bogus"),
        (["help"], "there is no command 'help' (see pagedd --help)"),
        (["generate", "hi", "--max-tokens"], "pagedd: --max-tokens: its value is missing"),
        (["generate", "hi", "--temperature", "warm"], "must be a number, not 'warm'"),
        (
            ["generate", "hi", "--temperature", "-1"],
            "--temperature: must be a number of at least 0",
        ),
        (["generate", "hi", "--top-p", "0"], "--top-p: must be a number above 0"),
        (["generate", "hi", "--top-p", "2"], "--top-p: must be a number of at most 1\n"),
        (["generate", "hi", "--repetition-penalty=0"], "must be a number of at least 0.01\n"),
        (["generate", "hi", "--n", "0"], "--n: must be a whole number of at least 1\n"),
        (["generate", "hi", "--stop", ""], "--stop: must be a text that is not empty"),
        (
            ["generate", "hi", "--stop-token-ids="],
            "--stop-token-ids: must be ids like 2,13, not ''",
        ),
        (
            ["generate", "hi", "--logit-bias="],
            "--logit-bias: must be pairs like 13:-5,42:2, not ''",
        ),
        (["generate", "hi", "--regex="], "--guided-regex: must be a text that is not empty"),
        (["generate", "hi", "--json-schema="], "--json-schema: must be JSON or the name of a file"),
        (["generate", "hi", "--response-format="], "--response-format: must be JSON or the name"),
        (["generate", "--priority", "2147483648", "hi"], "--priority: must be a whole number"),
        (["chat", "--priority", "high"], "--priority: must be a whole number from -2147483648"),
        (["reprioritize", "17"], "the following arguments are required: PRIORITY"),
        (["reprioritize", "17", "urgent"], "PRIORITY: must be a whole number from -2147483648"),
        (["cancel"], "the following arguments are required: ID"),
        (["events", "--kind", "preempt"], "--kind: must be one of accepted, admitted, "),
        (["events", "--kind", "preempt"], "not 'preempt', did you mean preempted?"),
        (["events", "--request", ""], "--request: the id is empty: pagedd explain lists what"),
        (["events", "--lines", "-1"], "--lines: must be from 0 to 4096, not -1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert captured.err.count("\n") == 1


def test_each_command_is_a_line_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [[name, summary] for name, summary in VERBS if [name, summary] not in lines] == []


def test_without_a_command_the_help_goes_to_standard_error(home: Path) -> None:
    done = run(env=environment(home))
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"usage: pagedd" in done.stderr


def test_a_wrong_config_file_stops_every_command_before_anything_else(home: Path) -> None:
    file = home / ".config/pagedd/pagedd.toml"
    file.parent.mkdir(parents=True)
    file.write_text("max-num-seq = 3\n")
    for verb in ("start", "status", "generate", "doctor", "config"):
        done = run(verb, env=environment(home))
        assert done.returncode == 2
        assert b"did you mean max-num-seqs?" in done.stderr
        assert done.stderr.count(b"\n") == 1


def test_the_model_is_looked_for_before_anything_is_started(home: Path) -> None:
    for name, code in (("/no/such/model.gguf", 1), ("nothing-known", 1)):
        done = run("start", "--model", name, env=environment(home))
        assert done.returncode == code
        assert name.encode() in done.stderr
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_any_encoding_gets_help_status_and_errors(
    encoding: str, env: dict[str, str], daemon: FakeDaemon
) -> None:
    for arguments, code in ((["--help"], 0), (["status"], 0), (["generate", "--top-p", "9é"], 2)):
        done = run(*arguments, env={**env, "PYTHONIOENCODING": encoding})
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
        assert b"\x1b" not in done.stdout + done.stderr
        (done.stdout + done.stderr).decode(encoding)


def test_closed_standard_streams_are_no_crash(env: dict[str, str], daemon: FakeDaemon) -> None:
    shell = f"{sys.executable} -m pagedd.cli.main generate hi >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", shell], env=env, timeout=60).returncode == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_know_the_commands_and_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completions", shell]) == 0
    text = capsys.readouterr().out
    assert "max-num-batched-tokens" in text
    assert "generate" in text


def test_config_show_names_the_origin_and_hides_the_key(home: Path) -> None:
    file = home / "a.toml"
    file.write_text('threads = 3\napi-key = "s3cret"\n')
    env = environment(home, PAGEDD_MAX_QUEUE="7")
    done = run("config", "show", "--origin", "--config", str(file), "--seed=5", env=env)
    assert done.returncode == 0
    rows = {line.split()[0]: line.split() for line in done.stdout.decode().splitlines() if line}
    assert rows["threads"][1:] == ["3", str(file)]
    assert rows["max-queue"][1:] == ["7", "PAGEDD_MAX_QUEUE"]
    assert rows["seed"][1:] == ["5", "--seed"]
    assert rows["max-num-seqs"][1:] == ["64", "default"]
    assert b"s3cret" not in done.stdout


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pagedd {version('pagedd')}\n"


def test_every_field_of_params_has_a_flag() -> None:
    from pagedd.protocol import Params

    flags = build_parser("generate").known_flags
    for field in Params.__struct_fields__:
        flag = "--" + field.replace("_", "-")
        assert flag in flags or flag.replace("--", "--no-") in flags
