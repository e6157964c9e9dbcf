"""The manuals name every command, flag, key, frame, field and error code, and are clean."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from textual.binding import Binding

from pagedd import errors, protocol
from pagedd.cli.events import KINDS
from pagedd.cli.interrupt import Interrupted
from pagedd.cli.main import VERBS, build_parser
from pagedd.cli.status import NOT_RUNNING
from pagedd.codes import CLASSES
from pagedd.config import OPTIONS, Option
from pagedd.protocol import CACHED, FREE, OWNED, SHARED, SWAPPED
from pagedd.protocol.records import Kind
from pagedd_tui.keys import KEYS, bindings
from pagedd_tui.palette import PALETTES, choose

MAN = Path(__file__).parents[2] / "man"
PAGES = ("pagedd.1", "pagedd-top.1", "pagedd.toml.5", "pagedd-metrics.7", "pagedd-protocol.7")
OWN_PAGES = {"top": "pagedd-top.1"}  # commands that pagedd.1 only points to


def source(page: str) -> str:
    return (MAN / page).read_text()


def literals(page: str) -> set[str]:
    """Words that the page marks as a literal: after Cm, with Fl as a flag."""
    words: set[str] = set()
    for line in source(page).splitlines():
        for part in re.split(r"\s(?=Cm |Fl |Ar |Ev )", line.lstrip(".")):
            macro, _, rest = part.removeprefix("It ").removeprefix("Op ").partition(" ")
            if macro in ("Cm", "Pq", "Fl"):
                words |= {word.strip(",.;:\"'") for word in rest.split()}
    return words


def flags(page: str) -> set[str]:
    return {f"-{name}" for name in re.findall(r"\bFl (-[a-z][a-z-]*|h)\b", source(page))}


def refusal(*arguments: str) -> str:
    args = build_parser(arguments[0]).parse_all(arguments)
    with pytest.raises(errors.UsageError) as refused:
        args.run(args)
    return refused.value.message


@pytest.mark.parametrize("verb", [name for name, _ in VERBS])
def test_the_manual_names_every_flag_of_a_command(verb: str) -> None:
    known = set(build_parser(verb).known_flags) - {"--ready-fd", "--help"}
    page = OWN_PAGES.get(verb, "pagedd.1")
    assert {flag for flag in known if flag.startswith("--")} <= flags(page)
    assert f".Cm {verb}" in source("pagedd.1")
    assert page == "pagedd.1" or f".Xr {page.removesuffix('.1')} 1" in source("pagedd.1")


def test_the_manual_names_no_flag_that_is_not_there() -> None:
    verbs = [verb for verb, _ in VERBS if verb not in OWN_PAGES]
    known = {flag for verb in verbs for flag in build_parser(verb).known_flags}
    assert flags("pagedd.1") <= known | {"--version", "--help", "-h"}
    for verb, page in OWN_PAGES.items():
        assert flags(page) <= set(build_parser(verb).known_flags)


def test_pagedd_top_1_has_an_item_for_every_key_with_its_name() -> None:
    listed = source("pagedd-top.1").partition(".Sh KEYS")[2].partition(".Sh")[0]
    items = re.split(r"^\.It Ic ", listed, flags=re.MULTILINE)[1:]
    told = {}
    for item in items:
        shown = item.partition("\n")[0].removeprefix("\\&").replace("\\-", "-")
        told[shown] = re.findall(r"^\.Pq Cm (\w+)$", item, re.MULTILINE)
    changeable = {binding.id for binding in bindings() if isinstance(binding, Binding)}
    assert told == {key.shown: [key.id] if key.id in changeable else [] for key in KEYS}


def test_pagedd_top_1_tells_the_glyphs_and_themes() -> None:
    page = source("pagedd-top.1")
    rows = re.findall(r"^\.It (\w+) Ta \\\[u(\w{4})\] Ta \w+ Ta (?:\\&)?(\S)$", page, re.MULTILINE)
    told = {name: (chr(int(code, 16)), ascii) for name, code, ascii in rows}
    palettes = [choose(None, ascii=ascii, no_color=False) for ascii in (False, True)]
    states = {"free": FREE, "owned": OWNED, "shared": SHARED, "cached": CACHED, "swapped": SWAPPED}
    assert told == {
        name: tuple(palette.glyph(state, name == "swapped") for palette in palettes)
        for name, state in states.items()
    }
    assert " | ".join(PALETTES) in page


def test_pagedd_1_lists_the_kinds_of_events() -> None:
    item = source("pagedd.1").partition(".It Fl -kind Ar kind\n")[2].partition("\n.It")[0]
    told = re.findall(r"^\.Cm (.*)$", item, re.MULTILINE)
    assert [word for line in told for word in re.findall(r"\w+", line)] == list(KINDS)
    assert {*KINDS, "running"} == {*get_args(Kind)}, "only an explanation says of one that it runs"
    assert "--kind: must be one of " + ", ".join(KINDS) in refusal("events", "--kind", "running")


def test_pagedd_1_names_every_exit_code() -> None:
    listed = source("pagedd.1").partition(".Sh EXIT STATUS")[2].partition(".Sh")[0]
    codes = {int(code) for code in re.findall(r"^\.It (\d+)$", listed, re.MULTILINE)}
    tree = [errors.PageddError]
    for kind in tree:
        tree += kind.__subclasses__()
    assert codes == {0, NOT_RUNNING, Interrupted.exit_code} | {kind.exit_code for kind in tree}


def test_pagedd_toml_5_has_an_item_for_every_key_and_no_other() -> None:
    items = re.findall(r"^\.It Cm ([a-z-]+)$", source("pagedd.toml.5"), re.MULTILINE)
    assert sorted(items) == sorted(option.name for option in OPTIONS)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_pagedd_toml_5_tells_the_default(option: Option) -> None:
    page = source("pagedd.toml.5")
    name, default, kind = option.name, option.default, option.kind
    item = page.partition(f".It Cm {name}\n")[2]
    item = re.split(r"^\.It|^\.El", item, maxsplit=1, flags=re.MULTILINE)[0]
    if default is None or name in ("load-format", "dtype", "device"):
        assert "auto" in item or "Default" in item
    else:
        shown = kind.show(default)
        assert "Default" in item
        assert shown in item.replace("\\(dq", "")


def structs() -> list[type[msgspec.Struct]]:
    found = [
        value
        for value in vars(protocol).values()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and value.__module__.startswith(f"{protocol.__name__}.")
    ]
    assert len(found) > 25
    return found


@pytest.mark.parametrize("struct", structs(), ids=lambda struct: struct.__name__)
def test_pagedd_protocol_7_names_every_frame_and_field(struct: type[msgspec.Struct]) -> None:
    words = literals("pagedd-protocol.7")
    if struct.__struct_config__.tag is not None:
        assert struct.__struct_config__.tag in words
    assert set(struct.__struct_fields__) <= words


def test_pagedd_protocol_7_names_every_error_code() -> None:
    listed = source("pagedd-protocol.7").partition(".Sh ERROR CODES")[2]
    items = set(re.findall(r"^\.It Cm ([a-z_]+)$", listed, re.MULTILINE))
    assert items == {*CLASSES, errors.PageddError.code}


def test_pagedd_protocol_7_has_an_item_for_every_kind_of_record() -> None:
    listed = source("pagedd-protocol.7").partition(".Sh RECORDS")[2].partition(".Sh")[0]
    items = set(re.findall(r"^\.It Cm ([a-z]+)$", listed, re.MULTILINE))
    assert set(get_args(Kind)) <= items


def test_pagedd_protocol_7_gives_the_limits_of_the_structs() -> None:
    page = source("pagedd-protocol.7")
    assert f"{protocol.MAX_FRAME_BYTES >> 20} MiB" in page
    assert f"at most {protocol.MAX_STOP_STRINGS}, each of 1 to {protocol.MAX_STOP_LENGTH}" in page
    assert f"events, 0 to {protocol.MAX_HISTORY} and" in page
    assert f"From \\{protocol.INT32_MIN} to {protocol.INT32_MAX};" in page
    assert protocol.SUBPROTOCOL_JSON in page
    assert protocol.SUBPROTOCOL_MSGPACK in page


@pytest.mark.parametrize("page", PAGES)
def test_mandoc_has_no_complaint(page: str) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    command = ["mandoc", "-T", "lint", "-W", "warning", str(MAN / page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("page", PAGES)
def test_apropos_can_find_the_page(page: str) -> None:
    if shutil.which("lexgrog") is None:
        pytest.skip("lexgrog is not installed")
    done = subprocess.run(["lexgrog", str(MAN / page)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert page.rpartition(".")[0] in done.stdout
