"""Runs seeds, and shrinks the schedule of one that fails."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from driver_world import DriverWorld, features

from simulation.audit import Audit, PromiseBrokenError, RefusedError
from simulation.schedule import Scenario, scenario
from simulation.world import SimulatedWorld

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MEMORY = Path("/dev/shm")  # a disk in memory, where there is one


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a simulation ended.

    Parameters
    ----------
    end
        The phase in which the job ended, or "refused".
    simulated_s
        Time that passed in it.
    kind, words
        What was wrong; empty: nothing.
    n_repeated
        Rows that were trained again since the master could not know of the first time.
    """

    seed: int
    end: str
    simulated_s: float
    kind: str = ""
    words: str = ""
    n_repeated: int = 0


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


def _played(case: Scenario, folder: Path) -> Verdict:
    world = SimulatedWorld(
        folder, features(case.n_train, 40), order_seed=case.seed, backend=case.backend, **case.job
    )
    world.poison, world.broken = set(case.poison), set(case.broken)
    audit = Audit(world, case)
    kind = words = ""
    try:
        _play(case, world, audit)
        end = str(world.now.phase)
    except RefusedError:
        end = "refused"
    except PromiseBrokenError as violation:
        end, kind, words = str(world.now.phase), violation.kind, str(violation)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a find
        end, kind, words = str(world.now.phase), type(error).__name__, f"{type(error).__name__}: {error}"
    finally:
        world.abandon()
    return Verdict(case.seed, end, world.elapsed_s, kind, words, world.account.n_excused)


def _play(case: Scenario, world: SimulatedWorld, audit: Audit) -> None:
    events = list(case.events)
    world.start()
    goes_on = True
    while goes_on:
        audit.after_turn()
        while events and events[0].at_s <= world.elapsed_s and not world.now.phase.is_final:
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


def failures(seeds: Iterable[int], *, limit_s: float) -> Iterator[tuple[Verdict, str]]:
    """Run seeds for at most so long; yield each verdict and, of one that fails, the command that replays it."""
    logging.disable(logging.CRITICAL)
    end_s = time.monotonic() + limit_s
    for seed in seeds:
        if time.monotonic() > end_s:
            return
        case = scenario(seed)
        verdict = run(case)
        yield verdict, replay(case, verdict.kind) if verdict.kind else ""


def replay(case: Scenario, kind: str) -> str:
    """Return the command that replays a failure with the fewest events."""
    only = ",".join(map(str, shrunk(case, kind))) or "none"
    return f"make simulate SEED={case.seed} ONLY={only}"
