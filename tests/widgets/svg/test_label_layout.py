from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.widgets.svg.label_layout import (
    Label,
    Room,
    around,
    at_ends,
    in_rows,
    marker_box,
    place,
    text_box,
)
from dlrover_nb.widgets.svg.marks import Orientation, Plot, Points, Rule
from dlrover_nb.widgets.svg.plot_labels import MOST_ROWS, Axes, level, of_markers, upright

shares = st.floats(0.0, 1.0)
ranges = st.tuples(st.floats(120, 500), st.floats(0, 900)).map(lambda r: (r[0], r[0] + r[1]))
spots = st.one_of(st.floats(2, 8).map(around), st.just(at_ends()), st.integers(1, MOST_ROWS).map(in_rows))
labels = st.lists(
    st.builds(Label, st.text("abc 0123", min_size=1, max_size=30), shares, shares, spots), max_size=14
)
markers = st.lists(st.builds(marker_box, shares, shares, st.floats(2, 8)), max_size=8)


def edges(box, width, height):
    """Return left, right, top and bottom in px at one size."""
    x, y = box.x * width, box.y * height
    return x + box.left, x + box.right, y + box.top, y + box.bottom


def overlap(a, b):
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


@settings(deadline=None)
@given(labels, ranges, ranges, markers, shares, shares)
def test_no_two_labels_overlap_and_each_is_within_the_plot_at_any_size(given_, width, height, around_, a, b):
    room = Room(width, height)
    chosen = place(given_, room, around_)
    w, h = width[0] + a * (width[1] - width[0]), height[0] + b * (height[1] - height[0])
    boxes = [edges(text_box(label, spot), w, h) for label, spot in zip(given_, chosen, strict=True) if spot]
    for one, other in combinations(boxes, 2):
        assert not overlap(one, other)
    for left, right, top, bottom in boxes:
        assert left >= -1e-6
        assert right <= w + 1e-6
        assert top >= -1e-6
        assert bottom <= h + 1e-6


@given(labels.filter(bool), ranges, ranges)
def test_a_label_is_left_out_only_where_others_need_the_room(given_, width, height):
    first = given_[0]
    alone = place([first], Room(width, height))
    assert place(given_, Room(width, height))[:1] == alone


def test_a_plot_with_room_keeps_every_label():
    room = Room((250, 1200), (120, 220))
    far = [Label("knee", x, 0.5, around(4)) for x in (0.2, 0.5, 0.8)]
    assert None not in place(far, room)


@settings(deadline=None)
@given(st.lists(shares, min_size=1, max_size=6, unique=True), ranges)
def test_the_line_of_a_plan_never_crosses_the_name_of_another(at, width):
    rules = tuple(Rule(x, f"{i}w x 0.5 + 1p") for i, x in enumerate(at))
    rows = upright(Plot("t", "d", "x", "y", rules), (0.0, 1.0), width)
    placed = [(rule, spot) for rule, spot in zip(rows.rules, rows.spots, strict=True) if spot]
    for rule, spot in placed:
        label = Label(rule.label, rule.at, 1.0, ())
        left, right, _, bottom = edges(text_box(label, spot), width[0], 14.0 * rows.n_row)
        for other, stem in placed:
            x, top = other.at * width[0], 14.0 * rows.n_row + stem.dy
            crosses = left < x < right and top < bottom - 3
            assert other is rule or not crosses


def test_close_limits_are_named_on_different_sides():
    rules = tuple(Rule(v, f"limit of {v}", Orientation.HORIZONTAL) for v in (500.0, 505.0))
    told = level(Plot("t", "d", "x", "y", rules), Axes((0, 1), (0, 1000)), Room((240, 1100), (110, 220)))
    assert len({(spot.dy, spot.side) for _, spot in told if spot}) == 2


def test_names_of_two_layers_of_markers_know_of_each_other():
    one = Points([0.5], [0.5], labels=["best value"])
    [[first], [second]] = of_markers([one, one], Axes((0, 1), (0, 1)), Room((240, 1100), (110, 220)))
    assert first is not None
    assert second is not None
    assert first != second


@given(
    st.lists(st.tuples(shares, shares, st.floats(0.0, 0.3)), min_size=1, max_size=8),
    st.floats(0.2, 0.8),
    st.tuples(st.floats(240, 1000), st.floats(110, 250)),
)
def test_the_name_of_a_level_line_is_on_no_point_and_no_interval_where_a_spot_is_free(points, at, size):
    x, y, half = zip(*points, strict=True)
    low, high = [[v + sign * h for v, h in zip(y, half, strict=True)] for sign in (-1, 1)]
    plot = Plot(
        "t", "d", "x", "y", (Rule(at, "one worker", Orientation.HORIZONTAL), Points(x, y, low=low, high=high))
    )
    axes, room = Axes((0.0, 1.0), (0.0, 1.0)), Room(*((px, px) for px in size))
    ((_, chosen),) = level(plot, axes, room)
    label = Label("one worker", 0.0, axes.share_y(at), at_ends())
    ink = [
        (px * size[0] - 3.5, px * size[0] + 3.5, (1 - top) * size[1] - 3.5, (1 - bottom) * size[1] + 3.5)
        for px, bottom, top in zip(x, low, high, strict=True)
    ]

    def is_free(spot, apart=0.0):
        left, right, top, bottom = edges(text_box(label, spot), *size)
        box = (left - apart, right + apart, top - apart, bottom + apart)
        return not any(overlap(box, each) for each in ink)

    assert is_free(chosen) or not any(is_free(spot, apart=4.0) for spot in at_ends())
