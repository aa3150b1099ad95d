"""Parts of an iteration: they sum to it, and one that a change cannot touch takes as long as before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_explain import ANALYSIS, FEWER, MORE, NOW, SAMPLES, analysed

from dlrover_nb.core.planner.predictions.completion import parts, with_host
from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.decisions.candidates import HOST, REST

SECONDS = st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=2)
ITER_S = st.floats(1e-3, 2.0)
TERMS = ("gradients", "sync")


@given(now=SECONDS, now_iter_s=ITER_S, other=SECONDS, iter_s=ITER_S)
def test_parts_sum_to_the_iteration_and_the_present_plan_has_no_rest(now, now_iter_s, other, iter_s):
    rows = np.array([now, other])
    here, there = parts(TERMS, rows, np.array([now_iter_s, iter_s]), (rows[0], now_iter_s))
    for each, whole_s in ((here, now_iter_s), (there, iter_s)):
        assert sum(p.seconds for p in each) == pytest.approx(whole_s)
        assert sum(p.share for p in each) == pytest.approx(1)
    assert here[-1].term == REST
    assert here[-1].seconds == pytest.approx(0, abs=1e-9)


@given(now=SECONDS, now_iter_s=ITER_S, sync=st.floats(1e-6, 1.0), iter_s=ITER_S)
def test_a_term_that_a_change_cannot_touch_does_not_shrink_by_it(now, now_iter_s, sync, iter_s):
    rows = np.array([now, [now[0], sync]])  # the gradients' column is the same in both
    here, there = parts(TERMS, rows, np.array([now_iter_s, iter_s]), (rows[0], now_iter_s))
    assert there[0].seconds == pytest.approx(here[0].seconds)


def test_workers_that_compute_as_before_are_not_said_to_compute_less():
    now = {part.term: part.seconds for part in ANALYSIS.current.breakdown}
    for other in (FEWER, MORE):
        after = {part.term: part.seconds for part in ANALYSIS.candidate(other).breakdown}
        assert after["gradients"] == pytest.approx(now["gradients"])
        assert REST in after


@given(share=st.floats(0.1, 0.9))
def test_other_work_on_the_host_is_a_part_beside_them(share):
    own = ANALYSIS.candidate(MORE).breakdown
    shared = with_host(own, 1 - share)
    assert shared[-1].term == HOST
    assert shared[-1].share == pytest.approx(share)
    assert sum(part.share for part in shared) == pytest.approx(1)
    assert [part.seconds for part in shared[:-1]] == [part.seconds for part in own]


def test_every_plan_of_a_busy_host_has_the_same_parts():
    analysis = analysed(SAMPLES, host=HostLoad(0.4, 0.6, 1.0, 3.0))
    names = {tuple(part.term for part in c.breakdown) for c in analysis.front.candidates}
    assert {tuple(part.term for part in analysis.candidate(NOW).breakdown)} == names
    assert {name[-2:] for name in names} == {(REST, HOST)}
