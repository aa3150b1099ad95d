"""What a person may have meant by a name that is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.basics.nearest import by_words, did_you_mean, nearest

FLAGS = (
    "--workers", "--worker-cpu", "--worker-memory", "--ps", "--beta2", "--budget-total", "--budget-per-hour",
    "--learning-rate",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("--worker", ["--workers"]),
        ("--budget", ["--budget-total", "--budget-per-hour"]),
        ("--lr", ["--learning-rate"]),
        ("--memory", ["--worker-memory"]),
        ("--wrokers", ["--workers"]),
        ("--zzz", []),
        ("", []),
    ],
)
def test_words_that_are_left_out_come_before_letters_that_are_mistyped(name, meant):
    assert nearest(name, FLAGS) == meant


def test_where_nothing_is_near_all_are_named():
    assert did_you_mean("x", ["stop", "start"]) == "choose from stop, start"
    assert did_you_mean("stopp", ["stop", "start"]) == "did you mean stop?"


@given(st.text(), st.lists(st.text()))
def test_of_any_names_at_most_three_known_ones_are_meant(name, known):
    assert set(by_words(name, known)) <= set(nearest(name, known)) <= set(known)
    assert len(nearest(name, known)) <= 3
