"""The view of a rehearsal says from how many workers on the AUC falls, and what it does not know."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from support.jobs.rehearsals import rehearsal

from dlrover_nb.core.rehearsal.ways import WayName
from dlrover_nb.widgets.past.rehearsal import marks, point_rows, rehearsal_view
from dlrover_nb.widgets.svg.label_layout import Label, Room, marker_box, text_box
from dlrover_nb.widgets.svg.marks import Points, has_rows
from dlrover_nb.widgets.svg.plot_labels import Axes, level


def _text(result):
    return " ".join(rehearsal_view(result).text().split())


def test_it_names_the_workers_from_which_on_the_auc_falls_and_by_how_much():
    text = _text(rehearsal(auc_per_update=-0.001, noise=0.0003))
    assert "With asp, 2 workers cost AUC: -0.00" in text or "With asp, 8 workers cost AUC: -0.00" in text
    assert "32 change it by -0.03" in text
    assert "400 updates" in text


def test_it_says_where_no_change_is_sure():
    text = _text(rehearsal(auc_per_update=0.0, noise=0.001))
    assert "does not surely differ" in text
    assert "cost AUC" not in text


def test_each_way_has_its_sentence_and_its_rows():
    result = rehearsal(ways=(WayName.ASP, WayName.GBA))
    assert {row.way for row in point_rows(result)} == {"asp", "gba"}
    text = _text(result)
    assert "With asp, " in text
    assert "With gba, " in text


def test_intervals_hold_the_change_and_are_wider_with_fewer_seeds():
    wide, narrow = (point_rows(rehearsal(n_seed=n))[0] for n in (2, 5))
    for row in (wide, narrow):
        assert row.auc_low < row.auc < row.auc_high
        assert row.loss_low < row.loss < row.loss_high
    assert wide.auc_high - wide.auc_low > narrow.auc_high - narrow.auc_low


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"holds_out_own": False}, "holds out no rows"),
        ({"n_update": 60}, "With 32 workers each has fewer than 4 updates"),
        ({"n_seed": 3, "n_seed_asked": 5}, "interrupted after 3 of 5 seeds"),
    ],
)
def test_it_says_what_to_be_careful_about(changes, words):
    assert words in _text(rehearsal(**changes))
    assert words not in _text(rehearsal())


def test_it_says_where_training_diverged():
    result = rehearsal()
    broken = tuple(replace(run, loss=math.nan) if run.delay.n_worker == 32 else run for run in result.runs)
    text = _text(replace(result, runs=broken))
    assert "Runs with 32 workers diverged" in text
    assert "diverged" not in _text(result)


def test_the_saved_form_has_the_picture_and_its_numbers():
    html = rehearsal_view(rehearsal()).mimebundle()["text/html"]
    assert "<svg" in html
    assert "AUC by workers" in html
    assert "AUC by staleness" in html
    assert "Loss by staleness" in html


def test_each_picture_has_points_and_the_curve_a_band():
    for panel in marks(rehearsal()).panels:
        assert sum(has_rows(layer) for layer in panel.layers) >= 2


def test_the_picture_has_the_name_at_the_end_of_the_line_that_is_free():
    """All points of the line itself are at few workers, so at its left end."""
    picture = rehearsal_view(rehearsal()).mimebundle()["text/html"]
    first = min(float(x) for x in re.findall(r'<text x="([\d.]+)"[^>]*>2</text>', picture))
    (at,) = re.findall(r'<text x="([\d.]+)"[^>]*text-anchor="end">one worker</text>', picture)
    assert float(at) > first + 100


def test_the_line_of_one_worker_is_named_beside_the_points_not_on_them():
    """The first point lies at the left end of the line, where such names stand otherwise."""
    plot = next(panel for panel in marks(rehearsal()).panels if panel.title == "AUC by workers")
    points = [layer for layer in plot.layers if isinstance(layer, Points)]
    n_worker = max(max(layer.x) for layer in points)
    low = min(min(layer.low) for layer in points)
    axes = Axes((0.0, n_worker), (low, max(0.0, *(max(layer.high) for layer in points))))
    for width in (300.0, 600.0, 1000.0):
        room = Room((width, width), (180.0, 180.0))
        ((rule, spot),) = level(plot, axes, room)
        text = text_box(Label(rule.label, 0.0, axes.share_y(rule.at), ()), spot)
        for layer in points:
            for x, y in zip(layer.x, layer.y, strict=True):
                assert text.is_clear_of(marker_box(axes.share_x(x), axes.share_y(y), layer.size), room)
