"""How many more nodes fit: a placement exists for so many, and for one more there is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, n_more, n_more_of_each
from dlrover_nb.core.structs.plan.resources import Need

shapes = st.builds(
    NodeShape,
    st.sampled_from([0.5, 1.0, 4.0, 16.0]),
    st.sampled_from([512, 4096, 65_536]),
    st.integers(1, 4),
    st.integers(0, 2),
)
nodes = st.builds(
    Need, st.sampled_from([0.25, 0.5, 1.0, 3.0]), st.sampled_from([128, 1024, 8192]), st.integers(0, 1)
)
MOST = 40


@given(st.lists(shapes, min_size=1, max_size=3), st.lists(nodes, max_size=6), nodes)
def test_as_many_fit_as_are_counted_and_no_more(machines, present, need):
    capacity = Capacity(tuple(machines))
    n = n_more(capacity, present, need, at_most=MOST)
    assert fits(capacity, [*present, *[need] * n]) or n == 0
    if n < MOST:
        assert not fits(capacity, [*present, *[need] * (n + 1)])


@given(st.lists(shapes, min_size=1, max_size=3), st.lists(nodes, max_size=6), nodes, st.integers(0, 5))
def test_a_limit_is_all_that_a_limit_changes(machines, present, need, most):
    capacity = Capacity(tuple(machines))
    assert n_more(capacity, present, need, at_most=most) <= most
    if n_more(capacity, present, need, at_most=MOST) >= most:
        assert n_more(capacity, present, need, at_most=most) == most


@given(
    st.lists(shapes, min_size=1, max_size=3),
    st.lists(nodes, max_size=6),
    st.lists(st.tuples(nodes, st.integers(0, MOST)), max_size=5),
)
def test_kinds_that_are_counted_together_take_no_room_from_each_other(machines, present, kinds):
    capacity = Capacity(tuple(machines))
    alone = [n_more(capacity, present, need, at_most=most) for need, most in kinds]
    assert n_more_of_each(capacity, present, kinds) == alone
