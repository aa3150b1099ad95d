from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler import Pace, Straggler
from dlrover_nb.core.structs.plan.resources import Role

times = st.floats(1e-3, 1e3)


def found(**changes) -> Straggler:
    given_ = {"node": "worker-1", "role": Role.WORKER, "pace": Pace.TRANSIENT, "iter_s": 3.0, "peers_s": 2.0}
    return Straggler(**{**given_, "window_s": 300.0, "since_s": 10.0, "rule": "ratio", **changes})


@given(st.sampled_from(Role), st.sampled_from(Pace), times, times)
def test_a_finding_is_written_and_read_back(role, pace, iter_s, peers_s):
    told = found(role=role, pace=pace, iter_s=iter_s, peers_s=peers_s)
    assert from_json(to_json(told), Straggler) == told
    assert told.ratio == pytest.approx(iter_s / peers_s)


@for_each("field", ["iter_s", "peers_s", "window_s"])
@for_each("value", [0.0, -1.0, math.nan, math.inf])
def test_times_that_are_none_are_refused(field, value):
    with pytest.raises(InvalidValueError, match=field):
        found(**{field: value})
