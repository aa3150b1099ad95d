"""Every saved chart of any job can be read at any width: no label covers another, and no two ticks say the same."""

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs.random_pictures import picture

from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.svg import ticks
from dlrover_nb.widgets.svg.label_layout import CHAR
from dlrover_nb.widgets.svg.svg_drawing import draw_panel

WIDTHS_PX = (360, 700, 1440, 2560)
SVG = "{http://www.w3.org/2000/svg}"
SLACK_PX = 1.0
START = {"start": 0.0, "middle": -0.5, "end": -1.0}


@dataclass(frozen=True)
class Label:
    """A line of text, and the place that it takes, in px."""

    text: str
    left: float
    right: float
    top: float
    bottom: float
    anchor: str = "start"
    size: float = 10.0

    def covers(self, other: "Label") -> bool:
        return (
            min(self.right, other.right) - max(self.left, other.left) > SLACK_PX
            and min(self.bottom, other.bottom) - max(self.top, other.top) > SLACK_PX
        )


def labels(svg: str) -> list[Label]:
    """Return all text of a drawing; the name of the y axis, which is turned, as the strip that it takes."""
    found = []

    def visit(element, size, anchor, is_turned) -> None:
        size = float(element.get("font-size") or size)
        anchor = element.get("text-anchor") or anchor
        is_turned = is_turned or "rotate" in (element.get("transform") or "")
        if element.tag == f"{SVG}text" and element.text:
            found.append(of_text(element, size, anchor, is_turned))
        for child in element:
            visit(child, size, anchor, is_turned)

    visit(ET.fromstring(svg), 10.0, "start", False)
    return found


def of_text(element, size, anchor, is_turned) -> Label:
    scale = size / 10
    width = len(element.text) * CHAR * scale
    if is_turned:
        return Label(element.text, 13 - 9 * scale, 13 + 3 * scale, 0.0, 0.0)
    x, y = float(element.get("x")) + START[anchor] * width, float(element.get("y"))
    return Label(element.text, x, x + width, y - 9 * scale, y + 3 * scale, anchor, size)


def on_x_axis(found: list[Label]) -> list[str]:
    """Return the ticks below the data: the lowest row of small centered text."""
    rows = [label for label in found if (label.anchor, label.size) == ("middle", 10.0)]
    lowest = max((label.bottom for label in rows), default=0.0)
    return [label.text for label in rows if label.bottom == lowest]


def on_y_axis(found: list[Label]) -> list[str]:
    """Return what stands left of the data: nothing else ends so far to the left."""
    ends = [label for label in found if label.anchor == "end"]
    left = min((label.right for label in ends), default=0.0)
    return [label.text for label in ends if abs(label.right - left) < 0.5]


def panels(name, seed, width):
    snapshot, series = picture(seed)
    drawing = CHARTS[name].drawing(snapshot, series)
    return () if drawing.empty else tuple(replace(panel, width=width) for panel in drawing.panels)


def check(name: str, seed: int, width: int) -> None:
    """Check every panel of a chart of a random job at a width."""
    for panel in panels(name, seed, width):
        tile = draw_panel(panel)
        found = labels(tile.svg)
        for one, other in combinations(found, 2):
            assert not one.covers(other), (one, other)
        for label in found:
            assert label.left >= -SLACK_PX, label
            assert label.right <= width + SLACK_PX, label
            assert label.bottom <= tile.height + SLACK_PX, label
        for texts in (on_x_axis(found), on_y_axis(found)):
            assert len(set(texts)) == len(texts), Counter(texts).most_common(1)


@for_each("width", WIDTHS_PX)
@for_each("name", CHARTS)
def test_no_label_covers_another_and_no_two_ticks_say_the_same(name, width):
    check(name, WIDTHS_PX.index(width), width)


@pytest.mark.more
@for_each("name", CHARTS)
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from(WIDTHS_PX))
def test_so_it_is_of_any_job(name, seed, width):
    check(name, seed, width)


@settings(deadline=None)
@given(st.floats(-1e7, 1e7), st.floats(1e-6, 1e7), st.integers(2, 10))
def test_ticks_of_numbers_differ(low, span, n):
    if span < 1e-9 * abs(low):
        return
    texts = [text for _, text in ticks.ticks(low, low + span, n)]
    assert len(set(texts)) == len(texts)


@given(st.floats(0, 1e6), st.floats(0.5, 1e7), st.integers(2, ticks.N_TIME_TICKS))
def test_ticks_of_time_differ_and_are_few(low, span, n):
    texts = [text for _, text in ticks.time_ticks(low, low + span, n)]
    assert len(set(texts)) == len(texts) <= n + 1


@given(st.lists(st.floats(1e-6, 1e9), unique=True, min_size=1, max_size=10))
def test_ticks_at_given_values_differ(values):
    texts = [text for _, text in ticks.values(values)]
    assert len(set(texts)) == len(texts)
    assert all(float(a) < float(b) for a, b in pairwise(text for _, text in ticks.values(sorted(values))))
