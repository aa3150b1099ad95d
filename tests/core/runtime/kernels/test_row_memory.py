"""What a row takes: arrays that grow in place, and pieces of a map at any number of rows."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest
from support.cases import for_each
from support.runtime.kernel_world import pieces_of

from dlrover_nb.core.runtime.kernels import kernel, maps, reserved
from dlrover_nb.core.runtime.kernels.reserved import Reserved
from dlrover_nb.core.runtime.kernels.rule import Rule
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer

MIB = 1 << 20
MODEL = ModelSpec(embedding_dim=16, optimizer=Optimizer.ADAGRAD, embedding=Embedding.HASH)


def held_mib(array):
    """Return the memory behind an array; that of the process is also of the tests before, and of other threads."""
    start = array.__array_interface__["data"][0]
    found, is_its = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            low, high = (int(end, 16) for end in span.groups())
            is_its = low < start + array.nbytes and start < high
        elif is_its and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found / 1024


def test_reserved_rows_take_memory_when_touched_and_return_it():
    rows = Reserved(1 << 22, (64,), np.float32)
    assert held_mib(rows.array) < 10
    for n in range(0, 400_000, 1000):
        rows.reach(n + 1000)
        rows.array[n : n + 1000] = n
    assert rows.n_byte == 400_000 * 256
    assert 95 < held_mib(rows.array) < 110
    rows.give_back(40_000)
    assert held_mib(rows.array) < 20
    assert rows.n_byte == 40_000 * 256
    assert (rows.array[:40_000, 0] == np.arange(40_000) // 1000 * 1000).all()
    rows.reach(400_000)
    assert not rows.array[40_016:400_000].any()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_more_rows_than_were_reserved_are_copied(dtype):
    rows = Reserved(10, (3,), dtype)
    for n in range(1, 5000, 37):
        rows.reach(n)
        rows.array[n - 1] = 1
    assert rows.array.sum() == 3 * len(range(1, 5000, 37))


def test_where_the_system_refuses_address_space_less_is_reserved(monkeypatch):
    whole, asked = mmap.mmap, []

    def mapped(file, size, **options):
        asked.append(size)
        if size > 8 * MIB:
            raise OSError(12, "Cannot allocate memory")
        return whole(file, size, **options)

    monkeypatch.setattr(reserved.mmap, "mmap", mapped)
    rows = Reserved(1 << 30, (4,), np.float32)
    assert len(rows.array) == 8 * MIB // 16
    rows.reach(1000)
    rows.array[:1000] = 5
    with pytest.raises(OSError, match="allocate"):
        rows.reach(MIB)
    assert (rows.array[:1000] == 5).all()


def n_piece_of(n_row):
    """Return into how many pieces `n_row` rows are split, were ids spread evenly, and the entries of the directory."""
    pieces, depth, shares, early = 0, 3, [(8, 3)], pieces_of(kernel().hash_map(1)).early
    while shares:
        entries, of = shares.pop()
        if n_row * entries / 2**of <= early:
            pieces, depth = pieces + 1, max(depth, of)
            continue
        while entries < maps._LEAST_RANGE:
            entries, of = 2 * entries, of + 1
        low = 2 * entries // 5
        shares += [(low, of), (entries - low, of)]
    return pieces, 2**depth


def map_bytes(n_row):
    pieces, entries = n_piece_of(n_row)
    return 64 * maps.N_LINE * pieces + 4 * entries + 24 * pieces


@pytest.mark.parametrize("n_row", [10_000, 50_000, 200_000, 700_000])
def test_the_calculation_is_that_of_a_real_map(n_row):
    slots, held = kernel().hash_map(n_row), np.arange(n_row)
    for start in range(0, n_row, 5000):
        n_piece = len(pieces_of(slots).n_row)
        slots.insert(held[start : start + 5000], start, held)
        assert len(pieces_of(slots).n_row) <= n_piece + 1 + 5000 // maps._ROWS_PER_SPLIT
    np.testing.assert_array_equal(slots.find(held, held), held)
    assert len(pieces_of(slots).n_row) == pytest.approx(n_piece_of(n_row)[0], rel=0.15, abs=2)
    assert slots.n_byte <= 1.2 * map_bytes(n_row) + 300_000


@for_each("n_row", [int(n) for n in np.geomspace(2e6, 100e6, 40)])
def test_a_row_of_dimension_16_with_adagrad_takes_at_most_160_bytes(n_row):
    width = MODEL.row_width
    payload = 4 * (width + Rule.of(MODEL).row_state(width))
    assert payload == 136
    assert payload + 8 + 2 + map_bytes(n_row) / n_row <= 158
