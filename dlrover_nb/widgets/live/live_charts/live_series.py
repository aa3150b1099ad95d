"""Lines, bands and areas of a live plot: those that share their x share one wide source.

Fifty nodes at one report a second then cost as much as one: one message, one row. A layer keeps its column
and its renderer for good; they are hidden while the layer is absent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.widgets.live.live_charts import kit
from dlrover_nb.widgets.live.live_charts.legend import BAND_ALPHA, HATCH_ALPHA
from dlrover_nb.widgets.live.live_charts.sources import Source, T, with_gaps
from dlrover_nb.widgets.svg.marks import Area, Band, Line, has_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from dlrover_nb.widgets.svg.marks import Series

Look = dict[str, object]  # the changeable properties of a glyph


class LiveSeries:
    """The series of one figure."""

    def __init__(self, figure: Any, hover: Any) -> None:  # noqa: ANN401 - bokeh has no types
        self._figure, self._hover = figure, hover
        self._grids: list[_Grid] = []

    def show(self, layers: Sequence[Series]) -> bool:
        """Show these layers and no others; return whether anything changed."""
        by_x: dict[int, dict[str, Series]] = {}
        for key, layer in keyed(layers).items():
            if has_rows(layer):
                by_x.setdefault(id(layer.x), {})[key] = layer
        shown: list[_Grid] = []
        changed = False
        for group in by_x.values():
            grid = self._grid(group, shown)
            changed |= grid.show(group)
            shown.append(grid)
        for grid in self._grids:
            changed |= grid not in shown and grid.clear()
        return changed

    def _grid(self, group: Mapping[str, Series], used: list[_Grid]) -> _Grid:
        """Return the source that has drawn any of these layers; else a new one."""
        grid = next((each for each in self._grids if each not in used and each.has_any(group)), None)
        if grid is None:
            grid = _Grid(self._figure, self._hover)
            self._grids.append(grid)
        return grid


def keyed(layers: Sequence[Series]) -> dict[str, Series]:
    """Name each layer: a line by its label, other layers by kind and label, with a number where needed.

    Hover shows the names of lines, which are also their columns' names.
    """
    named: dict[str, Series] = {}
    for layer in layers:
        kind = type(layer).__name__.lower()
        name = layer.label if isinstance(layer, Line) and layer.label else f"{kind} {layer.label}".strip()
        names = (name, *(f"{name} {i}" for i in range(2, len(layers) + 2)))
        named[next(n for n in names if n not in named and n != T)] = layer
    return named


class _Grid:
    """Layers over one x: a source, and a renderer for each."""

    def __init__(self, figure: Any, hover: Any) -> None:  # noqa: ANN401 - bokeh has no types
        self._figure, self._hover = figure, hover
        self._source = Source(t=[])
        self._drawn: dict[str, tuple[Any, Look]] = {}

    def has_any(self, group: Iterable[str]) -> bool:
        return any(key in self._drawn for key in group)

    def clear(self) -> bool:
        self._show_only(())
        return self._source.clear()

    def show(self, group: Mapping[str, Series]) -> bool:
        columns = _Columns(group)
        data = columns.data()
        blank: list[object] = [math.nan] * len(data[T])
        missing = {name: blank for name in self._source.model.data if name not in data}
        changed = self._source.show(data | missing)
        for key, layer in group.items():
            self._draw(key, layer, columns.looks[key])
        self._show_only(group)
        return changed

    def _draw(self, key: str, layer: Series, look: Look) -> None:
        if key not in self._drawn:
            self._drawn[key] = (self._add(key, layer, look), look)
            return
        renderer, before = self._drawn[key]
        if look != before:
            renderer.glyph.update(**look)
            self._drawn[key] = (renderer, look)

    def _add(self, key: str, layer: Series, look: Look) -> Any:  # noqa: ANN401 - bokeh has no types
        source = {"source": self._source.model, "name": key}
        if not isinstance(layer, Line):
            level = "underlay" if isinstance(layer, Band) else "glyph"  # bands below lines
            return self._figure.varea(x=T, level=level, **source, **look)
        if layer.step:
            return self._figure.step(x=T, mode="after", line_width=2, **source, **look)
        line = self._figure.line(x=T, line_width=2, **source, **look)
        if layer.is_node:
            self._hover.renderers = [*self._hover.renderers, line]
        return line

    def _show_only(self, keys: Iterable[str]) -> None:
        shown = set(keys)
        for key, (renderer, _) in self._drawn.items():
            renderer.visible = key in shown


class _Columns:
    """The columns of one source, each sequence once, and the looks of the layers that refer to them."""

    def __init__(self, group: Mapping[str, Series]) -> None:
        self._x: Sequence[float] = next(iter(group.values())).x
        self._lines: dict[str, Sequence[float]] = {}
        self._edges: dict[str, Sequence[float]] = {}
        self._names: dict[int, str] = {}  # of edges, by their sequence
        self.looks = {key: self._look(key, layer) for key, layer in group.items()}

    def data(self) -> dict[str, list[object]]:
        if self._edges:
            return with_gaps(self._x, self._edges, self._lines)
        return {T: [*self._x], **{name: [*y] for name, y in self._lines.items()}}

    def _look(self, key: str, layer: Series) -> Look:
        match layer:
            case Line():
                self._lines[key] = layer.y
                return {"y": key, "line_color": layer.color, "line_dash": kit.dashes(layer.dash)}
            case Band():
                return {**self._between(key, layer), "fill_color": layer.color, "fill_alpha": BAND_ALPHA}
            case Area():
                hatch: Look = {
                    "hatch_pattern": layer.hatch or "blank", "hatch_color": "#ffffff",
                    "hatch_alpha": HATCH_ALPHA,
                }  # fmt: skip
                return {**self._between(key, layer), "fill_color": layer.color, **hatch}
            case _:
                assert_never(layer)

    def _between(self, key: str, layer: Band | Area) -> Look:
        low = self._edge(f"{key} (low)", layer.low) if len(layer.low) else 0
        return {"y1": low, "y2": self._edge(key, layer.high)}

    def _edge(self, name: str, values: Sequence[float]) -> str:
        edge = self._names.setdefault(id(values), name)
        self._edges[edge] = values
        return edge
