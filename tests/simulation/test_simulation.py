"""Seeds that pass, and mends that it notices when they are taken out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from driver_world import PlayedBackend, plan

from dlrover_nb.core.master.own.nodes import fencing
from dlrover_nb.core.rundir import job_file
from dlrover_nb.core.rundir.log_frames import LogContent, read_log
from simulation.schedule import BusyMachine, Event, Scenario, scenario
from simulation.search import Verdict, failures, run

if TYPE_CHECKING:
    from collections.abc import Iterator

N_SEED, AT_ONCE = 40, 5
HOUR_PARTS, PART_S = 18, 600.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log nothing, as a full disk would hold the tests' own output."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def told(verdicts: Iterator[tuple[Verdict, str]]) -> list[str]:
    return [f"seed {verdict.seed}: {verdict.words}; {command}" for verdict, command in verdicts if command]


def job(*events: Event, n_train: int = 188, **fields: object) -> Scenario:
    given = {"plan": plan(2, 3, worker_cpu=0.25, ps_cpu=0.2), "n_epoch": 2, "shard_batches": 4} | fields
    return Scenario(0, n_train, given, PlayedBackend, frozenset(), frozenset(), events)


@pytest.mark.parametrize("first", range(0, N_SEED, AT_ONCE))
def test_these_seeds_keep_every_promise(first: int) -> None:
    assert not told(failures(range(first, first + AT_ONCE), limit_s=600.0))


@pytest.mark.release
@pytest.mark.parametrize("part", range(HOUR_PARTS))
def test_hours_of_seeds_keep_every_promise(part: int) -> None:
    first = 1_000_000 * (part + 1)
    assert not told(failures(range(first, first + 1_000_000), limit_s=PART_S))


def test_a_seed_is_a_reproduction() -> None:
    assert run(scenario(14)) == run(scenario(14))


def test_a_damaged_log_that_is_taken_for_a_torn_tail_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_file, "read_log", lambda data, start: LogContent(read_log(data, start).entries))
    found = (verdict for verdict, _ in failures(range(30, 60), limit_s=600.0) if verdict.kind)
    assert next(found).kind == "rows were trained twice"


def test_a_time_out_that_counts_against_rows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = job(BusyMachine(2.0, 12.0), BusyMachine(14.1, 12.0), heartbeat_timeout_s=3.0, n_train=300)
    assert not run(busy).kind
    take_back = fencing._open
    monkeypatch.setattr(
        fencing, "_open", lambda state, fences, at_s, **_: take_back(state, fences, at_s, crashed=True)
    )
    assert run(busy).kind == "healthy rows are in quarantine"
