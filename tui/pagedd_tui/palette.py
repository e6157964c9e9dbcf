"""How states look: glyph and colour, with ASCII and without colour. Safe for colour-blind eyes."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from rich.style import Style

NUM_OWNERS = 12  # requests take turns with these colours
NUM_AGES = 4  # pages that changed just now, lately, a while ago, long ago


@dataclass(frozen=True, slots=True)
class _Colours:
    """Colours for one kind of background, as ``#RRGGBB``."""

    free: str
    owned: str
    shared: str
    cached: str
    swapped: str
    owners: tuple[str, ...]
    ages: tuple[str, ...]
    refs: tuple[str, str, str]  # held by none, by one, by several


# After Okabe and Ito, "Color Universal Design"; ages after the cividis map.
_OKABE_ITO = _Colours(
    free="#808080",
    owned="#0072B2",
    shared="#E69F00",
    cached="#009E73",
    swapped="#D55E00",
    owners=(
        *("#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#F0E442", "#CC79A7"),
        *("#009E73", "#AAAA00", "#77AADD", "#EE8866", "#99DDFF", "#BBCC33"),
    ),
    ages=("#FDE737", "#BCAF6F", "#7C7B78", "#434E6C"),
    refs=("#6E6E6E", "#56B4E9", "#F0E442"),
)
_BRIGHT = _Colours(
    free="#8A8A8A",
    owned="#56B4E9",
    shared="#F0E442",
    cached="#2FD6A4",
    swapped="#FF8A3C",
    owners=(
        *("#56B4E9", "#F0E442", "#FF8A3C", "#2FD6A4", "#F2A3CC", "#99DDFF"),
        *("#E69F00", "#BBCC33", "#FFAABB", "#77AADD", "#EE8866", "#DDDDDD"),
    ),
    ages=("#FFF27A", "#D4C98A", "#9C9B98", "#6A7696"),
    refs=("#8A8A8A", "#56B4E9", "#F0E442"),
)
_LIGHT = _Colours(
    free="#8C8C8C",
    owned="#005A8C",
    shared="#A86400",
    cached="#00704F",
    swapped="#A94400",
    owners=(
        *("#005A8C", "#A86400", "#8F3F6B", "#00704F", "#A94400", "#4A4A8A"),
        *("#6B6B00", "#00708A", "#7A3B00", "#5B2A86", "#3F6B1F", "#444444"),
    ),
    ages=("#00224E", "#434E6C", "#7C7B78", "#A59C74"),
    refs=("#8C8C8C", "#005A8C", "#A86400"),
)
_COLOURS = MappingProxyType(
    {"okabe-ito": _OKABE_ITO, "bright": _BRIGHT, "light": _LIGHT, "mono": None}
)
PALETTES = tuple(_COLOURS)

# Reversed, a full block shows nothing and a medium shade looks as before: others stand for them.
_REVERSED = MappingProxyType({"█": "▞", "▒": "░"})


@dataclass(frozen=True, slots=True)
class Palette:
    """Glyphs and styles; ``state`` is a byte of ``PageCells``, unknown ones look free.

    ``levels``: heights from little to full. ``heights``: whether a cell for several pages shows its
    height; if not it shows what most of its pages are, because no colour could tell.
    """

    name: str
    ascii: bool
    levels: str
    heights: bool
    glyphs: tuple[str, str]  # of the device and of the host, by state
    styles: tuple[tuple[Style, ...], tuple[Style, ...]]
    owners: tuple[Style, ...]
    ages: tuple[Style, ...]
    by_refs: tuple[Style, ...]

    @property
    def coloured(self) -> bool:
        """Whether there are colours at all."""
        return self.name != "mono"

    def glyph(self, state: int, host: bool) -> str:
        """One cell wide."""
        known = self.glyphs[host]
        return known[state] if state < len(known) else known[0]

    def style(self, state: int, host: bool) -> Style:
        """The colour of a state."""
        known = self.styles[host]
        return known[state] if state < len(known) else known[0]

    def owner(self, handle: int) -> Style:
        """The colour of a request; neighbours differ."""
        return self.owners[handle % NUM_OWNERS]

    def age(self, bucket: int) -> Style:
        """From 0, changed just now, to ``NUM_AGES - 1``."""
        return self.ages[min(max(bucket, 0), NUM_AGES - 1)]

    def refs(self, holders: int) -> Style:
        """Held by none, by one, by several."""
        return self.by_refs[min(max(holders, 0), 2)]

    def reversed_glyph(self, glyph: str) -> str:
        """What to draw in reverse video, so that the eye finds it."""
        return _REVERSED.get(glyph, glyph)


def choose(name: str | None, *, ascii: bool, no_color: bool) -> Palette:
    """The palette of this name; the first of ``PALETTES`` for None and for names that are none."""
    wanted = "mono" if no_color else name
    if wanted is None or wanted not in _COLOURS:
        wanted = PALETTES[0]
    colours = _COLOURS[wanted]
    return Palette(
        name=wanted,
        ascii=ascii,
        levels="_:=#" if ascii else "▁▂▄█",
        heights=colours is not None and not ascii,
        glyphs=(".#=+", ".s=+") if ascii else ("·█▓▒", "·░▓▒"),
        styles=_state_styles(colours),
        owners=_styles(colours.owners if colours else (), NUM_OWNERS),
        ages=_styles(colours.ages if colours else (), NUM_AGES),
        by_refs=_styles(colours.refs if colours else (), 3),
    )


def following(name: str) -> str:
    """The name after this one, around."""
    return PALETTES[(PALETTES.index(name) + 1) % len(PALETTES)] if name in PALETTES else PALETTES[0]


def _state_styles(colours: _Colours | None) -> tuple[tuple[Style, ...], tuple[Style, ...]]:
    if colours is None:
        plain = _styles((), 4)
        return plain, plain
    device = (colours.free, colours.owned, colours.shared, colours.cached)
    host = (colours.free, colours.swapped, colours.shared, colours.cached)
    return _styles(device, 4), _styles(host, 4)


def _styles(colours: tuple[str, ...], count: int) -> tuple[Style, ...]:
    if not colours:
        return (Style(),) * count
    return tuple(Style(color=colour) for colour in colours)
