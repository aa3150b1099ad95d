"""How old gradients will be: laws, a played queue of workers, and delays that others measured."""

from __future__ import annotations

import csv
import lzma
from collections import defaultdict
from heapq import heapify, heappop, heappush

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.missing import shared

from dlrover_nb.core.staleness.ages import mean_ages


@given(st.integers(1, 64))
def test_gradients_of_one_worker_and_of_steps_together_are_of_the_newest_version(n: int):
    for overlap in (False, True):
        assert mean_ages(1, overlap=overlap) == 0
        assert mean_ages(n, in_step=True, overlap=overlap) == 0


def played(times: np.ndarray, variation: float, span: int, rng: np.random.Generator) -> list[list[int]]:
    """Return the ages of gradients of each worker, counted as a PS counts them."""
    shape = 1 / variation**2
    queue = [(float(time * rng.uniform()), i) for i, time in enumerate(times)]
    heapify(queue)
    n_update, own = 0, [0] * len(times)
    reads: list[list[int]] = [[] for _ in times]
    ages: list[list[int]] = [[] for _ in times]
    for _ in range(20_000):
        at, i = heappop(queue)
        others = n_update - own[i]
        if len(reads[i]) >= span:
            ages[i].append(others - reads[i][-span])
        n_update, own[i] = n_update + 1, own[i] + 1
        reads[i].append(others)
        heappush(queue, (at + float(times[i] * rng.gamma(shape) / shape), i))
    return ages


@pytest.mark.parametrize("span", [1, 2])
@pytest.mark.parametrize("variation", [0.1, 0.5])
def test_played_workers_have_the_predicted_mean_age_whatever_their_speeds(span: int, variation: float):
    times = np.array([1.0, 1.1, 1.3, 2.9])
    ages = played(times, variation, span, np.random.default_rng(1))
    predicted = float(mean_ages(len(times), overlap=span == 2))
    assert np.concatenate(ages).mean() == pytest.approx(predicted, rel=0.02)
    for of_worker, rate in zip(ages, 1 / times, strict=True):
        assert np.mean(of_worker) == pytest.approx(span * (sum(1 / times) - rate) / rate, rel=0.05)


def measured_delays() -> dict[tuple[str, str], np.ndarray]:
    """Return delays of 8 workers at each step of a run: shape (n_steps, 8)."""
    runs: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    path = shared("data", "async_staleness", "piag_delays.csv.xz")
    with lzma.open(path, "rt") as file:
        for row in csv.reader(file):
            if row[2].isdigit():
                runs[row[0], row[1]].append([float(value) for value in row[3:]])
    return {run: np.array(rows) for run, rows in runs.items()}


def test_delays_that_others_measured_have_the_predicted_mean_age():
    """At each step of these runs the gradients that have arrived are applied, mostly one, on RCV1 two.

    Their workers read the same new version, and so count as one worker.
    """
    for run, delays in measured_delays().items():
        steady = delays[50:]
        has_arrived = steady[1:] != steady[:-1] + 1
        n_per_step = has_arrived.sum() / len(has_arrived)
        predicted = float(mean_ages(8 / n_per_step))
        assert steady[1:][has_arrived].mean() == pytest.approx(predicted, rel=0.02), run
