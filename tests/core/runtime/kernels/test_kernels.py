from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runtime.kernel_world import every_kernel, needs_c  # noqa: F401 - repeats tests on each kernel

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime import kernels
from dlrover_nb.core.runtime.kernels import compiled, kernel, numpy_kernel
from dlrover_nb.core.runtime.kernels.rule import Corrections, Rule
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer

laws = settings(deadline=None, max_examples=25)
RULES = [Rule.of(ModelSpec(optimizer=optimizer)) for optimizer in Optimizer]
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.optimizer)
SEEDS = st.integers(0, 2**32)
WIDTHS = st.integers(1, 40)
IDS = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1)), max_size=400)


def corrections_of(rule):
    return Corrections(rule).up_to(50) if rule.optimizer is Optimizer.ADAM else None


def some_rows(rng, rule, n, width):
    """Rows as a slab holds them: sums and squares not below 0, counts whole."""
    table = np.abs(rng.normal(size=(n, width + rule.row_state(width)))).astype(np.float32)
    if rule.optimizer is Optimizer.ADAM:
        table[:, -1] = rng.integers(0, 40, n)
    return table


@needs_c
@rules
@laws
@given(seed=SEEDS, n=st.integers(0, 60), width=WIDTHS)
def test_both_kernels_update_rows_to_the_same_bits(rule, seed, n, width):
    rng = np.random.default_rng(seed)
    numpys = some_rows(rng, rule, 80, width)
    c = numpys.copy()
    slots = rng.permutation(80)[:n].astype(np.int32)
    gradients = rng.normal(size=(n, width)).astype(np.float32)
    numpy_kernel.update_rows(numpys, slots, gradients, rule, corrections_of(rule))
    compiled.Compiled().update_rows(c, slots, gradients, rule, corrections_of(rule))
    np.testing.assert_array_equal(c, numpys)


@needs_c
@rules
@laws
@given(seed=SEEDS, n=st.integers(0, 300))
def test_both_kernels_update_a_dense_slice_to_the_same_bits(rule, seed, n):
    rng = np.random.default_rng(seed)
    numpys = np.abs(rng.normal(size=(1 + rule.dense_state, n))).astype(np.float32)
    if rule.optimizer is Optimizer.ADAM:
        numpys[-1] = rng.integers(0, 40, n)
    c, gradient = numpys.copy(), rng.normal(size=n).astype(np.float32)
    numpy_kernel.update_dense(numpys, gradient, rule, corrections_of(rule))
    compiled.Compiled().update_dense(c, gradient, rule, corrections_of(rule))
    np.testing.assert_array_equal(c, numpys)


@needs_c
@laws
@given(ids=IDS, width=WIDTHS, seed=st.integers(-(2**70), 2**70))
def test_both_kernels_begin_rows_with_the_same_bits(ids, width, seed):
    ids = np.array(ids, np.int64)
    expected = numpy_kernel.initial_rows(ids, width, seed)
    np.testing.assert_array_equal(compiled.Compiled().initial_rows(ids, width, seed), expected)
    slots, table = np.full(len(ids), -1, np.int32), np.ones((3, width + 2), np.float32)
    slots[::3] = 2
    numpys, c = np.empty((2, len(ids), width), np.float32)
    numpy_kernel.gather(table, slots, ids, numpys, seed)
    compiled.Compiled().gather(table, slots, ids, c, seed)
    np.testing.assert_array_equal(c, numpys)


@laws
@given(batches=st.lists(IDS, max_size=6), hashed=st.booleans())
def test_a_map_is_a_dictionary(batches, hashed):
    limit = 2**63 if hashed else 1000
    slots, expected = kernel().hash_map(100) if hashed else kernel().direct_map(limit), {}
    held = np.zeros(2400, np.int64)
    for batch in batches:
        new = list(dict.fromkeys(i % limit for i in batch if i % limit not in expected))
        first = len(expected)
        held[first : first + len(new)] = new
        slots.insert(np.array(new, np.int64), first, held)
        expected.update((i, first + n) for n, i in enumerate(new))
        asked = [*expected, *(i + 1 for i in expected if i + 1 < limit), 0]
        found = slots.find(np.array(asked, np.int64), held)
        assert found.tolist() == [expected.get(i, -1) for i in asked]


