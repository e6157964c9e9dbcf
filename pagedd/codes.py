"""From a wire code back to its class of error: used at both ends of the wire."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pagedd import errors

CLASSES: Mapping[str, type[errors.PageddError]] = MappingProxyType(
    {
        cls.code: cls
        for cls in (
            errors.BadRequest,
            errors.DuplicateId,
            errors.PromptTooLong,
            errors.RequestNotFound,
            errors.ModelNotFound,
            errors.QueueFull,
            errors.SlowConsumer,
            errors.DeadlineExceeded,
            errors.ShuttingDown,
            errors.EngineFailed,
            errors.InvalidLogits,
            errors.OutOfDeviceMemory,
            errors.Unauthorized,
        )
    }
)


def class_of(code: str) -> type[errors.PageddError]:
    """The class whose code this is; PageddError (``internal``) for one that is not known."""
    return CLASSES.get(code, errors.PageddError)
