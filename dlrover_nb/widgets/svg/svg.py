"""The static renderer of plots: a `Plot` in, one self-contained SVG string out.

Why our own: a saved notebook must show its plots with neither kernel, network nor script, and stay small.
Matplotlib would add 60 MB of dependency and 30-100 kB a chart; this draws what the charts need in a
few kB. Colors are Okabe and Ito's, each with its own dash pattern or marker shape, on a card
in the colors of the page (`theme`). Values that are NaN are gaps, never bridged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.widgets.svg import extent
from dlrover_nb.widgets.svg import ticks as tick
from dlrover_nb.widgets.svg.label_layout import CHAR, ROW_PX, Room, Side, clear_labels, row_of
from dlrover_nb.widgets.svg.marks import Area, Band, Layer, Line, Orientation, Plot, Points, Rule, has_rows
from dlrover_nb.widgets.svg.plot_labels import Axes, level, of_markers, upright
from dlrover_nb.widgets.svg.svg_elements import Tile, card, ink_on, lines, marker, swatch, text, wrapped
from dlrover_nb.widgets.theme import SVG_BG, SVG_GRID, SVG_INK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.widgets.svg.plot_labels import Rows

_LEFT, _RIGHT, _BOTTOM, _TITLE, _ROW = 62, 22, 40, 22, 14
_EDGE, _NARROW = 8, 480  # px: in a narrower drawing the legend begins at its edge
_BESIDE_TICKS = 24  # px left of the labels of the y axis: its name, and the gap to the axis
_LEAST_HEIGHT = 100  # px of the data, however many rows its legend and its names take
_MOST_TICKS, _Y_TICKS = 10, 5
_APART_PX = 55  # between ticks of the x axis, at least about
_OPACITY = 0.16
_ANCHOR = {Side.LEFT: "start", Side.MIDDLE: "middle", Side.RIGHT: "end"}


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

    @property
    def axes(self) -> Axes:
        return Axes((self.x0, self.x1), (self.y0, self.y1))

    @property
    def room(self) -> Room:
        return Room((self.right - self.left,) * 2, (self.bottom - self.top,) * 2)


def draw(plot: Plot) -> Tile:
    """Return the plot as one ``<svg>`` element."""
    plot = extent.cut(plot)
    frame = _frame(plot)
    inner = "".join(
        [
            lines(_LEFT, 15, _title(plot), size=12, weight="600"),
            _axes(plot, frame),
            *(_layer(layer, frame) for layer in plot.layers),
            _area_names(plot, frame),
            _marker_names(plot, frame),
            _rules_labels(plot, frame),
            _legend(plot),
            lines(_LEFT, frame.bottom + 31 + _ROW, _note(plot)),
        ]
    )
    height = round(frame.bottom + _below(plot))
    return Tile(card(plot.title, plot.desc, plot.width, height, inner), plot.width, height)


def _title(plot: Plot) -> list[str]:
    return wrapped(plot.title, plot.width - _LEFT - _RIGHT, size=12, is_bold=True)


def _note(plot: Plot) -> list[str]:
    return wrapped(plot.note, plot.width - _LEFT - _RIGHT) if plot.note else []


def _below(plot: Plot) -> int:
    """Return the height of what stands below the data: ticks, the name of the axis, the note."""
    return _BOTTOM + _ROW * len(_note(plot))


def _legend_top(plot: Plot) -> int:
    return _TITLE + _ROW * (len(_title(plot)) - 1)


# the plot area


def _frame(plot: Plot) -> _Frame:
    (x0, x1), (y0, y1) = extent.x_range(plot), extent.y_range(plot)
    widest = max(len(label) for _, label in tick.ticks(y0, y1, _Y_TICKS)) * CHAR
    left, bottom = max(_LEFT, widest + _BESIDE_TICKS), plot.height - _below(plot)
    flat = _Frame(left, plot.width - _RIGHT, 0.0, bottom, x0, x1, y0, y1)
    top = _legend_top(plot) + _ROW * _legend_rows(plot) + ROW_PX * _rows(plot, flat).n_row + 4
    return replace(flat, top=top, bottom=max(bottom, top + _LEAST_HEIGHT))


def _axes(plot: Plot, frame: _Frame) -> str:
    x_ticks = [(frame.px(x), label) for x, label in _x_ticks(plot, frame)]
    y_ticks = tick.ticks(frame.y0, frame.y1, _Y_TICKS)
    parts = [
        f'<path d="M{frame.left:.0f} {frame.py(y):.1f}H{frame.right:.0f}" stroke="{SVG_GRID}"/>'
        + text(frame.left - 6, frame.py(y) + 3.5, label, anchor="end")
        for y, label in y_ticks
    ]
    parts += [f'<path d="M{x:.1f} {frame.bottom:.0f}v4" stroke="{SVG_INK}"/>' for x, _ in x_ticks]
    parts += [
        text(x, frame.bottom + 15, label, anchor="middle") for x, label in clear_labels(x_ticks, plot.width)
    ]
    middle = (frame.left + frame.right) / 2
    height = (frame.top + frame.bottom) / 2
    edge = f"M{frame.left:.0f} {frame.top:.0f}V{frame.bottom:.0f}H{frame.right:.0f}"
    y_label = text(0, 0, plot.y_label, anchor="middle", size=11)
    parts += [
        f'<path d="{edge}" fill="none" stroke="{SVG_INK}"/>',
        text(middle, frame.bottom + 31, plot.x_label, anchor="middle", size=11),
        f'<g transform="translate(13 {height:.0f}) rotate(-90)">{y_label}</g>',
    ]
    return "".join(parts)


def _x_ticks(plot: Plot, frame: _Frame) -> list[tuple[float, str]]:
    n = max(2, int(frame.room.width[0] / _APART_PX))
    if plot.x_is_time:
        return tick.time_ticks(frame.x0, frame.x1, min(tick.N_TIME_TICKS, n))
    if 0 < len(plot.x_ticks) <= _MOST_TICKS:
        return tick.values(plot.x_ticks)
    return tick.ticks(frame.x0, frame.x1, min(7, n))


# layers


def _layer(layer: Layer, frame: _Frame) -> str:
    match layer:
        case Line():
            return _line(layer, frame)
        case Band():
            return _band(layer, frame)
        case Area():
            return _area(layer, frame)
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
    """Return a path in relative steps, which are shorter than absolute coordinates."""
    at = [(round(10 * x), round(10 * y)) for x, y in points]
    parts = [f"M{at[0][0] / 10:g} {at[0][1] / 10:g}"]
    for (x0, y0), (x1, y1) in pairwise(at):
        right, down = f"{(x1 - x0) / 10:g}", f"{(y1 - y0) / 10:g}"
        gap = "" if down.startswith("-") else " "
        parts.append(f"h{right}v{down}" if step else f"l{right}{gap}{down}")
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


def _band(band: Band | Area, frame: _Frame) -> str:
    opacity = _OPACITY if isinstance(band, Band) else 1
    path = ""
    for run in _runs((band.x, _low(band), band.high)):
        edge = [(frame.px(x), frame.py(high)) for x, _, high in run]
        back = [(frame.px(x), frame.py(low)) for x, low, _ in reversed(run)]
        path += _path([*edge, *back]) + "Z"
    return f'<path d="{path}" fill="{band.color}" fill-opacity="{opacity}"/>' if path else ""


def _low(band: Band | Area) -> Sequence[float]:
    return band.low or [0.0] * len(band.x)


def _area(area: Area, frame: _Frame) -> str:
    """Draw an area with an edge, which separates neighbors."""
    return _band(area, frame) + _line(Line(area.x, area.high, SVG_BG), frame)


def _area_names(plot: Plot, frame: _Frame) -> str:
    """Write the names of areas into them, where they are wide; none over another."""
    parts, places = [], list[tuple[float, float, float]]()
    for area in plot.layers:
        place = _place_inside(area, frame) if isinstance(area, Area) else None
        if place is None or not isinstance(area, Area):
            continue
        x, y, half = place
        if all(abs(x - ox) >= half + other or abs(y - oy) >= _ROW for ox, oy, other in places):
            places.append(place)
            parts.append(text(x, y + 3.5, area.name, anchor="middle", color=ink_on(area.color)))
    return "".join(parts)


def _place_inside(area: Area, frame: _Frame) -> tuple[float, float, float] | None:
    """Return the middle of a name within its area, and half of its width; None: it has no room."""
    runs = list(_runs((area.x, _low(area), area.high))) if area.name else []
    if not runs:
        return None
    run = max(runs, key=lambda r: r[-1][0] - r[0][0])  # the longest: a name must not be in a gap
    widest = max(high - low for _, low, high in run)
    near = [row for row in run if row[2] - row[1] >= 0.9 * widest]
    at, low, high = near[len(near) // 2]
    half = len(area.name) * CHAR / 2 + 4
    left, right = frame.px(run[0][0]) + half, frame.px(run[-1][0]) - half
    if frame.py(low) - frame.py(high) < _ROW or left > right:
        return None
    return min(max(frame.px(at), left), right), (frame.py(low) + frame.py(high)) / 2, half


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
            parts.append(marker(points, frame.px(x), frame.py(y), title))
    return "".join(parts)


def _marker_names(plot: Plot, frame: _Frame) -> str:
    layers = [layer for layer in plot.layers if isinstance(layer, Points)]
    return "".join(
        text(frame.px(x) + spot.dx, frame.py(y) + spot.dy, name, anchor=_ANCHOR[spot.side])
        for layer, spots in zip(layers, of_markers(layers, frame.axes, frame.room), strict=True)
        for name, x, y, spot in zip(layer.labels, layer.x, layer.y, spots, strict=False)
        if spot
    )


def _rule(rule: Rule, frame: _Frame) -> str:
    if rule.along is Orientation.VERTICAL:
        path = f"M{frame.px(rule.at):.1f} {frame.top:.1f}V{frame.bottom:.1f}"
    else:
        path = f"M{frame.left:.1f} {frame.py(rule.at):.1f}H{frame.right:.1f}"
    dash = f' stroke-dasharray="{rule.dash}"' if rule.dash else ""
    return (
        f'<path d="{path}" stroke="{rule.color}"{dash} fill="none"><title>{escape(rule.label)}</title></path>'
    )


# labels of rules: upright ones in rows above the plot


def _rows(plot: Plot, frame: _Frame) -> Rows:
    return upright(plot, frame.axes.x, frame.room.width)


def _rules_labels(plot: Plot, frame: _Frame) -> str:
    parts = []
    rows = _rows(plot, frame)
    for rule, spot in zip(rows.rules, rows.spots, strict=True):
        if spot is not None:  # the tool tip of the line, and the table, hold those without room
            x, y = frame.px(rule.at), frame.top - 5 - ROW_PX * row_of(spot)
            parts.append(text(x + spot.dx, y, rule.label, anchor=_ANCHOR[spot.side]))
            parts.append(f'<path d="M{x:.1f} {frame.top:.1f}V{y - 7:.1f}" stroke="{rule.color}"/>')
    for rule, spot in level(plot, frame.axes, frame.room):
        if spot is not None:
            x = frame.left + (spot.x or 0.0) * (frame.right - frame.left)
            parts.append(
                text(x + spot.dx, frame.py(rule.at) + spot.dy, rule.label, anchor=_ANCHOR[spot.side])
            )
    return "".join(parts)


# legend


def _legend_places(plot: Plot) -> list[tuple[float, int, Line | Band | Area | Points]]:
    """Return x, row and layer of each entry, wrapped at the plot's width."""
    places: list[tuple[float, int, Line | Band | Area | Points]] = []
    left = float(_LEFT if plot.width >= _NARROW else _EDGE)
    x, row = left, 0
    for layer in plot.layers:
        if isinstance(layer, Rule) or not (layer.label and has_rows(layer)):
            continue
        width = 26 + len(layer.label) * CHAR + 12
        if x + width > plot.width - _EDGE and x > left:
            x, row = left, row + 1
        places.append((x, row, layer))
        x += width
    return places


def _legend_rows(plot: Plot) -> int:
    return 1 + max((row for _, row, _ in _legend_places(plot)), default=-1)


def _legend(plot: Plot) -> str:
    parts = []
    for x, row, layer in _legend_places(plot):
        y = _legend_top(plot) + _ROW * row + 6.0
        parts.append(_swatch(layer, x, y) + text(x + 26, y + 3.5, layer.label))
    return "".join(parts)


def _swatch(layer: Line | Band | Area | Points, x: float, y: float) -> str:
    match layer:
        case Band() | Area():
            return swatch(layer.color, x, y, _OPACITY if isinstance(layer, Band) else 1)
        case Line():
            dash = f' stroke-dasharray="{layer.dash}"' if layer.dash else ""
            return f'<path d="M{x} {y}h20" stroke="{layer.color}" stroke-width="1.7"{dash}/>'
        case Points():
            return marker(layer, x + 10, y, "")
        case _:
            assert_never(layer)
