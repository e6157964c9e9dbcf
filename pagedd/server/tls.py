"""Encryption of TCP: one context for every edge, made of the files that were given."""

from __future__ import annotations

import ssl

from pagedd.errors import UsageError
from pagedd.server.settings import TlsFiles


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Raises UsageError: one line that names the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Tickets for a next session come after the handshake, when clients with a thread that reads and
    # one that writes do both at once: OpenSSL does not promise that they may.
    context.num_tickets = 0
    load(context, files)
    return context


def load(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Read the files, also anew: connections from now on get what they hold. Raises UsageError."""
    for flag, path in (("--tls-cert", files.cert), ("--tls-key", files.key)):
        if path is not None:
            _check_readable(flag, path)
    given = f"--tls-cert {files.cert}" + (f", --tls-key {files.key}" if files.key else "")
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
    except _Encrypted:
        raise UsageError(
            f"{given}: the key is encrypted; only one without a password works"
        ) from None
    except ssl.SSLError as error:
        raise UsageError(f"{given}: {_reason(error)}") from None


class _Encrypted(Exception):
    """A password is asked for, which nobody is there to type."""


def _no_password() -> str:
    raise _Encrypted


def _check_readable(flag: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise UsageError(f"{flag} {path}: cannot be read: {error.strerror}") from None


def _reason(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    if error.reason in (None, "NO_START_LINE", "PEM_LIB"):
        return "no certificate with its private key in PEM"
    return str(error.reason).lower().replace("_", " ")
