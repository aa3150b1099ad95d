from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlrover_nb.core.memory import COPIES_WITH_PEERS, MemoryUse, Report, most_by_end
from dlrover_nb.core.memory.laws import LAWS
from dlrover_nb.core.memory.right_size import LEAST_MIB, MARGIN, ceiling_mib
from dlrover_nb.core.pareto.space import LESS, ps_memory
from dlrover_nb.core.structs.plan.resources import Role, RolePlan

END = 10**9
laws = st.sampled_from([(law, p) for law in LAWS for p in law.parameters])


def course(law, parameter, u, *, base, grown):
    """Memory at shares `u` of the job: `base`, and `grown` by the end."""
    shape = law.shape(np.append(u, 1.0), np.asarray(parameter))
    return base + grown * shape[:-1] / shape[-1]


@st.composite
def measured(draw):
    """Reports of a node under one law and plan, and the greatest of those that follow."""
    law, parameter = draw(laws)
    base = draw(st.floats(50, 4000))
    of = {"base": base, "grown": draw(st.floats(0, 20)) * base}
    n, until = draw(st.integers(8, 300)), draw(st.floats(0.03, 0.9))
    begun = draw(st.floats(0, 0.9)) * until
    rng, scatter = np.random.default_rng(draw(st.integers(0, 10**6))), draw(st.floats(0, 0.03)) * base
    u = np.linspace(begun, until, n + 1)[1:]
    level = course(law, parameter, u, **of) + rng.normal(0, scatter, n)
    later = course(law, parameter, np.linspace(until, 1, 200), **of) + rng.normal(0, scatter, 200)
    rows = zip(u, np.maximum(level, 0), strict=True)
    reports = [Report(i * 10.0, round(share * END), float(mib)) for i, (share, mib) in enumerate(rows)]
    return reports, float(later.max())


@pytest.mark.release
@settings(max_examples=400, deadline=None)
@given(measured())
def test_a_lowered_request_is_never_below_what_a_node_holds_later(case):
    reports, peak = case
    most = most_by_end(reports, END)
    assume(most is not None)
    use = MemoryUse(Role.WORKER, 1, max(r.memory_mib for r in reports), most)
    assert use.wanted_mib(1) >= peak


@settings(max_examples=100, deadline=None)
@given(laws, st.floats(0.05, 0.9), st.integers(8, 100))
def test_without_noise_no_law_passes_the_ceiling(law, until, n):
    u = np.linspace(0, until, n + 1)[1:]
    level = course(*law, u, base=300.0, grown=1000.0)
    found = ceiling_mib(u, level, 1.0)
    assert found is not None
    assert found >= 1300.0 - 1e-6


def test_the_ceiling_of_a_line_is_its_end_and_that_of_a_level_the_level():
    u = np.linspace(0, 0.5, 41)[1:]
    assert ceiling_mib(u, 100 + 1000 * u, 1.0) == pytest.approx(1100, rel=0.01)
    assert ceiling_mib(u, np.full(40, 700.0), 1.0) == pytest.approx(700)
    assert ceiling_mib(u, 700 - 100 * u, 1.0) == pytest.approx(700, rel=0.01)  # it was there before
    assert ceiling_mib(u[:7], 100 + 1000 * u[:7], 1.0) is None
    assert ceiling_mib(np.full(40, 0.5), 100 + 1000 * u, 1.0) is None  # no work between the reports


@pytest.mark.parametrize(
    ("span_s", "part"), [(59.0, 0.5), (600.0, 0.019), (600.0, 0.0)], ids=["short", "early", "no work"]
)
def test_too_little_measured_tells_nothing(span_s, part):
    reports = [Report(span_s * i / 20, round(part * END * i / 20), 500.0) for i in range(21)]
    assert most_by_end(reports, END) is None
    assert most_by_end([], END) is None


@given(
    own=st.floats(0, 5000),
    shared=st.floats(1, 1e6),
    n_copy=st.sampled_from([0, 1, COPIES_WITH_PEERS]),
    least=st.integers(LEAST_MIB, 4096),
    now=st.integers(64, 200_000),
    n=st.integers(1, 64),
)
def test_parameter_servers_get_what_they_need_by_their_number_and_less_only_where_it_is_clearly_less(
    own, shared, n_copy, least, now, n
):
    use = MemoryUse(Role.PS, 4, 0.0, own, shared, n_copy=n_copy, least_mib=least)
    given_mib, wanted = float(ps_memory(np.array([n]), now, use.share)[0]), use.wanted_mib(n)
    assert given_mib >= MARGIN * use.held_by(n) + n_copy * shared / n
    assert given_mib >= min(least, now)
    assert given_mib >= now or given_mib <= LESS * now
    assert abs(given_mib - max(wanted, now)) <= 64 or abs(given_mib - wanted) <= 64
    assert use.held_by(n) >= use.held_by(n + 1)


def test_where_nothing_is_known_parameter_servers_keep_what_they_have():
    share = MemoryUse(Role.PS, 1, 0.0, 0.0, 0.0).share
    assert ps_memory(np.array([1.0, 7.0]), 5000, share).tolist() == [5000, 5000]


def test_less_memory_is_explained_in_numbers(words):
    use = MemoryUse(Role.PS, 2, 900.0, 500.0, 4000.0, n_copy=1)
    mib = use.wanted_mib(4)
    assert mib == math.ceil((1.2 * 1500 + 1000) / 64) * 64
    assert use.words(RolePlan(2, 1.0, 16384), RolePlan(4, 1.0, mib)) == words
