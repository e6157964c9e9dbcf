"""What the person looks at: view, panel, filter, palette, and how much of it fits the screen."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagedd_tui.filter import EVERYTHING, Filter
from pagedd_tui.keys import KEYS, Key
from pagedd_tui.palette import Palette

WIDE = (100, 30)  # columns and lines from which the overview's panels stand side by side
LEAST = (60, 15)  # below: a summary in words

PANELS = {
    1: ("device", "host", "requests", "history"),
    2: ("device", "host"),
    3: ("requests",),
    4: ("history",),
    5: ("events",),
}
ARRANGED = (
    *("header", "body", "maps", "device", "host", "requests", "events", "detail"),
    *("summary", "legend", "glance", "strip", "history", "footer"),
)
VIEWS = {1: "overview", 2: "maps", 3: "requests", 4: "history", 5: "events"}


@dataclass
class Looking:
    """Changed by keys, read by the frame clock."""

    palette: Palette
    view: int = 1
    panel: str = "requests"
    maximised: bool = False
    subject: int | None = None  # the handle of the request that is shown alone
    name: str = ""  # of the subject
    filter: Filter = field(default=EVERYTHING)
    size: tuple[int, int] = (80, 24)
    has_host: bool = True
    keys: tuple[Key, ...] = KEYS

    @property
    def tiny(self) -> bool:
        """Whether there is room for words alone."""
        return self.size[0] < LEAST[0] or self.size[1] < LEAST[1]

    @property
    def alone(self) -> bool:
        """Whether one panel is seen at a time."""
        return self.maximised or self.size[0] < WIDE[0] or self.size[1] < WIDE[1]

    @property
    def panels(self) -> tuple[str, ...]:
        """Those of the view, in the order of tab. The overview has its history as a strip."""
        names = PANELS[self.view]
        if self.view == 1 and not self.alone:
            names = names[:-1]
        return names if self.has_host else tuple(name for name in names if name != "host")

    def go(self, view: int) -> None:
        """Another view. The panel stays, if it is there too."""
        self.view, self.subject = view, None
        self._fall_back()

    def turn(self, count: int) -> None:
        """The next panel, around."""
        names = self.panels
        at = names.index(self.panel) if self.panel in names else -1
        self.panel = names[(at + count) % len(names)]

    def visible(self) -> frozenset[str]:
        """The panels to show; a container is shown with what is in it."""
        if self.tiny:
            return frozenset(("summary",))
        frame = {"header", "footer"}
        if self.subject is not None:
            return frozenset((*frame, "detail"))
        self._fall_back()
        shown = {self.panel} if self.alone else set(self.panels)
        if self.view in (1, 3):
            frame.add("glance")
        if self.view == 1 and "history" not in shown:
            frame.add("strip")
        if shown & {"device", "host"}:
            frame.update(("maps", "body", "legend"))
        if "requests" in shown:
            frame.add("body")
        return frozenset((*frame, *shown))

    def _fall_back(self) -> None:
        """To a panel that there is."""
        names = self.panels
        if self.panel not in names:
            self.panel = "requests" if "requests" in names else names[0]
