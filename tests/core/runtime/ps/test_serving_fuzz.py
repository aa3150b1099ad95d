"""Any requests in any order at a PS: each is answered or refused, and no sender can end the process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.runtime.node_world import FEATURES, MODEL, SPEC
from support.runtime.played_router import PlayedRouter

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.runtime.exchange.push_pull import (
    Arrive,
    ChunkTaken,
    DenseReady,
    DescriptorName,
    Exchange,
    Exchanged,
    ExchangeRefused,
    FinishedRound,
    Form,
    GradientsKept,
    InitDense,
    Join,
    KeepGradients,
    Leave,
    MoveChunk,
    NotMember,
    OfferSlab,
    Proceed,
    SlabTaken,
    StaleEpoch,
)
from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.ps.serving import Serving
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.exchange_spec import Precision
from dlrover_nb.core.structs.job.spec_choices import Sync

N_DENSE = dense_parameter_count(MODEL, len(FEATURES.categorical), len(FEATURES.numeric))
NAMES = st.sampled_from(["w0", "w1", ""])
NUMBERS = st.integers(-1, 3) | st.integers(-(2**62), 2**62)
STEPS = st.integers(0, 100)
EPOCHS = st.sampled_from([1] * 7 + [7])
ROUNDS = st.tuples(NUMBERS, st.lists(st.tuples(NAMES, NUMBERS), max_size=3)).map(
    lambda drawn: (drawn[0], tuple(drawn[1]))
)
FORMS = st.builds(
    Form, st.sampled_from(Precision), st.sampled_from(Precision), st.floats(), st.floats(), st.booleans()
)
REQUESTS = st.one_of(
    st.builds(Join, EPOCHS, NUMBERS, NAMES),
    st.builds(Leave, EPOCHS, NUMBERS, NAMES),
    st.builds(Arrive, EPOCHS, NUMBERS, NAMES, NUMBERS, st.integers(1, 9)),
    st.builds(KeepGradients, EPOCHS, NUMBERS, NAMES, NUMBERS, st.booleans(), st.booleans()),
    st.builds(OfferSlab, NUMBERS, st.builds(DescriptorName, NUMBERS, NUMBERS), NUMBERS, NAMES, NUMBERS),
    st.builds(Exchange, EPOCHS, STEPS, answer_at=NUMBERS),
    st.builds(InitDense, EPOCHS),
    st.builds(MoveChunk, NUMBERS, NAMES, NUMBERS, NUMBERS, st.booleans()),
    st.builds(Exchange, EPOCHS, STEPS, form=FORMS),
    st.tuples(EPOCHS, STEPS, st.none() | ROUNDS),  # an exchange, whose round may be one that cannot be
)
GOOD_IDS = hnp.arrays(np.int64, st.integers(0, 3), elements=st.integers(0, 40), unique=True)
IDS = GOOD_IDS | hnp.arrays(np.int64, st.integers(0, 3), elements=st.integers(-2, 2**62))
ODD = hnp.arrays(
    st.sampled_from(["<f4", "<i8", "|u1", "<f2", "<u2"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
ANSWERS = (
    ChunkTaken,
    DenseReady,
    Exchanged,
    NotMember,
    GradientsKept,
    Proceed,
    ExchangeRefused,
    SlabTaken,
    StaleEpoch,
)


@st.composite
def pushes(draw: st.DrawFn) -> list[np.ndarray]:
    """Draw the arrays of an exchange, right in most of their shapes."""
    rows = draw(IDS)
    width = draw(st.sampled_from([MODEL.row_width] * 7 + [1]))
    gradients = np.ones((len(rows), width), np.float32)
    dense = np.ones(draw(st.sampled_from([N_DENSE] * 5 + [0, 3])), np.float32)
    return [rows, gradients, dense, draw(IDS)]


def frames_of(request: object, arrays: list[np.ndarray]) -> list[bytes]:
    """Encode a request; a round is encoded past its own checks, as a liar would."""
    if isinstance(request, tuple):
        epoch, step, done = request
        plain = encode(Exchange(epoch, step), arrays)
        if done is not None:
            liar = object.__new__(FinishedRound)
            object.__setattr__(liar, "number", done[0])
            object.__setattr__(liar, "contributors", done[1])
            plain = encode(Exchange(epoch, step, liar), arrays)
        return [bytes(frame) for frame in plain]
    return [bytes(frame) for frame in encode(request, arrays)]


@pytest.mark.more
@pytest.mark.parametrize("sync", list(Sync))
@settings(deadline=None, max_examples=50)
@given(
    requests=st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b"]),
            REQUESTS,
            pushes() | pushes() | st.lists(ODD, max_size=4),
        ),
        max_size=8,
    )
)
def test_no_request_ends_a_ps(sync: Sync, requests: list[tuple[bytes, object, list[np.ndarray]]]) -> None:
    router = PlayedRouter()
    slabs = AttachedSlabs()
    serving = Serving(router, TimeAccounting(SystemClock()), "ps-0", replace(SPEC, sync=sync), slabs)  # type: ignore[arg-type]
    serving.open(ParameterStore(MODEL, FEATURES.n_table_row, N_DENSE), 1)
    router.take(b"a", frames_of(InitDense(1), [np.zeros(N_DENSE, np.float32)]))
    serving.serve()
    for identity, request, arrays in requests:
        n_array = {KeepGradients: 3, InitDense: 0, Join: 0, Leave: 0, Arrive: 0, OfferSlab: 0}.get(
            type(request), 4
        )
        router.take(identity, frames_of(request, arrays[:n_array]))
        serving.serve()
    for _, *answer in router.sent:
        assert isinstance(decode(answer)[0], ANSWERS)


@pytest.mark.parametrize("n", [5, 1 << 40])
@pytest.mark.parametrize("place", range(4))
def test_rows_without_numbers_are_refused_however_many_a_message_names(place: int, n: int) -> None:
    """They take no byte of it, and their answer would take all memory."""
    router, slabs = PlayedRouter(), AttachedSlabs()
    serving = Serving(router, TimeAccounting(SystemClock()), "ps-0", SPEC, slabs)  # type: ignore[arg-type]
    serving.open(ParameterStore(MODEL, FEATURES.n_table_row, N_DENSE), 1)
    router.take(b"a", frames_of(InitDense(1), [np.zeros(N_DENSE, np.float32)]))
    serving.serve()
    arrays = [np.empty(0, kind) for kind in (np.int64, np.float32, np.float32, np.int64)]
    arrays[place] = np.empty((n, 0, 0), arrays[place].dtype)
    router.take(b"a", frames_of(Exchange(1, 1), arrays))
    serving.serve()
    assert isinstance(decode(router.sent[-1][1:])[0], ExchangeRefused)
