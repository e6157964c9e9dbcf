"""Configuration: one table of options, and how its values are found."""

from pagedd.config.kinds import Address
from pagedd.config.load import (
    Config,
    Setting,
    check_socket,
    check_start,
    default_socket,
    did_you_mean,
    load_config,
    user_config,
)
from pagedd.config.option import Option
from pagedd.config.options import BY_NAME, CLIENT_OPTIONS, OPTIONS, START_OPTIONS

__all__ = [
    "BY_NAME",
    "CLIENT_OPTIONS",
    "OPTIONS",
    "START_OPTIONS",
    "Address",
    "Config",
    "Option",
    "Setting",
    "check_socket",
    "check_start",
    "default_socket",
    "did_you_mean",
    "load_config",
    "user_config",
]
