import math
import xml.etree.ElementTree as ET
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs.builders import HOSTILE

from dlrover_nb.widgets.svg import marks, svg, ticks

reals = st.floats(-1e7, 1e7, allow_nan=False)
ys = st.lists(st.one_of(reals, st.just(math.nan)), min_size=1, max_size=30)


def texts(xml: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(xml).iter() if e.tag.endswith("}text")]


@settings(deadline=None, max_examples=60)
@given(ys, st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]), max_size=20))
def test_any_data_and_any_label_give_well_formed_svg(y, label):
    x = [float(i) for i in range(len(y))]
    layers = (
        marks.Line(x, y, label=label),
        marks.Band(x, y, y),
        marks.Points(x, y, low=y, high=y, titles=[label] * len(y)),
        marks.Rule(0.5, label),
        marks.Rule(1.0, label, marks.Orientation.HORIZONTAL),
    )
    root = ET.fromstring(svg.draw(marks.Plot(label, label, label, label, layers)).svg)
    assert root.get("role") == "img"
    assert root[0].tag.endswith("title")
    assert root[1].tag.endswith("desc")


def test_hostile_text_cannot_become_markup():
    out = svg.draw(
        marks.Plot(
            HOSTILE, HOSTILE, HOSTILE, HOSTILE, (marks.Rule(1, HOSTILE), marks.Line([0], [1], label=HOSTILE))
        )
    ).svg
    assert "<script" not in out
    assert HOSTILE in texts(out)


def test_nan_breaks_a_line_in_two():
    out = svg.draw(marks.Plot("t", "d", "x", "y", (marks.Line([0, 1, 2, 3, 4], [1, 2, math.nan, 2, 1]),))).svg
    path = next(e.get("d") for e in ET.fromstring(out).iter() if e.get("stroke-width") == "1.7")
    assert path.count("M") == 2


def test_labels_of_close_rules_stand_in_rows_and_never_overlap():
    rules = tuple(marks.Rule(at, f"plan number {at}") for at in (10.0, 11.0, 12.0))
    out = svg.draw(marks.Plot("t", "d", "x", "y", (marks.Line([0, 100], [0, 1]), *rules), x_is_time=True)).svg
    places = {
        e.text: e.get("y")
        for e in ET.fromstring(out).iter()
        if (e.text or "").startswith("plan") and e.get("y")
    }
    assert len(places) == 3
    assert len(set(places.values())) == 3


@settings(deadline=None)
@given(reals, st.floats(1e-3, 1e6), st.integers(2, 10))
def test_ticks_lie_inside_the_axis_at_equal_steps(low, span, n):
    at = [value for value, _ in ticks.ticks(low, low + span, n)]
    assert len(at) <= n + 1
    slack = 1e-6 * max(span, abs(low))
    assert all(low - slack <= v <= low + span + slack for v in at)
    steps = [b - a for a, b in pairwise(at)]
    assert all(math.isclose(s, steps[0], rel_tol=1e-3, abs_tol=slack) for s in steps)


@for_each(
    ("value", "step", "text"),
    [(0.25, 0.05, "0.25"), (20_000, 10_000, "20k"), (12_500, 500, "12.5k"), (3, 1, "3")],
)
def test_tick_labels_have_the_digits_of_their_step(value, step, text):
    assert ticks.label(value, step) == text


def test_time_ticks_read_as_clocks_do():
    assert [label for _, label in ticks.time_ticks(0, 300)] == [
        "0 min",
        "1 min",
        "2 min",
        "3 min",
        "4 min",
        "5 min",
    ]
    assert [label for _, label in ticks.time_ticks(0, 20)][:2] == ["0 s", "5 s"]
    assert ticks.time_ticks(0, 4 * 3600)[-1][1] == "4:00 h"
