"""Parquet files with large row groups give the same rows, from a file that nobody ever sees."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrover_nb.core.data.formats import parquet, spill
from dlrover_nb.core.data.formats.parquet import ParquetSource

if TYPE_CHECKING:
    from pathlib import Path

N_ROW, GROUP = 1000, 300
NAMES = ("x", "site", "maybe")
RANGES = st.lists(st.tuples(st.integers(0, N_ROW), st.integers(0, 350)), min_size=1, max_size=8)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let groups of this size count as large; return the folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(spill.tempfile, "tempdir", str(folder))
    monkeypatch.setattr(spill, "PIECE_ROWS", 64)
    monkeypatch.setattr(spill, "LARGE_ROWS", 100)
    return folder


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    rng = np.random.default_rng(5)
    site = [f"s{i}" for i in rng.integers(0, 90, N_ROW)]
    maybe = [None if i % 3 == 0 else i for i in range(N_ROW)]
    table = pa.table({"x": rng.normal(size=N_ROW), "site": site, "maybe": maybe})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=GROUP)
    return table


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ranges=RANGES)
def test_any_ranges_are_those_of_the_file(
    table: pa.Table, tmp_path: Path, small_pieces: Path, ranges: list[tuple[int, int]]
) -> None:
    reads = ParquetSource(tmp_path / "rows.parquet")
    for start, length in ranges:
        stop = min(start + length, N_ROW)
        read = reads.read(start, stop, NAMES).to_pydict()
        assert read == table.slice(start, stop - start).to_pydict()
    assert not list(small_pieces.iterdir())


def test_a_large_group_is_decoded_once(
    table: pa.Table, tmp_path: Path, small_pieces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, decoded = ParquetSource(tmp_path / "rows.parquet"), []
    decode = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        parquet.pq.ParquetFile,
        "read_row_group",
        lambda file, group, **options: decoded.append(group) or decode(file, group, **options),
    )
    for start in (0, 900, 320, 10, 610, 330, 950, 0):
        reads.read(start, start + 40, NAMES)
    assert sorted(decoded) == [0, 1, 2, 3]


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize("way", ["full", "broken"])
def test_without_room_it_reads_as_before(
    table: pa.Table, tmp_path: Path, small_pieces: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "full":
        monkeypatch.setattr(spill.shutil, "disk_usage", lambda _: Usage(1, 1, 0))
    else:
        monkeypatch.setattr(spill.tempfile, "tempdir", str(tmp_path / "gone"))
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(spill.shutil, "disk_usage", lambda _: usage)
    reads = ParquetSource(tmp_path / "rows.parquet")
    for start in (0, 900, 320, 10):
        assert reads.read(start, start + 40, NAMES).to_pydict() == table.slice(start, 40).to_pydict()
