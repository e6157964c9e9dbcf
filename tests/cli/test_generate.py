"""``pagedd generate``: what is sent, what is written where, and how it ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pagedd import protocol
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import environment, on_terminal, run

# Clears the screen, sets a title, writes the clipboard, fakes a link, rings; split anywhere.
HOSTILE = (
    "A\x1b[2J\x1b[HB\x1b]0;title\x07C\x1b]52;c;ZXZpbA==\x07D"
    "\x1b]8;;https://evil.example\x1b\\E\x9b31mF\x9d0;x\x9cG\b\b\rH\tI\x00\x7f\nÄ漢😀"
)


def test_the_answer_and_nothing_else_is_standard_output(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    done = run("generate", "hi", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello", b"")
    sent = daemon.next(protocol.Generate)
    assert sent.messages == [protocol.Message("user", "hi")]
    assert sent.params == protocol.Params()
    assert sent.stream


def test_every_sampling_flag_reaches_the_daemon(env: dict[str, str], daemon: FakeDaemon) -> None:
    flags = (
        "--max-tokens=9 --min-tokens=2 --temperature=0.5 --top-p=0.9 --top-k=40 --min-p=0.1 "
        "--presence-penalty=1 --frequency-penalty=-1 --repetition-penalty=1.1 --seed=-7 "
        "--stop=END --stop=\\n --stop-token-ids=5,6 --include-stop-str-in-output --ignore-eos "
        "--logprobs=3 --logit-bias=7:-5,8:2.5 --n=2 --no-skip-special-tokens --priority=-3 "
        "--cache-salt=mine --system=Be-brief --json"
    )
    done = run("generate", *flags.split(), "hi", env=env)
    assert done.returncode == 0
    sent = daemon.next(protocol.Generate)
    assert sent.params == protocol.Params(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        seed=-7,
        stop=["END", "\n"],
        stop_token_ids=[5, 6],
        include_stop_str_in_output=True,
        ignore_eos=True,
        logprobs=3,
        logit_bias={7: -5, 8: 2.5},
        n=2,
        skip_special_tokens=False,
    )
    assert (sent.priority, sent.cache_salt) == (-3, "mine")
    assert sent.messages[0] == protocol.Message("system", "Be-brief")
    assert json.loads(done.stdout)["type"] == "done"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--guided-json", '{"type": "null"}'], {"guided_json": {"type": "null"}}),
        (["--json-schema=SCHEMA"], {"guided_json": {"type": "null"}}),
        (["--regex", "[a-z]+"], {"guided_regex": "[a-z]+"}),
        (["--choice=yes", "--guided-choice=no"], {"guided_choice": ["yes", "no"]}),
        (["--guided-grammar=GRAMMAR"], {"guided_grammar": 'start: "a"'}),
        (
            ["--response-format=json_object"],
            {"response_format": protocol.ResponseFormat("json_object")},
        ),
        (
            ["--response-format", '{"type": "text"}'],
            {"response_format": protocol.ResponseFormat("text")},
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_form_of_the_answer(
    env: dict[str, str],
    daemon: FakeDaemon,
    tmp_path: Path,
    flags: list[str],
    expected: dict[str, Any],
) -> None:
    (tmp_path / "schema").write_text('{"type": "null"}')
    (tmp_path / "grammar").write_text('start: "a"')
    named = [
        flag.replace("SCHEMA", str(tmp_path / "schema")).replace("GRAMMAR", f"{tmp_path}/grammar")
        for flag in flags
    ]
    assert run("generate", *named, "hi", env=env).returncode == 0
    assert daemon.next(protocol.Generate).params == protocol.Params(**expected)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--guided-json=/nowhere", b"--guided-json: /nowhere cannot be read: No such file"),
        ("--guided-json={", b"--guided-json: '{' is not JSON"),
        ("--response-format=xml", b"--response-format: xml cannot be read"),
        ('--response-format={"type": "xml"}', b"--response-format: invalid enum value"),
        ("--guided-choice=", b"--guided-choice: expected"),
    ],
)
def test_a_form_that_cannot_be(env: dict[str, str], flag: str, said: bytes) -> None:
    done = run("generate", flag, "hi", env=env)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_several_answers_are_told_apart(env: dict[str, str], daemon: FakeDaemon) -> None:
    done = run("generate", "--n=2", "hi", env=env)
    assert done.stdout == b"--- 1 of 2 (stop) ---\nHello\n--- 2 of 2 (stop) ---\nHello\n"


@pytest.mark.parametrize(
    ("arguments", "given", "prompt"),
    [
        ([], b"two\nlines\n", "two\nlines"),
        (["-"], b"from a pipe", "from a pipe"),
        (["--raw"], b" kept as it is \n", " kept as it is \n"),
        (["--raw"], b"\xff\xfe bytes", "\ufffd\ufffd bytes"),
        (["--raw", "argument"], b"not read", "argument"),
    ],
)
def test_where_the_prompt_comes_from(
    env: dict[str, str], daemon: FakeDaemon, arguments: list[str], given: bytes, prompt: str
) -> None:
    assert run("generate", *arguments, env=env, stdin=given).returncode == 0
    sent = daemon.next(protocol.Generate)
    assert (sent.prompt or sent.messages[0].content) == prompt


@pytest.mark.parametrize("given", [b"", b"\n\n", subprocess.DEVNULL])
def test_empty_input_is_one_line_and_exit_code_2(
    env: dict[str, str], daemon: FakeDaemon, given: bytes | int
) -> None:
    done = run("generate", env=env, stdin=given)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"pagedd: standard input is empty: there is nothing to answer\n"


def test_no_prompt_at_a_terminal_is_no_hang(env: dict[str, str], daemon: FakeDaemon) -> None:
    with on_terminal("generate", env=env) as screen:
        screen.expect("no prompt")
        assert screen.wait() == 2


def test_a_chat_from_a_file(env: dict[str, str], daemon: FakeDaemon, home: Path) -> None:
    chat = home / "chat.json"
    chat.write_text('[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]')
    assert run("generate", "--messages", str(chat), env=env).returncode == 0
    sent = daemon.next(protocol.Generate)
    assert [(m.role, m.content) for m in sent.messages] == [("user", "a"), ("assistant", "b")]
    for wrong in ('[{"role": "user"}]', "[]", "{", '[{"role": 1, "content": "x"}]'):
        chat.write_text(wrong)
        done = run("generate", "--messages", str(chat), env=env)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
    assert run("generate", "--messages", str(home / "none"), env=env).returncode == 2


def test_a_model_without_a_template_completes_the_text(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.features, daemon.refuse_chat = ["generate"], True
    assert run("generate", "Once", env=env).stdout == b"Hello"
    assert daemon.next(protocol.Generate).prompt == "Once"
    refused = run("generate", "--system", "x", "Once", env=env)
    assert refused.returncode == 1
    assert b"no chat template" in refused.stderr


def test_json_is_the_final_frame_with_the_text(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.texts = ["caf", "é 😀\x1b[2J"]
    for encoding in ("utf-8", "ascii", "cp1252"):
        done = run("generate", "--json", "hi", env={**env, "PYTHONIOENCODING": encoding})
        found = json.loads(done.stdout.decode(encoding))
        assert found["choices"][0]["text"] == "café 😀\x1b[2J"
        assert found["usage"]["completion_tokens"] == 2
        assert done.stdout.count(b"\n") == 1
    assert not daemon.next(protocol.Generate).stream


def test_stats_go_to_standard_error(env: dict[str, str], daemon: FakeDaemon) -> None:
    done = run("generate", "--stats", "hi", env=env)
    assert done.stdout == b"Hello"
    assert b"5 tokens in (0 cached), 2 out" in done.stderr
    assert b"preempted" not in done.stderr
    for times, said in ((1, b"1 time"), (2, b"2 times")):
        daemon.reasons = ["pages were short"] * times
        again = run("generate", "--stats", "hi", env=env)
        assert again.stderr.endswith(b", preempted " + said + b" for 45 ms\n")


def test_a_pipe_gets_every_byte(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.texts = list(HOSTILE)
    assert run("generate", "hi", env=env).stdout == HOSTILE.encode()


@pytest.mark.parametrize("width", [1, 2, 3, len(HOSTILE)])
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_terminal_gets_no_control_byte(
    env: dict[str, str], daemon: FakeDaemon, width: int, term: str
) -> None:
    daemon.texts = [HOSTILE[i : i + width] for i in range(0, len(HOSTILE), width)]
    # NO_COLOR: the command writes no sequences of its own either
    with on_terminal("generate", "hi", env={**env, "TERM": term, "NO_COLOR": "1"}) as screen:
        assert screen.wait() == 0
    shown = screen.output.decode()
    assert "A[2J[HB]0;titleC" in shown
    assert "EF" not in shown  # the text of a sequence stays visible
    assert "H\tI\r\nÄ漢😀\r\n" in shown
    assert not [c for c in shown if ord(c) < 32 and c not in "\t\r\n"]
    assert not [c for c in shown if 0x7F <= ord(c) < 0xA0]


def test_a_fancy_terminal_sees_only_sequences_of_the_command(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.texts = ["\x1b[31mred"]
    with on_terminal("generate", "hi", env={**env, "TERM": "xterm-256color"}) as screen:
        assert screen.wait() == 0
    assert b"\x1b[31m" not in screen.output
    assert b"[31mred\r\n" in screen.output


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_characters_that_cannot_be_written_are_replaced(
    env: dict[str, str], daemon: FakeDaemon, encoding: str
) -> None:
    daemon.texts = ["a😀", "b"]
    done = run("generate", "hi", env={**env, "PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stdout) == (0, b"a?b")


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("queue_full", 75), ("prompt_too_long", 1), ("engine_failed", 1), ("never heard of", 1)],
)
def test_a_refusal_is_one_line_with_its_exit_code(
    env: dict[str, str], daemon: FakeDaemon, code: str, exit_code: int
) -> None:
    daemon.refuse = protocol.Error(code, "no\x1b[2J\nroom", False)
    for flags in ([], ["--json"]):
        done = run("generate", *flags, "hi", env=env)
        assert (done.returncode, done.stdout) == (exit_code, b"")
        assert done.stderr == b"pagedd: no[2J room\n"


def test_no_daemon_is_69_and_status_says_3(home: Path) -> None:
    env = environment(home)
    assert run("generate", "hi", env=env).returncode == 69
    assert run("chat", env=env, stdin=b"hi").returncode == 69
    assert run("status", env=env).returncode == 3
    (home / "file").write_text("not a socket")
    assert run("generate", "--url", f"unix:{home / 'file'}", "hi", env=env).returncode == 69
    assert run("status", "--url", "ws://127.0.0.1:1", env=env).returncode == 3


@pytest.mark.parametrize(("status", "code"), [(401, 1), (403, 1), (404, 1), (503, 69)])
def test_a_refused_handshake_is_told_once(
    env: dict[str, str], daemon: FakeDaemon, status: int, code: int
) -> None:
    daemon.http_status = status
    done = run("generate", "hi", env=env)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert b"--api-key" in done.stderr or str(status).encode() in done.stderr


def test_preemptions_pass_by_on_one_line(env: dict[str, str], daemon: FakeDaemon) -> None:
    daemon.reasons = [
        f"generate (#4) gave way to r{i} (#{i}), which lacked pages: priority -5 comes before 0, "
        "policy length; its 9 pages went to host memory."
        for i in range(3)
    ]
    with on_terminal("generate", "hi", env={**env, "TERM": "xterm", "COLUMNS": "60"}) as screen:
        assert screen.wait() == 0
    shown = screen.output.decode()
    notices = [part.removesuffix("\x1b[0m") for part in shown.split("\x1b[2m")[1:]]
    again = [notice for notice in notices if "waiting again" in notice]
    assert [len(notice.partition("\x1b")[0]) for notice in again] == [59, 59, 59]
    assert again[1].startswith("waiting again: gave way to r1 (#1), which lacked pages: p")
    # each takes the place of the one before it, and none is left
    assert shown.endswith("\r\x1b[KHello\r\n")
    assert shown.count("\n") == 1
    assert run("generate", "hi", env=env).stdout == b"Hello"


def test_logprobs_that_would_not_be_shown_are_refused(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    done = run("generate", "--logprobs=2", "hi", env=env)
    assert done.returncode == 2
    assert b"--json" in done.stderr