def test_a_hash_map_takes_memory_by_its_ids_and_many_ids_at_once():
    ids = np.arange(0, 300_000 * 2**40, 2**40)
    slots = kernel().hash_map(len(ids))
    assert slots.n_byte <= 1 << 18
    slots.insert(ids, 0, ids)
    assert slots.n_byte <= 16 * len(ids)
    np.testing.assert_array_equal(slots.find(ids, ids), np.arange(len(ids)))
    assert (slots.find(ids + 1, ids) == -1).all()


@laws
@given(ids=IDS)
def test_distinct_ids_come_in_order_of_appearance_and_lead_back(ids):
    rows, inverse = kernel().distinct(np.array(ids, np.int64))
    assert rows.tolist() == list(dict.fromkeys(ids))
    assert rows[inverse].tolist() == ids
    assert (rows.dtype, inverse.dtype) == (np.int64, np.int64)


@laws
@given(ids=IDS, width=st.integers(1, 40), seed=SEEDS)
def test_weighted_rows_are_added_as_numpy_adds_them(ids, width, seed):
    random = np.random.default_rng(seed)
    out = random.normal(size=(len(ids) + 3, width)).astype(np.float32)
    places = random.permutation(len(out))[: len(ids)].astype(np.int64)
    rows = random.normal(size=(2 * len(ids), width)).astype(np.float32)[::2]  # not side by side
    weight, expected = np.float32(random.uniform(0, 2)), out.copy()
    expected[places] += weight * rows
    kernel().add_rows(out, places, rows, weight)
    np.testing.assert_array_equal(out, expected)


@laws
@given(ids=IDS, n_owner=st.integers(1, 5), seed=SEEDS)
def test_grouped_rows_lie_by_owner_in_their_order_and_lead_back(ids, n_owner, seed):
    owner = np.random.default_rng(seed).integers(0, n_owner, 256)
    rows, inverse = kernel().distinct(np.array(ids, np.int64))
    grouped, places, counts = kernel().grouped(rows, inverse, owner, n_owner)
    by_owner = [rows[owner[rows % 256] == one] for one in range(n_owner)]
    np.testing.assert_array_equal(grouped, np.concatenate(by_owner))
    assert counts.tolist() == [len(mine) for mine in by_owner]
    assert grouped[places].tolist() == ids


@laws
@given(beta1=st.floats(0, 0.99), beta2=st.floats(0, 0.9999), count=st.integers(1, 10**6))
def test_corrections_are_those_of_adam_for_any_count(beta1, beta2, count):
    rule = replace(RULES[-1], optimizer=Optimizer.ADAM, beta1=beta1, beta2=beta2)
    table = Corrections(rule).up_to(count)
    step, root = table[min(count, len(table) - 1)]
    assert step == pytest.approx(rule.learning_rate / (1 - beta1**count), rel=1e-6)
    assert root == pytest.approx((1 - beta2**count) ** -0.5, rel=1e-6)


def test_the_environment_chooses_the_kernel(monkeypatch, every_kernel, error_words):  # noqa: F811 - the fixture
    assert every_kernel == kernel().NAME
    monkeypatch.delenv(kernels.VARIABLE)
    assert ("numpy" if compiled.flaw() else "c") == kernel().NAME
    monkeypatch.setenv(kernels.VARIABLE, "fortran")
    with error_words(InvalidValueError):
        kernel()


@needs_c
def test_a_library_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setattr(compiled, "_VERSION", -1)
    assert compiled.flaw().startswith("is of another release: expected version -1, got ")


def test_without_a_compiler_numpy_serves_and_a_wish_for_c_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "LIBRARY", tmp_path / "_kernel.so")
    kernels._named.cache_clear()
    try:
        monkeypatch.delenv(kernels.VARIABLE)
        assert kernel().NAME == "numpy"
        monkeypatch.setenv(kernels.VARIABLE, "c")
        with pytest.raises(InvalidValueError, match="was not built"):
            kernel()
    finally:
        kernels._named.cache_clear()


def at_an_odd_byte(array):
    """Return the same array as a frame of a message may hold it."""
    memory = np.empty(array.nbytes + 1, np.uint8)
    memory[1:] = array.view(np.uint8).ravel()
    return memory[1:].view(array.dtype).reshape(array.shape)


@needs_c
def test_c_gets_arrays_that_begin_at_any_byte_where_it_can_read_them():
    odd = at_an_odd_byte(np.arange(5))
    assert not odd.flags.aligned
    assert compiled._packed(odd, np.int64).flags.aligned
    np.testing.assert_array_equal(compiled._packed(odd, np.int64), np.arange(5))
