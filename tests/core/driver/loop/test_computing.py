"""Fits and advice in a process of their own: the same bits, whatever happens to the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
from support.driver.real_job import plan
from support.plans.replayed import replay
from support.virtual_time import ManualClock
from support.waiting import LIMIT_S, until

from dlrover_nb.core.controller.plans.bound_policy import BoundPolicy
from dlrover_nb.core.controller.plans.questions import Question
from dlrover_nb.core.driver.loop import compute_process, computing
from dlrover_nb.core.driver.loop.compute_process import answer
from dlrover_nb.core.driver.loop.computing import Computing
from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.planner.policies.policy import PolicyContext
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY, JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample
from dlrover_nb.core.structs.views.events import Computed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.driver.real_job import Job

    from dlrover_nb.core.controller.plans.questions import Answer

ONE, TWO = (ResourcePlan(RolePlan(n, 0.5, 1024), RolePlan(1, 0.5, 512)) for n in (1, 2))
SPEEDS = ((ONE, 9_000.0), (TWO, 16_000.0))


class Asker:
    """In place of a controller's reviews and of a loop: asks questions, and keeps what comes back."""

    def __init__(self, policy: object = POLICIES[DEFAULT_POLICY]) -> None:
        self.question: Question | None = None
        self.policy, self.n_node = policy, computing.LEAST_NODES
        self.answers: list[Answer] = []
        self.events: list[Computed] = []
        self.commands: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.computing = Computing(
            "asked",
            reviews=lambda: self,
            n_node=lambda: self.n_node,
            emit=self.emit,
            put=self.put,
            now_s=lambda: 1.0,
        )

    def hand_over(self, known: Answer) -> None:
        self.answers.append(known)

    def emit(self, event: Computed) -> None:
        self.events.append(event)
        self.question = None

    def put(self, command: Callable[[], object]) -> bool:
        self.commands.put(command)
        return True

    def ask(self, number: int) -> Question:
        samples = tuple(ProfileSample(float(i), 2.0, p, 512, v + i) for p, v in SPEEDS for i in range(5))
        capacity = Capacity((NodeShape(4, 16_000),))
        asked = Situation(JobSpec("x"), capacity, 100_000, 16, ONE, samples, 10_000_000)
        decide = BoundPolicy(self.policy, PlannerSettings(), PolicyContext())  # type: ignore[arg-type]  # any object, to see it fail
        self.question = question = Question(number, asked, decide, None)
        self.computing.attend()
        return question

    def receive(self) -> Computed:
        self.commands.get(timeout=LIMIT_S)()
        return self.events[-1]


def children() -> list[psutil.Process]:
    """Return the processes that compute for this one, as far as they have begun."""
    found = []
    for child in psutil.Process().children():
        try:
            if compute_process.__name__ in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture
def asker() -> Iterator[Asker]:
    made = Asker()
    yield made
    made.computing.close()
    assert not children()


@pytest.mark.more
def test_a_process_computes_the_same_to_the_last_bit(asker: Asker) -> None:
    question = asker.ask(1)
    assert asker.receive() == Computed(1.0, 1)
    [process] = children()
    assert process.environ()["OPENBLAS_NUM_THREADS"] == "1"  # the matrices are small: more threads only wait
    [known], own = asker.answers, answer(question)
    assert known.known == own.known
    assert known.known is not None
    assert (known.analysis.front, known.analysis.curves) == (own.analysis.front, own.analysis.curves)
    assert np.array_equal(known.analysis.cost, own.analysis.cost)
    assert {"front", "curves", "deadline"} <= vars(known.analysis).keys()  # nothing is left to the loop


def test_the_loop_of_a_small_job_needs_no_process(asker: Asker) -> None:
    asker.n_node = computing.LEAST_NODES - 1
    asker.ask(1)
    assert (asker.events, asker.answers, children()) == ([Computed(1.0, 1)], [], [])


@pytest.mark.more
def test_a_process_that_is_killed_before_or_while_it_computes_is_replaced(asker: Asker) -> None:
    asker.ask(1)
    asker.receive()
    [first] = children()
    first.kill()
    asker.ask(2)
    assert asker.receive() == Computed(1.0, 2)
    [second] = children()
    second.suspend()  # it takes the question, and dies with it
    asker.ask(3)
    second.kill()
    assert asker.receive() == Computed(1.0, 3)
    assert len(asker.answers) == 3
    assert children() not in ([first], [second])


@pytest.mark.more
def test_what_cannot_be_computed_elsewhere_says_why(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    asker.policy = lambda *_: None  # a function of no module
    asker.ask(1)
    assert "pickle" in asker.receive().error
    asker.policy = POLICIES[DEFAULT_POLICY]
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    asker.ask(2)
    assert "/no/such/python" in asker.receive().error
    monkeypatch.setattr(sys, "executable", "/bin/false")
    asker.ask(3)
    assert asker.receive().error.startswith("its process for that has ended (exit code")
    monkeypatch.undo()
    asker.ask(4)
    assert asker.receive() == Computed(1.0, 4)


@pytest.mark.more
def test_an_answer_that_takes_too_long_is_not_waited_for(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker.ask(1)
    asker.receive()
    children()[0].suspend()
    asker.ask(2)
    monkeypatch.setattr(computing, "LIMIT_S", -1.0)
    asker.computing.attend()
    assert "no answer within" in asker.receive().error


def test_an_answer_is_waited_for_as_long_as_the_limit_says(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, words
) -> None:
    clock, given_up = ManualClock(), list[str]()
    monkeypatch.setattr(asker.computing, "_now_s", clock.now_s)
    monkeypatch.setattr(asker.computing, "_start", lambda _: None)  # it computes for ever
    monkeypatch.setattr(asker.computing._process, "give_up", given_up.append)
    asker.ask(1)
    clock.advance(60.0)
    asker.computing.attend()
    assert not given_up
    clock.advance(0.1)
    asker.computing.attend()
    assert given_up == [words]


def test_it_ends_with_the_process_that_asks() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", compute_process.__name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    output, _ = process.communicate(timeout=LIMIT_S)
    assert (output, process.returncode) == (b"", 0)


@pytest.mark.release
def test_a_real_job_whose_process_is_killed_trains_on_and_can_be_replayed(
    start: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "LEAST_NODES", 1)
    monkeypatch.setattr(computing, "LIMIT_S", LIMIT_S)
    job = start(plan=plan(1, 1), mode=Mode.SUGGEST, n_epoch=2_000)
    [child] = until(children)
    os.kill(child.pid, signal.SIGKILL)
    job.until(lambda now: now.proposals and now.front)
    assert not job.story_has("computes fits and advice itself")
    job.driver.stop("ada", "seen")
    end = job.until_end()
    assert end.phase is JobPhase.STOPPED, end.message
    assert not children()
    events = list(read_events(job.folder))
    assert any(isinstance(event, Computed) for event in events)
    again = replay(events)
    assert (again.story(), again.view().proposals) == (end.story, end.proposals)
    assert again.view().front == end.front
