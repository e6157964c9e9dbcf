"""What is typed after ``/``: ``state:swapped owner:r41 pages:>50``; words are parts of ids."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pagedd.protocol import Event, SequenceRow

_COMPARE: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {
        ">=": operator.ge,
        "<=": operator.le,
        ">": operator.gt,
        "<": operator.lt,
        "=": operator.eq,
    }
)
_NUMBERS = ("pages", "priority", "generated", "prompt")
FIELDS = ("state", "owner", "kind", *_NUMBERS)


@dataclass(frozen=True, slots=True)
class Filter:
    """Terms that must all hold. ``problem`` says what was not understood; that part is left out."""

    text: str = ""
    words: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    bounds: tuple[tuple[str, str, float], ...] = ()  # field, comparison, number
    problem: str = ""

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Read what was typed; never fails."""
        named: dict[str, list[str]] = {"": [], "state": [], "owner": [], "kind": []}
        bounds: list[tuple[str, str, float]] = []
        problem = ""
        for term in text.split():
            field, colon, value = term.partition(":")
            field = "owner" if field == "id" else field
            if not colon:
                named[""].append(term.casefold())
            elif field in _NUMBERS:
                bound = _bound(value)
                if bound is None:
                    problem = f"{field}: wants a number, as in {field}:>8"
                else:
                    bounds.append((field, *bound))
            elif field in named:
                named[field].append(value.casefold())
            else:
                problem = f"no field {field}: there are {', '.join(FIELDS)}"
        return cls(
            text=text.strip(),
            words=tuple(named[""]),
            states=tuple(named["state"]),
            owners=tuple(named["owner"]),
            kinds=tuple(named["kind"]),
            bounds=tuple(bounds),
            problem=problem,
        )

    def matches(self, row: SequenceRow) -> bool:
        """Whether a request is shown. A state may be cut short, an owner may not."""
        id = row.id.casefold()
        return (
            all(word in id or word == f"#{row.handle}" for word in self.words)
            and all(row.state.startswith(state) for state in self.states)
            and all(owner in (id, f"#{row.handle}", str(row.handle)) for owner in self.owners)
            and all(
                _COMPARE[compare](_number(row, field), number)
                for field, compare, number in self.bounds
            )
        )

    def tells(self, event: Event) -> bool:
        """Whether an event is shown: by its kind, and by the request that it is about."""
        id = event.request.casefold() if isinstance(event.request, str) else ""
        handle = str(event.handle) if isinstance(event.handle, int) else ""
        text = event.text.casefold()
        return (
            all(word in id or word in text or word == f"#{handle}" for word in self.words)
            and all(owner in (id, handle, f"#{handle}") for owner in self.owners)
            and all(event.kind.startswith(kind) for kind in self.kinds)
        )


EVERYTHING = Filter()


def _bound(value: str) -> tuple[str, float] | None:
    compare = next((sign for sign in _COMPARE if value.startswith(sign)), "")
    try:
        return compare or "=", float(value[len(compare) :])
    except ValueError:
        return None


def _number(row: SequenceRow, field: str) -> float:
    match field:
        case "pages":
            return row.pages
        case "priority":
            return row.priority
        case "generated":
            return row.generated
        case _:
            return row.prompt_tokens
