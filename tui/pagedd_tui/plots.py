"""What the history shows, and how it is laid out: lines of segments for a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style

from pagedd.protocol import OWNED, SHARED, SWAPPED
from pagedd_tui.charts import Column, Ink, chart, nice_top, spark
from pagedd_tui.palette import Palette
from pagedd_tui.plain import pad, plain
from pagedd_tui.series import SLOT_S, Pick, Sample, Series

SPANS_S = (60, 120, 300, 600)
TWO_COLUMNS = 84  # cells from which on charts stand beside each other
GAP = 2  # between them
SPARK_S = 60.0  # what a line of the strip goes back
SPARK = (6, 24)  # cells of one, at least and at most
RECENT = 10  # slots over which a rate is said

_DIM, _STRONG, _TEXT = Style(dim=True), Style(bold=True), Style()

Lines = list[list[Segment]]


@dataclass(frozen=True, slots=True)
class Plot:
    """One chart: its series from the bottom up, in what unit, and the top where it is known."""

    title: str
    series: tuple[tuple[str, Pick], ...]
    unit: str = ""
    digits: int = 0
    scale: float = 1.0
    top: float | None = None
    ink: Ink | None = None


def plots(series: Series, palette: Palette) -> list[Plot]:
    """All charts in the order in which they matter; the last is that of the phases of a step."""
    device, host, waiting = (
        _ink(palette, palette.style(OWNED, host=False)),
        _ink(palette, palette.style(SWAPPED, host=True)),
        _ink(palette, palette.style(OWNED, host=False), palette.style(SHARED, host=False)),
    )
    phases = tuple((_name(name, palette), _phase(name)) for name in series.phases())
    return [
        Plot("tok/s", (("", _tokens),), ink=device),
        Plot("requests", (("running", _running), ("waiting", _waiting)), ink=waiting),
        Plot("KV device", (("", _device),), unit="%", scale=100, top=100, ink=device),
        Plot("KV host", (("", _host),), unit="%", scale=100, top=100, ink=host),
        Plot("preemptions/s", (("", _preemptions),), digits=1, ink=host),
        Plot("swapped", (("", _swapped),), ink=host),
        Plot("step ms", phases, digits=1, ink=_ink(palette, *palette.owners)),
    ]


def strip(series: Series, palette: Palette, width: int) -> list[Segment]:
    """One line: short charts of the last minute and the figures of now, as many as fit."""
    shown = [plot for plot in plots(series, palette) if plot.series]
    shown.sort(key=_urgency)
    values = [_value(plot, series) for plot in shown]
    room = [len(plot.title) + len(value) + 4 for plot, value in zip(shown, values, strict=True)]
    count = len(shown)
    while count > 1 and sum(room[:count]) + count * SPARK[0] > width:
        count -= 1
    cells = max(0, min(SPARK[1], (width - sum(room[:count])) // count)) if count else 0
    slots = max(round(SPARK_S / SLOT_S / max(cells, 1)), 1)
    line: list[Segment] = []
    for plot, value in zip(shown[:count], values, strict=False):
        columns = _stacked(plot, series, cells, slots)
        sums = [None if column is None else sum(column) for column in columns]
        line.append(Segment(f" {plot.title} ", _DIM))
        assert plot.ink is not None
        line += spark(sums, plot.top or nice_top(_most(columns)), plot.ink)
        line.append(Segment(f" {value} ", _STRONG))
    return line


def view(series: Series, palette: Palette, size: tuple[int, int], span_s: float | None) -> Lines:
    """All charts, as many as fit, and below what time they show."""
    width, height = size
    span = span_s or next((s for s in SPANS_S if s >= series.span_s), SPANS_S[-1])
    shown = plots(series, palette)
    beside = width >= TWO_COLUMNS
    ranks = [shown[:2], shown[2:4], shown[4:6], shown[6:]] if beside else [[p] for p in shown]
    ranks = ranks[: max((height - 1) // 2, 1)]
    rows, spare = divmod(max(height - 1, len(ranks)), len(ranks))
    lines: Lines = []
    columns = width
    for i, rank in enumerate(ranks):
        columns = (width - GAP * (len(rank) - 1)) // len(rank)
        rank_rows = rows + (1 if i >= len(ranks) - spare else 0)
        drawn = [_plot(plot, series, (columns, rank_rows), span) for plot in rank]
        lines += [_beside(parts, columns) for parts in zip(*drawn, strict=True)]
    note = f"last {_duration(span)}; every column {span / max(columns, 1):.2g} s"
    return [*lines[: height - 1], [Segment(note[:width], _DIM)]] if height > 1 else lines[:1]


def _plot(plot: Plot, series: Series, size: tuple[int, int], span_s: float) -> Lines:
    """A line of words, and the chart below it."""
    width, rows = size
    slots = max(-(-round(span_s / SLOT_S) // max(width, 1)), 1)
    wanted = min(round(span_s / SLOT_S / slots), width)
    columns = _stacked(plot, series, wanted, slots)
    top = plot.top or nice_top(_most(columns))
    assert plot.ink is not None
    lines = [_heading(plot, series, top, width)]
    if rows > 1:
        wide = [columns[i * wanted // width] for i in range(width)] if wanted else []
        lines += chart(wide, top, rows - 1, plot.ink)
    return lines[:rows]


def _heading(plot: Plot, series: Series, top: float, width: int) -> list[Segment]:
    """Title, figures of now with the colours of their series, and the upper edge."""
    assert plot.ink is not None
    parts = [Segment(f"{plot.title} ", _STRONG), Segment(_value(plot, series), _TEXT)]
    if len(plot.series) > 1:
        fills = "#=.+" if plot.ink.ascii else "█▒░▓"
        for i, (name, pick) in enumerate(plot.series):
            mark = fills[0] if plot.ink.coloured else fills[i % len(fills)]
            value = _number(series.recent(pick, 1) * plot.scale, plot.digits)
            parts.append(Segment(f"  {mark}", plot.ink.style(i)))
            parts.append(Segment(f" {name} {value}", _TEXT))
    edge = f"top {_number(top, plot.digits)}{plot.unit}"
    used = sum(len(part.text) for part in parts)
    if used + len(edge) + 2 <= width:
        parts.append(Segment(pad(edge, width - used, right=True), _DIM))
    return parts


def _stacked(plot: Plot, series: Series, count: int, slots: int) -> list[Column]:
    picked = [series.columns(pick, count, slots) for _, pick in plot.series]
    columns: list[Column] = []
    for values in zip(*picked, strict=True) if picked else ():
        known = [value * plot.scale for value in values if value is not None]
        columns.append(known if len(known) == len(values) else None)
    return columns or [None] * count


def _value(plot: Plot, series: Series) -> str:
    slots = RECENT if plot.title == "preemptions/s" else 1
    total = sum(series.recent(pick, slots) for _, pick in plot.series)
    return f"{_number(total * plot.scale, plot.digits)}{plot.unit}"


def _most(columns: Sequence[Column]) -> float:
    return max((sum(column) for column in columns if column is not None), default=0.0)


def _beside(parts: Sequence[list[Segment]], columns: int) -> list[Segment]:
    line: list[Segment] = []
    for part in parts:
        if line:
            line.append(Segment(" " * GAP, _TEXT))
        line += Segment.adjust_line_length(part, columns)
    return line


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < 1000 else f"{value:.0f}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _urgency(plot: Plot) -> int:
    order = ("tok/s", "step ms", "preemptions/s", "KV device", "requests", "KV host", "swapped")
    return order.index(plot.title)


def _ink(palette: Palette, *styles: Style) -> Ink:
    return Ink(styles, coloured=palette.coloured, ascii=palette.ascii)


def _name(name: str, palette: Palette) -> str:
    shown = plain(name, 12)
    return shown.encode("ascii", "replace").decode() if palette.ascii else shown


def _phase(name: str) -> Pick:
    def pick(sample: Sample) -> float:
        return sample.step_ms.get(name, 0.0)

    return pick


def _tokens(sample: Sample) -> float:
    return sample.tokens


def _running(sample: Sample) -> float:
    return sample.running


def _waiting(sample: Sample) -> float:
    return sample.waiting


def _swapped(sample: Sample) -> float:
    return sample.swapped


def _device(sample: Sample) -> float:
    return sample.device


def _host(sample: Sample) -> float:
    return sample.host


def _preemptions(sample: Sample) -> float:
    return sample.preemptions
