"""``pagedd start``: serve a model."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pagedd.cli.flags import add_start_options, collect, given_flags
from pagedd.cli.lock import lock_holder
from pagedd.cli.parser import examples
from pagedd.config import BY_NAME, Config, check_start
from pagedd.errors import AlreadyRunning, ModelNotFound
from pagedd.interpreter import require_torch
from pagedd.models.catalog import CATALOG

if TYPE_CHECKING:
    from pagedd.server.settings import DaemonSettings

logger = logging.getLogger(__name__)

DESCRIPTION = """\
Start the daemon: load a model and serve it on a Unix socket and on a local TCP port.
It stays in the foreground, and Ctrl-C stops it; --detach puts it in the background once it is
ready. Each flag is also a PAGEDD_ variable and a key of pagedd.toml."""
EPILOG = examples(
    "pagedd start",
    "pagedd start --detach",
    "pagedd start --model ~/models/Qwen3-0.6B --max-num-seqs 16",
    "pagedd start --kv-cache-memory 2GiB --listen off",
    "PAGEDD_API_KEY=@/etc/pagedd.key pagedd start --listen 0.0.0.0:7411",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every option of the daemon."""
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return when it is ready, and leave it running",
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    add_start_options(parser)


def run(args: argparse.Namespace) -> int:
    """The daemon's exit code; with ``--detach`` 0 when it is ready."""
    require_torch()
    config = collect(args, starts=True)
    check_start(config)
    holder = lock_holder(config.socket)
    if holder is not None:
        who = f" (pid {holder.pid})" if holder.pid else ""
        raise AlreadyRunning(
            f"a daemon is running already{who} on unix:{config.socket}: pagedd stop ends it; "
            "another one needs --socket, --listen and --http of its own"
        )
    check_ports(config)
    ensure_model(config)
    if args.detach:
        return _detach(args, config)

    from pagedd.daemon import run_daemon

    def read_again() -> DaemonSettings:
        again = collect(args, starts=True)
        check_start(again)
        if again["served-model-name"] != config["served-model-name"]:
            logger.warning("SIGHUP: only a restart changes --served-model-name")
        return settings_from(again)

    return run_daemon(
        settings_from(config, ready_fd=args.ready_fd),
        read_again=read_again,
        served_name=config["served-model-name"],
    )


def check_ports(config: Config) -> None:
    """Before a model is downloaded or loaded in vain: the daemon itself takes the ports later.

    Errors: ``AlreadyRunning``, and what else is wrong with an address.
    """
    from pagedd.probe import probe
    from pagedd.server.sockets import bind_tcp

    for name in ("listen", "http"):
        address = config[name]
        if address is None:
            continue
        flag = f"--{name}"
        try:
            bind_tcp(str(address), with_key=bool(config["api-key"]), flag=flag).close()
        except AlreadyRunning as error:
            url = f"ws://{address}"
            ours = probe(url, encrypted=False) or probe(url, encrypted=True)
            by = "by another daemon of pagedd" if ours else "by another program"
            raise AlreadyRunning(
                f"{error.message} {by}; {flag} HOST:PORT chooses another, {flag} off does without"
            ) from None


def ensure_model(config: Config) -> None:
    """Find the model's files, and download what has a name that can be downloaded.

    Errors: ``ModelNotFound``, ``ModelError``.
    """
    if not find_model(config):
        from pagedd.cli.pull import fetch

        fetch(config["model"])


def find_model(config: Config) -> bool:
    """Whether its files are here; if not, it has a name that can be downloaded.

    Errors: ``ModelNotFound`` for any other name, ``ModelError``.
    """
    from pagedd.models.resolve import is_hub_id, resolve

    name = config["model"]
    try:
        resolve(name, need_weights=config["load-format"] != "dummy")
    except ModelNotFound:
        if name not in CATALOG and (not is_hub_id(name) or name.endswith(".gguf")):
            raise
        return False
    return True


def settings_from(config: Config, *, ready_fd: int | None = None) -> DaemonSettings:
    """The structs of daemon and engine."""
    from pagedd.engine.messages import EngineConfig
    from pagedd.server.settings import DaemonSettings, TlsFiles

    listen = config["listen"]
    log_file, cert = config["log-file"], config["tls-cert"]
    return DaemonSettings(
        socket=str(config.socket),
        engine=EngineConfig(**config.values("engine")),
        listen=None if listen is None else str(listen),
        api_keys=config["api-key"],
        tls=None if cert is None else TlsFiles(os.path.abspath(cert), _absolute(config["tls-key"])),
        allow_origin=config["allow-origin"],
        http=None if config["http"] is None else str(config["http"]),
        allow_host=config["allow-host"],
        max_connections=config["max-connections"],
        http_body_limit=config["http-body-limit"],
        metrics_namespace=config["metrics-namespace"],
        outbox_bytes=config["outbox-bytes"],
        drain_timeout=config["drain-timeout"],
        request_timeout=config["request-timeout"],
        log_level=config["log-level"],
        log_file=_absolute(log_file),
        log_max_size=config["log-max-size"],
        log_keep=config["log-keep"],
        ready_fd=ready_fd,
    )


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


def _detach(args: argparse.Namespace, config: Config) -> int:
    from pagedd.cli.connection import open_connection
    from pagedd.cli.launch import default_log, launch
    from pagedd.cli.status import ask_status
    from pagedd.cli.terminal import Notice

    log_file = Path(os.path.abspath(config["log-file"] or default_log(config)))
    flags = flags_again(args)
    if config["log-file"] is None:
        flags.append(f"--log-file={log_file}")
    notice = Notice()
    notice.show(f"loading {config['model']} (the first start also compiles the kernels)")
    try:
        launch(flags, log_file, own_session=True)
    finally:
        notice.clear()
    with open_connection(f"unix:{config.socket}", config.key) as connection:
        status = ask_status(connection)
    print(f"pagedd is ready (pid {status.pid}): {status.model}")
    for endpoint in status.endpoints:
        print(f"  {endpoint}")
    print(f"  log {log_file}")
    return 0


def flags_again(args: argparse.Namespace) -> list[str]:
    """The flags that were given, for a daemon that is started with the same ones."""
    arguments = [] if args.config is None else [f"--config={args.config}"]
    for name, value in given_flags(args).items():
        option = BY_NAME[name]
        if isinstance(option.default, bool):
            arguments.append(option.flag if value == "true" else f"--no-{name}")
        else:
            arguments.append(f"{option.flag}={value}")
    return arguments
