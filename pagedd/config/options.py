"""The one table of options. Flags, variables, toml keys, help and manual all follow from it.

An option ``max-num-seqs`` is the flag ``--max-num-seqs``, the variable ``PAGEDD_MAX_NUM_SEQS`` and
the toml key ``max-num-seqs``. The rows stand in a file for each of who takes them; their order here
is that of the help. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pagedd.config.daemon_options import CLIENT, CONNECTIONS, LOG, NAMING
from pagedd.config.engine_options import MEMORY, MODEL, SCHEDULING
from pagedd.config.http_options import HTTP
from pagedd.config.option import Option

OPTIONS: tuple[Option, ...] = (
    *MODEL,
    *NAMING,
    *MEMORY,
    *SCHEDULING,
    *CONNECTIONS,
    *HTTP,
    *LOG,
    *CLIENT,
)
BY_NAME: Mapping[str, Option] = MappingProxyType({option.name: option for option in OPTIONS})
START_OPTIONS: tuple[Option, ...] = tuple(o for o in OPTIONS if o.target != "client")
CLIENT_OPTIONS: tuple[Option, ...] = (BY_NAME["url"], BY_NAME["api-key"])

# Variables that are no options: the file that holds options.
CONFIG_VARIABLE = "PAGEDD_CONFIG"
