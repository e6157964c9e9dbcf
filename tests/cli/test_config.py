"""Every origin wins in its order, and a wrong name or value is one line that names it."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedd.config import BY_NAME, OPTIONS, START_OPTIONS, Option, check_start, load_config
from pagedd.config.kinds import Address, show_size
from pagedd.errors import UsageError

NOWHERE = Path("/nonexistent/pagedd.toml")


def samples(option: Option) -> list[str]:
    """Two different texts of this option."""
    if option.name == "url":
        return ["unix:/a", "ws://b:1"]
    if option.kind.choices:
        return list(option.kind.choices[:2])
    for texts in (
        ["true", "false"],
        ["3", "4"],
        ["0.25", "0.5"],
        ["8KiB", "1MiB"],
        ["127.0.0.1:1", "off"],
        ["https://a.example", "https://b.example"],
        ["/a", "/b"],
    ):
        try:
            if all(option.kind.read(text) is not None or text == "off" for text in texts):
                return texts
        except ValueError:
            continue
    raise AssertionError(f"no samples for {option.name}")


def toml_line(option: Option, text: str) -> str:
    bare = text in ("true", "false") or text.replace(".", "").isdecimal()
    if bare and not isinstance(option.kind.read(text), str | tuple):
        return f"{option.name} = {text}\n"
    return f'{option.name} = "{text}"\n'


@given(
    option=st.sampled_from(OPTIONS),
    origins=st.sets(st.sampled_from(["flag", "variable", "given", "user"])),
    data=st.data(),
)
def test_the_first_origin_in_order_wins(
    tmp_path_factory: pytest.TempPathFactory, option: Option, origins: set[str], data: Any
) -> None:
    folder = tmp_path_factory.mktemp("config")
    text = {origin: data.draw(st.sampled_from(samples(option))) for origin in sorted(origins)}
    files = {name: folder / f"{name}.toml" for name in ("given", "user")}
    for name in origins & set(files):
        files[name].write_text(toml_line(option, text[name]))
    config = load_config(
        {option.name: text["flag"]} if "flag" in origins else {},
        {option.variable: text["variable"]} if "variable" in origins else {},
        config_file=str(files["given"]) if "given" in origins else None,
        user_file=files["user"],
    )
    setting = config.settings[option.name]
    names = {"given": str(files["given"]), "user": str(files["user"])}
    first = next((o for o in ("flag", "variable", "given", "user") if o in origins), None)
    if first is None:
        assert (setting.value, setting.origin) == (option.default, "default")
    else:
        assert setting.value == option.kind.read(text[first])
        assert setting.origin == names.get(first, first)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max-num-seqs", "0"),
        ("max-num-seqs", "1.5"),
        ("max-num-seqs", "many"),
        ("max-num-seqs", "９"),
        ("page-size", "65"),
        ("gpu-memory-utilization", "0"),
        ("gpu-memory-utilization", "1.01"),
        ("gpu-memory-utilization", "nan"),
        ("kv-cache-memory", "2 parsecs"),
        ("kv-cache-memory", "-1GiB"),
        ("kv-cache-memory", "inf"),
        ("listen", "7411"),
        ("listen", "localhost:65536"),
        ("listen", "::1:7411"),
        ("dtype", "float8"),
        ("priority-aging", "0"),
        ("priority-aging", "-1"),
        ("priority-aging", "nan"),
        ("priority-aging", "often"),
        ("fair-share", "maybe"),
        ("swap-space", "-1"),
        ("swap-space", "4 parsecs"),
        ("preemption-policy", "youngest"),
        ("preemption-mode", "swop"),
        ("prefix-cache", "maybe"),
        ("allow-origin", "example.org"),
        ("api-key", "two words"),
        ("model", " "),
        ("url", "http://localhost"),
        ("url", "unix:"),
    ],
)
def test_a_wrong_value_is_one_line_under_its_origin(name: str, text: str) -> None:
    option = BY_NAME[name]
    with pytest.raises(UsageError) as flag:
        load_config({name: text}, {}, user_file=NOWHERE)
    with pytest.raises(UsageError) as variable:
        load_config({}, {option.variable: text}, user_file=NOWHERE)
    assert flag.value.message.startswith(f"{option.flag}: ")
    assert variable.value.message.startswith(f"{option.variable}: ")
    assert "\n" not in flag.value.message
    assert flag.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max-num-seqs = true", "max-num-seqs"),
        ("max-num-seqs = '7'", "max-num-seqs"),
        ("prefix-cache = 1", "prefix-cache"),
        ("model = 3", "model"),
        ("allow-origin = [1]", "allow-origin"),
        ("max_num_seqs = 3", "did you mean max-num-seqs?"),
        ("max-num-seq = 3", "did you mean max-num-seqs?"),
        ("[engine]\nmodel = 'x'", "'engine'"),
        ("model = ", "not valid toml"),
    ],
)
def test_a_wrong_key_or_type_in_a_file_names_file_and_key(
    tmp_path: Path, text: str, named: str
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as found:
        load_config({}, {}, config_file=str(file), user_file=NOWHERE)
    assert str(file) in found.value.message
    assert named in found.value.message


def test_a_missing_config_file_is_an_error_and_a_missing_user_file_is_none(tmp_path: Path) -> None:
    load_config({}, {}, user_file=tmp_path / "none.toml")
    with pytest.raises(UsageError, match=r"none\.toml cannot be read"):
        load_config({}, {}, config_file=str(tmp_path / "none.toml"), user_file=NOWHERE)


def test_only_commands_that_start_a_daemon_refuse_unknown_variables() -> None:
    wrong = {"PAGEDD_MAX_NUM_SEQ": "3", "OTHER": "x"}
    load_config({}, wrong, user_file=NOWHERE)
    with pytest.raises(UsageError, match="did you mean PAGEDD_MAX_NUM_SEQS"):
        load_config({}, wrong, user_file=NOWHERE, strict_variables=True)


def test_ageing_is_off_by_default_and_can_be_turned_off_again(tmp_path: Path) -> None:
    assert load_config({}, {}, user_file=NOWHERE)["priority-aging"] is None
    file = tmp_path / "a.toml"
    file.write_text("priority-aging = 2.5\nfair-share = true\n")
    config = load_config({}, {}, user_file=file)
    assert config.values("engine")["priority_aging"] == 2.5
    assert config.values("engine")["fair_share"] is True
    assert load_config({"priority-aging": "off"}, {}, user_file=file)["priority-aging"] is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("4", 4 << 30), ("0", 0), ("0.5", 1 << 29), ("64MiB", 64 << 20), ("3B", 3), ("auto", None)],
)
def test_swap_space_without_a_unit_counts_gib(text: str, size: int | None, tmp_path: Path) -> None:
    assert load_config({"swap-space": text}, {}, user_file=NOWHERE)["swap-space"] == size
    file = tmp_path / "a.toml"
    file.write_text("swap-space = " + (text if text[-1].isdigit() else f'"{text}"') + "\n")
    config = load_config({}, {}, user_file=file)
    assert config["swap-space"] == size
    shown = config.settings["swap-space"].shown
    assert load_config({"swap-space": shown}, {}, user_file=NOWHERE)["swap-space"] == size


def test_an_empty_variable_is_not_set() -> None:
    config = load_config({}, {"PAGEDD_THREADS": ""}, user_file=NOWHERE)
    assert config.settings["threads"].origin == "default"


def test_auto_on_a_flag_undoes_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("threads = 2\n")
    config = load_config({"threads": "auto"}, {}, user_file=file)
    assert config["threads"] is None


def test_a_key_comes_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("# of the editor\ns3cret\n\n  more  \n")
    config = load_config({"api-key": f"third,@{key},more"}, {}, user_file=NOWHERE)
    assert config["api-key"] == ("third", "s3cret", "more")
    assert config.key == "third"
    assert "s3cret" not in config.settings["api-key"].shown
    with pytest.raises(UsageError) as found:
        load_config({"api-key": "has spaces"}, {}, user_file=NOWHERE)
    assert "has spaces" not in found.value.message
    with pytest.raises(UsageError, match="cannot be read"):
        load_config({"api-key": f"@{tmp_path / 'none'}"}, {}, user_file=NOWHERE)
    key.write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no key"):
        load_config({"api-key": f"@{key}"}, {}, user_file=NOWHERE)
    key.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is no text"):
        load_config({"api-key": f"@{key}"}, {}, user_file=NOWHERE)
    assert load_config({}, {}, user_file=NOWHERE).key is None


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:7411", "example.org:80"])
def test_an_address_that_others_reach_needs_a_key(listen: str, tmp_path: Path) -> None:
    flags = {"listen": listen, "socket": str(tmp_path / "s")}
    with pytest.raises(UsageError, match="--api-key"):
        check_start(load_config(flags, {}, user_file=NOWHERE))
    check_start(load_config({**flags, "api-key": "k"}, {}, user_file=NOWHERE))


@pytest.mark.parametrize("listen", ["off", "127.0.0.1:0", "[::1]:7411", "localhost:1"])
def test_a_loopback_address_needs_none(listen: str, tmp_path: Path) -> None:
    flags = {"listen": listen, "socket": str(tmp_path / "s")}
    check_start(load_config(flags, {}, user_file=NOWHERE))


def test_a_socket_path_that_is_too_long_is_refused_with_the_limit() -> None:
    config = load_config({"socket": "/" + "x" * 103}, {}, user_file=NOWHERE)
    with pytest.raises(UsageError, match="104 bytes, the system allows 103"):
        check_start(config)
    assert load_config({"socket": "/" + "x" * 102}, {}, user_file=NOWHERE).socket


@given(st.integers(4096, 2**62))
def test_a_size_that_is_shown_reads_back(size: int) -> None:
    kind = BY_NAME["outbox-bytes"].kind
    assert kind.read(show_size(size)) == size


@given(st.text(string.printable, max_size=20))
def test_no_text_breaks_a_kind(text: str) -> None:
    for option in START_OPTIONS:
        if option.name == "api-key":
            continue
        try:
            value = option.kind.read(text)
        except (ValueError, OverflowError):
            continue
        assert isinstance(option.kind.show(value), str)


def test_defaults_are_values_of_their_kinds() -> None:
    for option in OPTIONS:
        if option.default in (None, ()) or isinstance(option.default, Address):
            continue
        assert option.kind.read(option.kind.show(option.default)) == option.default
