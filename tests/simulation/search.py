"""Runs seeds, and shrinks the schedule of one that fails."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.driver.driver_world import DriverWorld, features

from simulation.brain import schedule as brain
from simulation.brain.audit import BrainAudit
from simulation.brain.world import BrainWorld
from simulation.exchange import schedule as exchange
from simulation.exchange.audit import ExchangeAudit
from simulation.exchange.world import ExchangeWorld
from simulation.external import schedule as external
from simulation.external.audit import ExternalAudit
from simulation.external.world import ExternalWorld
from simulation.own import schedule as own
from simulation.own.audit import OwnAudit
from simulation.own.world import OwnWorld
from simulation.promises import PromiseBrokenError, RefusedError, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from simulation.schedule import Scenario

MEMORY = Path("/dev/shm")  # a disk in memory, where there is one

SCENARIOS: Mapping[str, Callable[[int], Scenario]] = {
    "own": own.scenario,
    "external": external.scenario,
    "elastic": external.elastic_scenario,
    "saving": external.saving_scenario,
    "brain": brain.scenario,
    "exchange": exchange.scenario,
}


def scenario(seed: int, kind: str = "") -> Scenario:
    """Return what a seed stands for; without a kind the seeds take turns."""
    kinds = tuple(SCENARIOS)
    return SCENARIOS[kind or kinds[seed % len(kinds)]](seed)


@cache
def _history() -> bytes:
    """Return an empty history, whose making takes longer than a job."""
    folder = Path(tempfile.mkdtemp(prefix="dn"))
    try:
        world = DriverWorld(folder)
        world.start()
        world.close()
        return (folder / "history.db").read_bytes()
    finally:
        shutil.rmtree(folder)


def run(case: Scenario) -> Verdict:
    """Play one scenario to its end."""
    folder = Path(tempfile.mkdtemp(prefix="dn", dir=MEMORY if MEMORY.is_dir() else None))
    (folder / "history.db").write_bytes(_history())
    try:
        return _played(case, folder)
    finally:
        shutil.rmtree(folder)


def _composed(case: Scenario, folder: Path) -> tuple[Any, Any]:
    """Return the world of a scenario and its auditor."""
    if isinstance(case, external.ExternalScenario):
        world = ExternalWorld(folder, case)
        return world, ExternalAudit(world, case.poison)
    if isinstance(case, brain.BrainScenario):
        cluster = BrainWorld(folder, case)
        cluster.audit = BrainAudit(cluster)
        return cluster, cluster.audit
    if isinstance(case, exchange.ExchangeScenario):
        nodes = ExchangeWorld(folder, case)
        return nodes, ExchangeAudit(nodes)
    assert isinstance(case, own.OwnScenario)
    made = OwnWorld(
        folder,
        features(case.n_train, 40),
        order_seed=case.seed,
        backend=case.backend,
        batch_s=case.batch_s,
        **case.job,
    )
    made.poison, made.broken = set(case.poison), set(case.broken)
    return made, OwnAudit(made, case.poison)


def _played(case: Scenario, folder: Path) -> Verdict:
    world, audit = _composed(case, folder)
    kind = words = ""
    try:
        _play(case, world, audit)
        end = world.end_phase
    except RefusedError:
        end = "refused"
    except PromiseBrokenError as violation:
        end, kind, words = world.end_phase, violation.kind, str(violation)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a find
        end, kind, words = world.end_phase, type(error).__name__, f"{type(error).__name__}: {error}"
    finally:
        world.abandon()
    return Verdict(case.seed, end, world.elapsed_s, kind, words, world.n_excused)


def _play(case: Scenario, world: Any, audit: Any) -> None:
    events = list(case.events)
    while events and events[0].at_s < 0:  # what there is before the job
        events.pop(0).happen(world, audit)
    world.start()
    goes_on = True
    while goes_on:
        audit.after_turn()
        while events and events[0].at_s <= world.elapsed_s and not world.is_over:
            events.pop(0).happen(world, audit)
        goes_on = world.turn_loop()
    audit.at_end()


def kept(case: Scenario, places: Iterable[int]) -> Scenario:
    """Return a scenario with some of its events, named by their places."""
    return replace(case, events=tuple(case.events[place] for place in places))


def shrunk(case: Scenario, kind: str) -> tuple[int, ...]:
    """Return the places of events that are enough for a failure of this kind."""
    places = tuple(range(len(case.events)))
    at = 0
    while at < len(places):
        fewer = places[:at] + places[at + 1 :]
        if run(kept(case, fewer)).kind == kind:
            places = fewer
        else:
            at += 1
    return places


def failures(seeds: Iterable[int], *, limit_s: float, kind: str = "") -> Iterator[tuple[Verdict, str]]:
    """Run seeds for at most so long; yield each verdict and, of one that fails, the command that replays it."""
    logging.disable(logging.CRITICAL)
    end_s = time.monotonic() + limit_s
    for seed in seeds:
        if time.monotonic() > end_s:
            return
        case = scenario(seed, kind)
        verdict = run(case)
        yield verdict, replay(case, verdict.kind, kind) if verdict.kind else ""


def replay(case: Scenario, failure: str, kind: str = "") -> str:
    """Return the command that replays a failure with the fewest events."""
    only = ",".join(map(str, shrunk(case, failure))) or "none"
    return f"make simulate {kind and f'KIND={kind} '}SEED={case.seed} ONLY={only}"
