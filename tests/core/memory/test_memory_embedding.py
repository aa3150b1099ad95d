from __future__ import annotations

import numpy as np
import pytest

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.memory import embedding_mib, forecast_rows

N = np.arange(500.0, 20_001, 500)


def test_a_row_is_its_values_and_those_of_each_slot():
    assert embedding_mib(2**20, dim=1, n_slot=0) == 4.0
    assert embedding_mib(2**20, dim=16, n_slot=2) == 4 * 16 * 3


@pytest.mark.parametrize("exponent", [0.5, 0.73, 0.9])
def test_keys_that_follow_a_power_law_are_foreseen(exponent):
    found = forecast_rows(N, np.round(30 * N**exponent), 80_000)
    assert found.mid == pytest.approx(30 * 80_000**exponent, rel=0.01)
    assert found.low <= found.mid <= found.high


def test_each_table_has_its_own_law():
    keys = np.stack([200 * -np.expm1(-N / 2000), 3 * N**0.9], axis=1)
    found = forecast_rows(N, keys, 80_000)
    assert found.mid == pytest.approx(200 + 3 * 80_000**0.9, rel=0.01)


def test_a_table_whose_keys_are_all_known_stays():
    found = forecast_rows(N, np.full(len(N), 12.0), 80_000)
    assert found.mid == pytest.approx(12, abs=0.5)


def test_few_reports_are_not_enough():
    assert forecast_rows(N[:3], N[:3], 80_000) is None


@pytest.mark.parametrize(
    ("rows", "words"),
    [(N[::-1], "fewer"), (N[:-1], "one row a report"), (np.zeros((len(N), 0)), "one row a report")],
)
def test_impossible_counts_are_refused(rows, words):
    with pytest.raises(InvalidValueError, match=words):
        forecast_rows(N, rows, 80_000)


@pytest.mark.parametrize(
    "bad", [{"n_row": -1, "dim": 1}, {"n_row": 1, "dim": 0}, {"n_row": np.nan, "dim": 1}]
)
def test_impossible_sizes_are_refused(bad):
    with pytest.raises(InvalidValueError):
        embedding_mib(**bad)
