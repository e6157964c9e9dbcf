"""TCP that is encrypted, its files, and the clients of it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from websockets.sync.client import connect

from pagedd.cli.main import main
from pagedd.errors import UsageError
from pagedd.server.settings import TlsFiles
from pagedd.server.tls import server_context
from tests.cli.terminal import environment, run
from tests.server.certificates import certificate
from tests.server.harness import Client, Daemon, until

Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


def tls(files: tuple[Path, Path]) -> TlsFiles:
    return TlsFiles(*map(str, files))


def url_of(daemon: Daemon) -> str:
    return str(daemon.status()["endpoints"][1])


def trusting(cert: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cert))


def served(daemon: Daemon) -> bytes:
    """The certificate that is shown."""
    host, port = url_of(daemon).removeprefix("wss://").rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as sock:
        shown = sock.getpeercert(binary_form=True)
    assert shown
    return shown


def test_tcp_is_encrypted_and_the_unix_socket_is_not(
    start: Start, files: tuple[Path, Path]
) -> None:
    daemon = start(tls=tls(files), api_keys=("k1", "k2"))
    url = url_of(daemon)
    assert url.startswith("wss://127.0.0.1:")
    headers = {"Authorization": "Bearer k2"}
    with connect(url, ssl=trusting(files[0]), additional_headers=headers, proxy=None) as socket_:
        client = Client(socket_, json_frames=True)
        assert client.generate("a", prompt="abc", params={"max_tokens": 3})[-1]["type"] == "done"
    with daemon.client() as client:
        assert client.generate("a", prompt="abc", params={"max_tokens": 3})[-1]["type"] == "done"
    code, errors = daemon.stop()
    assert (code, "Traceback" in errors) == (0, False)


def test_who_speaks_plainly_or_says_nothing_disturbs_nobody(
    start: Start, files: tuple[Path, Path]
) -> None:
    daemon = start(tls=tls(files))
    host, port = url_of(daemon).removeprefix("wss://").rsplit(":", 1)
    with (
        socket.create_connection((host, int(port))) as plain,
        socket.create_connection((host, int(port))),
    ):
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        plain.settimeout(10)
        # TLS says why not, in its own way, or hangs up; there is no answer of HTTP
        assert not plain.recv(100).startswith(b"HTTP/")
        with daemon.client() as client:
            assert client.generate("a", prompt="a", params={"max_tokens": 1})[-1]["type"] == "done"
        code, errors = daemon.stop()
    assert (code, "Traceback" in errors) == (0, False)


def test_every_command_takes_wss(start: Start, files: tuple[Path, Path], tmp_path: Path) -> None:
    daemon = start(tls=tls(files), api_keys=("k",))
    url, env = url_of(daemon), environment(tmp_path, SSL_CERT_FILE=str(files[0]))
    done = run("generate", "--url", url, "--api-key", "k", "--max-tokens", "3", "abc", env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    done = run("status", "--json", "--url", url, "--api-key", "k", env=env)
    assert done.returncode == 0
    for verb in (["explain"], ["events"]):
        assert run(*verb, "--url", url, "--api-key", "k", env=env).returncode == 0
    refused = run("status", "--url", url, env=env)
    assert b"wants a key" in refused.stderr
    unknown = run("status", "--url", url, "--api-key", "k", env=environment(tmp_path))
    assert unknown.returncode == 1
    assert b"SSL_CERT_FILE" in unknown.stderr
    assert unknown.stderr.count(b"\n") == 1
    plain = run("status", "--url", url.replace("wss", "ws"), "--api-key", "k", env=env)
    assert plain.returncode == 3
    assert plain.stderr.count(b"\n") == 1
    daemon.stop()


def test_wss_to_a_daemon_that_does_not_encrypt_is_one_line(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = start()
    assert main(["status", "--url", url_of(daemon).replace("ws://", "wss://")]) == 3
    said = capsys.readouterr().err
    assert "try ws://" in said
    assert said.count("\n") == 1
    daemon.stop()


def test_a_renewed_certificate_is_shown_after_sighup(start: Start, tmp_path: Path) -> None:
    files = certificate(tmp_path)
    settings = tmp_path / "settings"
    daemon = start(tls=tls(files), read_again=settings)
    settings.write_bytes(msgspec.json.encode(daemon.settings))
    before = served(daemon)
    cert, key = certificate(tmp_path, "renewed")
    os.replace(cert, files[0])
    os.replace(key, files[1])
    assert served(daemon) == before
    daemon.signal(signal.SIGHUP)
    until(lambda: served(daemon) != before, "the other certificate")
    files[1].write_text("no key")
    renewed = served(daemon)
    daemon.signal(signal.SIGHUP)
    daemon.signal(signal.SIGUSR1)
    assert served(daemon) == renewed, "what works is kept"
    _, errors = daemon.stop()
    assert "the certificate was read again" in errors
    assert "all settings stay as they are: --tls-cert" in errors


def test_files_that_do_not_fit_are_one_line(tmp_path: Path, files: tuple[Path, Path]) -> None:
    cert, key = files
    _, other = certificate(tmp_path, "other")
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    server_context(TlsFiles(str(both)))
    locked = tmp_path / "locked.key"
    command = ["openssl", "rsa", "-aes256", "-passout", "pass:x", "-in", str(key)]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True)
    garbage = tmp_path / "garbage"
    garbage.write_text("no PEM")
    cases = {
        TlsFiles(str(tmp_path / "none"), str(key)): "--tls-cert .*none: cannot be read",
        TlsFiles(str(cert), str(tmp_path / "none")): "--tls-key .*none: cannot be read",
        TlsFiles(str(tmp_path), str(key)): "cannot be read: Is a directory",
        TlsFiles(str(cert), str(other)): "the key does not belong to the certificate",
        TlsFiles(str(cert)): "no certificate with its private key",
        TlsFiles(str(garbage), str(key)): "no certificate with its private key",
        TlsFiles(str(cert), str(garbage)): "no certificate with its private key",
        TlsFiles(str(cert), str(locked)): "the key is encrypted",
    }
    for wrong, expected in cases.items():
        with pytest.raises(UsageError, match=expected) as found:
            server_context(wrong)
        assert "\n" not in found.value.message


def test_a_daemon_whose_files_do_not_fit_does_not_start(start: Start, tmp_path: Path) -> None:
    daemon = start(wait=False, tls=TlsFiles(str(tmp_path / "none")))
    assert "cannot be read" in daemon.ready_line()
    code, errors = daemon.end()
    assert (code, errors.count("\n")) == (2, 1)


def test_a_key_without_a_certificate_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--tls-key", "/x"]) == 2
    assert "--tls-cert" in capsys.readouterr().err
