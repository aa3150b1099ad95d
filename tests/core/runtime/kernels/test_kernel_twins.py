"""A store on the compiled kernel and one on numpy hold the same bits after any sequence of calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import needs_c

from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.runtime.kernels import VARIABLE, maps
from dlrover_nb.core.runtime.store import ParameterStore, StorePart
from dlrover_nb.core.structs.job.job import Averages, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

N_TABLE, N_DENSE = 4000, 7
MODELS = [
    ModelSpec(
        embedding_dim=3,
        hidden=(4,),
        seed=8,
        optimizer=optimizer,
        embedding=embedding,
        n_dense=N_DENSE,
        averages=(Averages(2, 0.1),),
    )
    for optimizer in Optimizer
    for embedding in Embedding
]


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "N_LINE", 4)
        yield


class Twins:
    """The same store on each kernel, and where each sends rows."""

    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.stores = [self.new(name) for name in ("numpy", "c")]
        self.targets = [self.new(name) for name in ("numpy", "c")]
        self.names = [store._kernel.NAME for store in self.stores]

    def new(self, name):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, name)
            store = ParameterStore(self.model, N_TABLE, N_DENSE)
        store.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32))
        return store

    def ids(self, rng, most):
        rows = rng.choice(N_TABLE, rng.integers(0, most), replace=False)
        return rows * 2_000_000_000_000_003 if self.model.embedding is Embedding.HASH else rows

    def push(self, rng):
        ids, rate = self.ids(rng, 300), rng.choice([1.0, 0.3])
        gradients = rng.normal(size=(len(ids), self.model.row_width)).astype(np.float32)
        for store in self.stores:
            store.push(ids, gradients, rate)
            store.push_dense(np.full(N_DENSE, 0.5, np.float32), rate)

    def pull(self, rng):
        ids = self.ids(rng, 1000)
        same(*(store.pull(ids) for store in self.stores))

    def drop(self, rng):
        """Remove rows in steps of any size, after the end of a move: a PS lets none begin in its middle."""
        self.cancel(rng)
        buckets, most = rng.random(N_BUCKET) < rng.choice([0.02, 0.3, 0.9]), int(rng.integers(1, 400))
        for store in self.stores:
            store.begin_drop(buckets)
            while store._rows.remove_some(most):
                pass

    def drop_whole(self, rng):
        buckets = rng.random(N_BUCKET) < 0.1
        assert len({store.drop(buckets) for store in self.stores}) == 1

    def move(self, rng):
        buckets = rng.random(N_BUCKET) < 0.3
        assert len({store.begin_move(buckets) for store in self.stores}) == 1

    def send(self, rng):
        limit = int(rng.integers(0, 200))
        parts = [store.take_pending(limit) for store in self.stores]
        same_parts(*parts)
        for target, part in zip(self.targets, parts, strict=True):
            target.absorb(part)

    def cancel(self, rng):  # noqa: ARG002
        for store in self.stores:
            store.cancel_move()

    def save_and_load(self, rng):
        """Both load what the other one saved."""
        buckets, files = rng.random(N_BUCKET) < 0.7, [self.folder / "numpy", self.folder / "c"]
        sums = [
            ps_checkpoint.write(file, store.export()).sha256
            for file, store in zip(files, self.stores, strict=True)
        ]
        assert sums[0] == sums[1]
        self.stores = [self.new(name) for name in ("numpy", "c")]
        for store, file in zip(self.stores, reversed(files), strict=True):
            store.load(ps_checkpoint.read(file, sums[0]), buckets)

    def check(self):
        for one, other in (self.stores, self.targets):
            same_parts(one.export(), other.export())
            same(one.n_held, other.n_held)
            assert (one.n_row, one.n_pending, one.n_byte) == (other.n_row, other.n_pending, other.n_byte)
            part = one.export()
            same(one.pull(part.ids), part.table[:, : self.model.row_width])
            same(other.pull(part.ids), part.table[:, : self.model.row_width])


def same(one, other):
    np.testing.assert_array_equal(one, other)


def same_parts(one: StorePart, other: StorePart):
    same(one.ids, other.ids)
    same(one.table.view(np.uint32), other.table.view(np.uint32))
    same(np.ascontiguousarray(one.dense).view(np.uint32), np.ascontiguousarray(other.dense).view(np.uint32))


STEPS = ("push",) * 6 + ("pull", "send", "send", "drop", "drop_whole", "move", "cancel", "save_and_load")


@pytest.mark.more
@needs_c
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.optimizer}-{model.embedding}")
@settings(deadline=None, max_examples=8)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=5, max_size=40), seed=st.integers(0, 2**32))
def test_any_sequence_of_calls_leaves_the_same_bits(model, steps, seed, tmp_path_factory):
    rng = np.random.default_rng(seed)
    twins = Twins(model, tmp_path_factory.mktemp("twins"))
    assert twins.names == ["numpy", "c"]
    for step in ("push", *steps):
        getattr(twins, step)(rng)
        twins.check()
