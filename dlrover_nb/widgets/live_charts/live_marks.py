"""Markers and rules of a live plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets.live_charts.sources import Source
from dlrover_nb.widgets.marks import Orientation, Points, Rule
from dlrover_nb.widgets.palette import INK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_SCALE = {"circle": 2.25, "square": 2.75, "triangle": 3.0, "diamond": 3.0}  # Bokeh's size for our radius
_FONT = {"text_font_size": "10px"}
_LATE = 0.7  # of the axis: a label that begins further right would be cut off
_EARLY = 0.25  # a label that ends further left would be
_STEP = 0.06  # vertical offset of labels of neighboring rules


class LivePoints:
    """One layer of markers with its own source, since markers are few and change together."""

    def __init__(
        self,
        figure: Any,  # noqa: ANN401 - bokeh has no types
        hover: Any,  # noqa: ANN401 - as above
        layer: Points,
        on_tap: Callable[[object], None] | None,
    ) -> None:
        self._source = Source(**_columns(layer))
        self._values: Sequence[object] = ()
        self._on_tap = on_tap
        self._draw(figure, hover, layer)
        self._source.model.selected.on_change("indices", self._tapped)

    def _draw(self, figure: Any, hover: Any, layer: Points) -> None:  # noqa: ANN401 - bokeh has no types
        source = {"source": self._source.model, "level": "annotation"}
        columns = self._source.model.data
        if "low" in columns:
            figure.segment(
                "x", "low", "x", "high", **source, line_color=layer.color, line_alpha=0.5,
                nonselection_alpha=0.3,
            )  # fmt: skip
        markers = figure.scatter(
            "x", "y", **source, marker=layer.shape, size=_SCALE[layer.shape] * layer.size,
            line_color=layer.color, fill_color="#ffffff" if layer.hollow else layer.color,
            line_width=2 if layer.hollow else 1, nonselection_alpha=0.7,
        )  # fmt: skip
        if "words" in columns:
            hover.renderers = [*hover.renderers, markers]
        if "name" in columns:
            figure.text(
                "x", "y", "name", **source, **_FONT, text_color=INK, text_align="align", x_offset="dx",
                y_offset="dy", nonselection_alpha=1.0,
            )  # fmt: skip

    def show(self, layer: Points) -> bool:
        """Show the markers."""
        self._values = layer.values
        columns = _columns(layer)
        return self._source.show({name: columns.get(name, []) for name in self._source.model.data})

    def _tapped(self, attr: str, old: list[int], new: list[int]) -> None:  # noqa: ARG002 - bokeh's signature
        if new and self._on_tap and new[0] < len(self._values):
            self._on_tap(self._values[new[0]])


def _columns(layer: Points) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {"x": [*layer.x], "y": [*layer.y]}
    if layer.low:
        columns |= {"low": [*layer.low], "high": [*layer.high]}
    if layer.titles:
        columns["words"] = [*layer.titles]
    if layer.labels:
        left_end = min(layer.x) + _EARLY * (max(layer.x) - min(layer.x))
        to_right = [x <= left_end for x in layer.x]
        columns |= {
            "name": [*layer.labels],
            "align": ["left" if right else "right" for right in to_right],
            "dx": [9 if right else -8 for right in to_right],
            "dy": [12 if right else -4 for right in to_right],
        }
    return columns


class LiveRules:
    """The rules of one figure: one source for those across, one for those along."""

    def __init__(self, figure: Any) -> None:  # noqa: ANN401 - bokeh has no types
        self._figure = figure
        self._upright: Source | None = None  # None: there was no rule yet
        self._level: Source | None = None

    def show(self, rules: Sequence[Rule], x: tuple[float, float], y: tuple[float, float]) -> bool:
        """Show these rules and no others, where the axes have these ends."""
        upright = [r for r in rules if r.along is Orientation.VERTICAL]
        level = [r for r in rules if r.along is Orientation.HORIZONTAL]
        if upright and self._upright is None:
            self._upright = self._draw_upright(Source(**_upright(upright, x, y)))
        if level and self._level is None:
            self._level = self._draw_level(Source(**_level(level, x)))
        changed = [
            self._upright is not None and self._upright.show(_upright(upright, x, y)),
            self._level is not None and self._level.show(_level(level, x)),
        ]
        return any(changed)

    def _draw_upright(self, source: Source) -> Source:
        model = {"source": source.model}
        self._figure.segment(
            "x", "low", "x", "high", **model, line_color="color", line_dash="dash", line_width=1.5
        )
        self._figure.text(
            "x", "high", "label", **model, **_FONT, text_color=INK, text_align="align", x_offset="dx",
            y_offset=11,
        )  # fmt: skip
        return source

    def _draw_level(self, source: Source) -> Source:
        model = {"source": source.model}
        self._figure.hspan("y", **model, line_color="color", line_dash="dash", line_width=1.5)
        self._figure.text("x", "y", "label", **model, **_FONT, text_color="color", x_offset=4, y_offset=-3)
        return source


def _upright(
    rules: Sequence[Rule], x: tuple[float, float], y: tuple[float, float]
) -> dict[str, list[object]]:
    """Heights step down from rule to rule, so that labels of close ones do not cover each other."""
    late = [r.at > x[0] + _LATE * (x[1] - x[0]) for r in rules]
    return {
        "x": [r.at for r in rules],
        "low": [y[0] for _ in rules],
        "high": [y[1] - _STEP * (i % 3) * (y[1] - y[0]) for i in range(len(rules))],
        "label": [r.label for r in rules],
        "align": ["right" if is_late else "left" for is_late in late],
        "dx": [-3 if is_late else 3 for is_late in late],
        "color": [r.color for r in rules],
        "dash": [r.dash for r in rules],
    }


def _level(rules: Sequence[Rule], x: tuple[float, float]) -> dict[str, list[object]]:
    return {
        "x": [x[0] for _ in rules],
        "y": [r.at for r in rules],
        "label": [r.label for r in rules],
        "color": [r.color for r in rules],
        "dash": [r.dash for r in rules],
    }
