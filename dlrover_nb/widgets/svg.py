"""A small static plotter: data in, one SVG string out, nothing else needed to see it.

Why our own: a saved notebook must show its plots with neither kernel, network nor script, and stay small.
Matplotlib would add 60 MB of dependency and 30-100 kB a chart; this draws what the four charts need in a
few kB. Colors are Okabe and Ito's, each with a dash pattern or a marker shape of its own, on a white card
so that light and dark notebooks show the same. Values that are NaN are gaps, never bridged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.widgets import ticks as tick
from dlrover_nb.widgets.blocks import escape
from dlrover_nb.widgets.layers import (
    BLACK,
    BLUE,
    CYCLE,
    DASHES,
    GREEN,
    GRID,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Along,
    Band,
    Layer,
    Line,
    Points,
    Rule,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_LEFT, _RIGHT, _BOTTOM, _TITLE, _ROW = 62, 22, 40, 22, 14
_MOST_TICKS = 10
_CHAR = 5.6  # mean width of a character at 10 px, in px: wide enough for every common sans-serif


__all__ = [
    "BLACK", "BLUE", "CYCLE", "DASHES", "GREEN", "GRID", "INK", "ORANGE", "PURPLE", "RED", "SKY",
    "Along", "Band", "Layer", "Line", "Plot", "Points", "Rule", "draw", "grid",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plot:
    """What to draw. `desc` tells in words what the chart shows, for who cannot see it."""

    title: str
    desc: str
    x_label: str
    y_label: str
    layers: tuple[Layer, ...]
    x_is_time: bool = False
    x_ticks: Sequence[float] = ()  # the values that exist, where they are few; else round numbers
    y_from_zero: bool = True
    width: int = 680
    height: int = 300


@dataclass(frozen=True, slots=True)
class _Frame:
    """The plot area in px, and the values at its edges."""

    left: float
    right: float
    top: float
    bottom: float
    x0: float
    x1: float
    y0: float
    y1: float

    def px(self, x: float) -> float:
        return self.left + (x - self.x0) / (self.x1 - self.x0) * (self.right - self.left)

    def py(self, y: float) -> float:
        return self.bottom - (y - self.y0) / (self.y1 - self.y0) * (self.bottom - self.top)

    def holds(self, x: float, y: float) -> bool:
        return self.x0 <= x <= self.x1 and self.y0 <= y <= self.y1


def draw(plot: Plot) -> str:
    """Return the plot as one ``<svg>`` element."""
    frame = _frame(plot)
    inner = "".join(
        [
            f'<rect width="{plot.width}" height="{plot.height}" fill="#fff"/>',
            _text(_LEFT, 15, plot.title, size=12, weight="600"),
            _axes(plot, frame),
            *(_layer(layer, frame) for layer in plot.layers),
            _rules_labels(plot, frame),
            _legend(plot),
        ]
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {plot.width} {plot.height}" '
        f'width="{plot.width}" height="{plot.height}" style="max-width:100%;height:auto;background:#fff" '
        f'font-family="system-ui,sans-serif"><title>{escape(plot.title)}</title>'
        f"<desc>{escape(plot.desc)}</desc>{inner}</svg>"
    )


def grid(title: str, desc: str, plots: Sequence[Plot], *, n_column: int = 2) -> str:
    """Return several plots of equal size as one ``<svg>``."""
    if not plots:
        return draw(Plot(title, desc, "", "", ()))
    width, height = plots[0].width, plots[0].height
    n_row = -(-len(plots) // n_column)
    total_w, total_h = width * min(n_column, len(plots)), height * n_row
    parts = (
        draw(plot).replace("<svg ", f'<svg x="{i % n_column * width}" y="{i // n_column * height}" ', 1)
        for i, plot in enumerate(plots)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {total_w} {total_h}" '
        f'width="{total_w}" height="{total_h}" style="max-width:100%;height:auto;background:#fff">'
        f"<title>{escape(title)}</title><desc>{escape(desc)}</desc>{''.join(parts)}</svg>"
    )


# the plot area


def _frame(plot: Plot) -> _Frame:
    xs = [v for layer in plot.layers for v in _xs(layer) if math.isfinite(v)] or [0.0, 1.0]
    ys = [v for layer in plot.layers for v in _ys(layer) if math.isfinite(v)] or [0.0, 1.0]
    x0, x1 = tick.padded(min(xs), max(xs), 0.0 if plot.x_is_time else 0.04)
    y0, y1 = tick.padded(min(ys), max(ys), 0.06)
    if plot.y_from_zero and min(ys) >= 0:
        y0 = 0.0
    top = _TITLE + _ROW * (_legend_rows(plot) + _label_rows(plot)) + 4
    return _Frame(_LEFT, plot.width - _RIGHT, top, plot.height - _BOTTOM, x0, x1, y0, y1)


def _xs(layer: Layer) -> Sequence[float]:
    if isinstance(layer, Rule):
        return [layer.at] if layer.along is Along.VERTICAL else []
    return layer.x


def _ys(layer: Layer) -> Iterable[float]:
    match layer:
        case Rule():
            return [layer.at] if layer.along is Along.HORIZONTAL else []
        case Line():
            return layer.y
        case Band():
            return [*layer.low, *layer.high]
        case Points():
            return [*layer.y, *layer.low, *layer.high]
        case _:
            assert_never(layer)


def _axes(plot: Plot, frame: _Frame) -> str:
    x_ticks = _x_ticks(plot, frame)
    y_ticks = tick.ticks(frame.y0, frame.y1, 5)
    parts = [
        f'<path d="M{frame.left:.0f} {frame.py(y):.1f}H{frame.right:.0f}" stroke="{GRID}"/>'
        + _text(frame.left - 6, frame.py(y) + 3.5, label, anchor="end")
        for y, label in y_ticks
    ]
    parts += [
        f'<path d="M{frame.px(x):.1f} {frame.bottom:.0f}v4" stroke="{INK}"/>'
        + _text(frame.px(x), frame.bottom + 15, label, anchor="middle")
        for x, label in x_ticks
    ]
    middle = (frame.left + frame.right) / 2
    height = (frame.top + frame.bottom) / 2
    edge = f"M{frame.left:.0f} {frame.top:.0f}V{frame.bottom:.0f}H{frame.right:.0f}"
    y_label = _text(0, 0, plot.y_label, anchor="middle", size=11)
    parts += [
        f'<path d="{edge}" fill="none" stroke="{INK}"/>',
        _text(middle, frame.bottom + 31, plot.x_label, anchor="middle", size=11),
        f'<g transform="translate(13 {height:.0f}) rotate(-90)">{y_label}</g>',
    ]
    return "".join(parts)


def _x_ticks(plot: Plot, frame: _Frame) -> list[tuple[float, str]]:
    if plot.x_is_time:
        return tick.time_ticks(frame.x0, frame.x1)
    if 0 < len(plot.x_ticks) <= _MOST_TICKS:
        return [(x, f"{x:g}") for x in plot.x_ticks]
    return tick.ticks(frame.x0, frame.x1, 7)


def _text(  # noqa: PLR0913 - the attributes of one element
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 10,
    weight: str = "",
    color: str = INK,
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    side = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}"{side}{bold}>{escape(text)}</text>'
    )


# layers


def _layer(layer: Layer, frame: _Frame) -> str:
    match layer:
        case Line():
            return _line(layer, frame)
        case Band():
            return _band(layer, frame)
        case Points():
            return _points(layer, frame)
        case Rule():
            return _rule(layer, frame)
        case _:
            assert_never(layer)


def _runs(columns: Sequence[Sequence[float]]) -> Iterable[list[tuple[float, ...]]]:
    """Split rows at every NaN."""
    run: list[tuple[float, ...]] = []
    for row in zip(*columns, strict=True):
        if all(map(math.isfinite, row)):
            run.append(row)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _path(points: Sequence[tuple[float, ...]], *, step: bool = False) -> str:
    first, *rest = points
    parts = [f"M{first[0]:.1f} {first[1]:.1f}"]
    parts += [f"H{x:.1f}V{y:.1f}" if step else f"L{x:.1f} {y:.1f}" for x, y in rest]
    return "".join(parts)


def _line(line: Line, frame: _Frame) -> str:
    runs = ([(frame.px(x), frame.py(y)) for x, y in run] for run in _runs((line.x, line.y)))
    # a run of one point is drawn as a dot: round caps make it visible
    path = "".join(_path(run, step=line.step) + ("h0" if len(run) == 1 else "") for run in runs)
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    return (
        f'<path d="{path}" fill="none" stroke="{line.color}" stroke-width="1.7" stroke-linejoin="round" '
        f'stroke-linecap="round"{dash}/>'
        if path
        else ""
    )


def _band(band: Band, frame: _Frame) -> str:
    path = ""
    for run in _runs((band.x, band.low, band.high)):
        edge = [(frame.px(x), frame.py(high)) for x, _, high in run]
        back = [(frame.px(x), frame.py(low)) for x, low, _ in reversed(run)]
        path += _path([*edge, *back]) + "Z"
    return f'<path d="{path}" fill="{band.color}" fill-opacity="0.16"/>' if path else ""


def _points(points: Points, frame: _Frame) -> str:
    parts = [
        f'<path d="M{frame.px(x):.1f} {frame.py(high):.1f}V{frame.py(low):.1f}" stroke="{points.color}" '
        'stroke-opacity="0.55"/>'
        for x, low, high in zip(points.x, points.low, points.high, strict=False)
        if all(map(math.isfinite, (x, low, high)))
    ]
    for i, (x, y) in enumerate(zip(points.x, points.y, strict=True)):
        if math.isfinite(x) and math.isfinite(y):
            title = f"<title>{escape(points.titles[i])}</title>" if i < len(points.titles) else ""
            parts.append(_marker(points, frame.px(x), frame.py(y), title))
    return "".join(parts)


def _marker(points: Points, x: float, y: float, title: str) -> str:
    paint = (
        f'fill="#fff" stroke="{points.color}" stroke-width="2"'
        if points.hollow
        else f'fill="{points.color}" stroke="#fff" stroke-width="0.6"'
    )
    return f'<path d="{_SHAPE[points.shape](x, y, points.size)}" {paint}>{title}</path>'


_SHAPE: dict[str, Callable[[float, float, float], str]] = {
    "circle": lambda x, y, r: f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0",
    "square": lambda x, y, r: f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}Z",
    "triangle": lambda x, y, r: f"M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r:.1f} {2 * r}h{-2.4 * r:.1f}Z",
    "diamond": lambda x, y, r: (
        f"M{x:.1f} {y - 1.4 * r:.1f}l{1.4 * r:.1f} {1.4 * r:.1f}l{-1.4 * r:.1f} {1.4 * r:.1f}"
        f"l{-1.4 * r:.1f} {-1.4 * r:.1f}Z"
    ),
}


def _rule(rule: Rule, frame: _Frame) -> str:
    if rule.along is Along.VERTICAL:
        path = f"M{frame.px(rule.at):.1f} {frame.top:.1f}V{frame.bottom:.1f}"
    else:
        path = f"M{frame.left:.1f} {frame.py(rule.at):.1f}H{frame.right:.1f}"
    dash = f' stroke-dasharray="{rule.dash}"' if rule.dash else ""
    return (
        f'<path d="{path}" stroke="{rule.color}"{dash} fill="none"><title>{escape(rule.label)}</title></path>'
    )


# labels of rules: vertical ones above the plot in up to three rows, so that they never cover each other


def _vertical(plot: Plot) -> list[Rule]:
    rules = [r for r in plot.layers if isinstance(r, Rule) and r.along is Along.VERTICAL and r.label]
    return sorted(rules, key=lambda r: r.at)


def _label_rows(plot: Plot) -> int:
    return min(3, len(_vertical(plot)))


def _rules_labels(plot: Plot, frame: _Frame) -> str:
    ends = [-math.inf] * max(1, _label_rows(plot))
    parts = []
    for rule in _vertical(plot):
        x, width = frame.px(rule.at), len(rule.label) * _CHAR
        start = min(x, frame.right - width)
        row = next((i for i, end in enumerate(ends) if end <= start), None)
        if row is not None:  # no room: the rule's tool tip and the table hold its label
            ends[row] = start + width + 8
            y = frame.top - 5 - _ROW * row
            parts.append(_text(start, y, rule.label, color=rule.color))
            parts.append(f'<path d="M{x:.1f} {frame.top:.1f}V{y + 2:.1f}" stroke="{rule.color}"/>')
    level = (r for r in plot.layers if isinstance(r, Rule) and r.along is Along.HORIZONTAL and r.label)
    parts += [
        _text(frame.right - 4, frame.py(r.at) - 4, r.label, anchor="end", color=r.color)
        for r in level
        if frame.y0 <= r.at <= frame.y1
    ]
    return "".join(parts)


# legend


def _legend_places(plot: Plot) -> list[tuple[float, int, Line | Band | Points]]:
    """Return x, row and layer of each entry, wrapped at the plot's width."""
    places: list[tuple[float, int, Line | Band | Points]] = []
    x, row = float(_LEFT), 0
    for layer in plot.layers:
        if isinstance(layer, Rule) or not layer.label:
            continue
        width = 26 + len(layer.label) * _CHAR + 12
        if x + width > plot.width - _RIGHT and x > _LEFT:
            x, row = float(_LEFT), row + 1
        places.append((x, row, layer))
        x += width
    return places


def _legend_rows(plot: Plot) -> int:
    return 1 + max((row for _, row, _ in _legend_places(plot)), default=-1)


def _legend(plot: Plot) -> str:
    parts = []
    for x, row, layer in _legend_places(plot):
        y = _TITLE + _ROW * row + 6.0
        parts.append(_swatch(layer, x, y) + _text(x + 26, y + 3.5, layer.label))
    return "".join(parts)


def _swatch(layer: Line | Band | Points, x: float, y: float) -> str:
    match layer:
        case Band():
            return (
                f'<rect x="{x}" y="{y - 4}" width="20" height="8" fill="{layer.color}" fill-opacity="0.16"/>'
            )
        case Line():
            dash = f' stroke-dasharray="{layer.dash}"' if layer.dash else ""
            return f'<path d="M{x} {y}h20" stroke="{layer.color}" stroke-width="1.7"{dash}/>'
        case Points():
            return _marker(layer, x + 10, y, "")
        case _:
            assert_never(layer)
