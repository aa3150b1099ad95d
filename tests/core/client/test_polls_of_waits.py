"""How often a wait asks a master: soon at first, and never so often that it keeps the master busy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.client.handle import LEAST_POLL_S, POLL_S, POLL_SHARE, poll_s


@settings(deadline=None)
@given(st.floats(0, 600))
def test_an_end_is_seen_late_by_a_share_of_the_wait_and_never_by_more_than_before(end_s: float) -> None:
    at_s, n_poll = 0.0, 0
    while at_s < end_s:
        at_s, n_poll = at_s + poll_s(at_s), n_poll + 1
    late_s = at_s - end_s
    assert late_s <= max(LEAST_POLL_S, POLL_SHARE * end_s) + 1e-9
    assert late_s <= POLL_S + 1e-9
    assert n_poll <= end_s / POLL_S + 30, "in the long run as rare as the longest pause"
