"""``pagedd generate``: what is sent, and where it comes from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pagedd import protocol
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import on_terminal, run


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
        (
            "--guided-json=/nowhere",
            b"--guided-json/--json-schema: /nowhere cannot be read: No such file",
        ),
        ("--guided-json={", b"--guided-json/--json-schema: '{' is not JSON"),
        ("--response-format=xml", b"--response-format: xml cannot be read"),
        ('--response-format={"type": "xml"}', b"--response-format: invalid enum value"),
        ("--guided-choice=", b"--guided-choice: must be a text that is not empty"),
    ],
)
def test_a_form_that_cannot_be(env: dict[str, str], flag: str, said: bytes) -> None:
    done = run("generate", flag, "hi", env=env)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1


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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {}}],
            "message 2 has 'image_url': only text is supported, no images or sound",
        ),
        (
            [{"type": "text", "text": "Hi"}],
            "the content of message 2 is a list of parts: give it as one text",
        ),
        (7, "no list of role and content: Expected `str | null`, got `int` - at `$[1].content`"),
    ],
)
def test_a_chat_that_is_more_than_text(env: dict[str, str], content: object, said: str) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    done = run("generate", "--messages", "-", env=env, stdin=json.dumps(chat).encode())
    assert done.returncode == 2
    assert done.stderr.decode() == f"pagedd: --messages -: {said}\n"


def test_a_model_without_a_template_completes_the_text(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    daemon.features, daemon.refuse_chat = ["generate"], True
    assert run("generate", "Once", env=env).stdout == b"Hello"
    assert daemon.next(protocol.Generate).prompt == "Once"
    refused = run("generate", "--system", "x", "Once", env=env)
    assert refused.returncode == 1
    assert b"no chat template" in refused.stderr


def test_logprobs_that_would_not_be_shown_are_refused(
    env: dict[str, str], daemon: FakeDaemon
) -> None:
    done = run("generate", "--logprobs=2", "hi", env=env)
    assert done.returncode == 2
    assert b"--json" in done.stderr
