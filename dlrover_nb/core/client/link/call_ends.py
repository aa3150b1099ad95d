"""A link to a job's master in another process: both ends of a call.

A client calls methods (`core.client.link.protocols`). Where the master is another process, `CallLink` makes a
record of `core.client.link.calls` of each method call, a subclass sends it (to a Ray actor, or over HTTP),
and in the master's process `CallHandler` calls the driver's method for the record. Both are in one module,
because a new call changes both.

Actor methods called by name were rejected for Ray: each call was then written a second time, and a client of
another release got an attribute error, or a record that it could not unpickle.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, assert_never

from dlrover_nb.core import errors
from dlrover_nb.core.client.link.calls import (
    ANSWERS,
    CALLS,
    Allot,
    AskExplain,
    AskLogs,
    AskModel,
    AskOffer,
    AskSeries,
    AskSnapshot,
    AskSummary,
    AskWeigh,
    Choose,
    Decide,
    Done,
    Failed,
    LearnCurves,
    Lines,
    NotBegun,
    SnapshotReply,
    Stop,
    Unchanged,
    Weights,
)
from dlrover_nb.core.client.link.protocols import MasterLink
from dlrover_nb.core.errors import BackendError, DlroverError, WireError
from dlrover_nb.core.rundir.bundle import pack_checkpoint
from dlrover_nb.core.structs.decisions.decisions import Decision
from dlrover_nb.core.structs.decisions.query_answers import Explanation
from dlrover_nb.core.structs.plan.offers import JobOffer, NoOffer
from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardChoice
from dlrover_nb.core.structs.views.snapshot import SeriesChunk
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from dlrover_nb.core.client.link.calls import Answer, Call
    from dlrover_nb.core.structs.decisions.query_answers import LogLine, Weighed
    from dlrover_nb.core.structs.plan.offers import Allotment, Offer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Served(MasterLink, Protocol):
    """What `CallHandler` calls: a driver, or the last state of a job that ended."""

    def summary(self) -> JobSummary:
        """Return the line of the job in a list of jobs."""
        ...


class CallLink(ABC):
    """A `MasterLink` that makes a record of each call; subclasses send it to the master."""

    def __init__(self) -> None:
        self._reply: SnapshotReply | None = None  # the newest, cached

    @abstractmethod
    def send(self, call: Call) -> Answer:
        """Send a call to the master and return its answer.

        A call that is not among `calls.ONCE` may be sent again when its answer was lost.

        Raises
        ------
        BackendError
            When the master cannot be reached.
        """

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job."""
        last = self._reply
        answer = self.send(AskSnapshot(last.tag if last else ""))
        if last is not None and isinstance(answer, Unchanged):
            return last.snapshot
        self._reply = reply = expect(SnapshotReply, answer)
        return reply.snapshot

    def summary(self) -> JobSummary:
        """Return the line of the job in a list of jobs."""
        return expect(JobSummary, self.send(AskSummary()))

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        return expect(SeriesChunk, self.send(AskSeries(cursor)))

    def decide(self, decision: Decision) -> Decision:
        """Submit a decision."""
        return expect(Decision, self.send(Decide(decision)))

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Return for each plan its predicted effect, and why a decision for it would be refused now."""
        return expect(Weights, self.send(AskWeigh(plans))).weighed

    def explain(self, proposal: str | None) -> Explanation:
        """Return why a proposal was made."""
        return expect(Explanation, self.send(AskExplain(proposal)))

    def offer(self) -> Offer:
        """Return the plans that the job could use, for a choice among jobs; or why it takes no part."""
        answer = self.send(AskOffer())
        return answer if isinstance(answer, NoOffer | WaitingOffer) else expect(JobOffer, answer)

    def allot(self, allotment: Allotment) -> None:
        """Say what the job may plan with beside others."""
        expect(Done, self.send(Allot(allotment)))

    def learn_curves(self, curves: tuple[QualityCurve, ...]) -> None:
        """Let the job plan with these curves of quality from now on."""
        expect(Done, self.send(LearnCurves(curves)))

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines of a node, or of all nodes."""
        return expect(Lines, self.send(AskLogs(node, n_line))).lines

    def choose(self, choice: UserChoice) -> None:
        """Apply a choice about a shard in quarantine, about batch sizes, or to finish early."""
        match choice:
            case ShardChoice():
                call = Choose(shard=choice)
            case BatchChoice():
                call = Choose(batches=choice)
            case FinishChoice():
                call = Choose(finish=choice)
            case _ as never:
                assert_never(never)
        expect(Done, self.send(call))

    def stop(self, by: str, why: str) -> None:
        """Save the job's state and end its nodes."""
        expect(Done, self.send(Stop(by, why)))


def expect(kind: type[T], answer: Answer) -> T:
    """Return an answer of this type; raise the error that it holds instead, or for another type."""
    if isinstance(answer, kind):
        return answer
    if isinstance(answer, Failed):
        raise getattr(errors, answer.error, BackendError)(answer.text)
    if isinstance(answer, NotBegun):
        raise BackendError(f"the job has not started yet: {answer.why}; try again once it has")
    raise BackendError(
        f"expected a {kind.__name__} from the job's master, got a {type(answer).__name__}; use the release "
        "of dlrover-nb that the job was submitted with"
    )


def unpack_answer(data: bytes) -> Answer:
    """Decode an answer; `BackendError` when it is of an incompatible release."""
    try:
        return ANSWERS.unpack(data)
    except WireError as error:
        raise BackendError(
            "the job's master answered in a form of another release; use the release of dlrover-nb that the "
            f"job was submitted with ({error})"
        ) from error


class CallHandler:
    """Answers the calls about one job; thread-safe.

    Parameters
    ----------
    served
        Whose methods are called.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self._boot, self._n_snapshot = os.urandom(4).hex(), 0  # distinguishes tags of other processes
        self._last: SnapshotReply | None = None
        self._lock = threading.Lock()

    def answer(self, call: Call) -> Answer:
        """Return the answer to a call; an error is an answer too."""
        try:
            return self._answer(call)
        except DlroverError as error:
            return Failed(type(error).__name__, str(error))
        except Exception as error:
            logger.exception("a call %s could not be answered", type(call).__name__)
            name = type(error).__name__
            return Failed("BackendError", f"the master failed to answer ({name}); see its log")

    def answer_packed(self, data: bytes) -> bytes:
        """Answer an encoded call; `WireError` when it is none."""
        return ANSWERS.pack(self.answer(CALLS.unpack(data)))

    def _answer(self, call: Call) -> Answer:  # noqa: C901, PLR0911, PLR0912 - one case to a call
        served = self._served
        match call:
            case AskSnapshot(seen):
                return self._snapshot(served.snapshot(), seen)
            case AskSummary():
                return served.summary()
            case AskSeries(cursor):
                return served.series(cursor)
            case AskLogs(node, n_line):
                return Lines(served.logs(node, n_line))
            case AskWeigh(plans):
                return Weights(served.weigh(plans))
            case AskExplain(proposal):
                return served.explain(proposal)
            case AskOffer():
                return served.offer()
            case Allot(allotment):
                served.allot(allotment)
                return Done()
            case LearnCurves(curves):
                served.learn_curves(curves)
                return Done()
            case AskModel():
                return pack_checkpoint(Path(served.snapshot().folder))
            case Decide(decision):
                return served.decide(decision)
            case Choose(shard, batches, finish):
                for choice in (shard, batches, finish):
                    if choice is not None:
                        served.choose(choice)
                return Done()
            case Stop(by, why):
                served.stop(by, why)
                return Done()
            case _ as never:
                assert_never(never)

    def _snapshot(self, snapshot: JobSnapshot, tag: str) -> Answer:
        """Return the snapshot with its tag; a driver publishes each as a new object."""
        with self._lock:
            last = self._last
            if last is None or last.snapshot is not snapshot:
                self._n_snapshot += 1
                last = self._last = SnapshotReply(snapshot, f"{self._boot}-{self._n_snapshot}")
        return Unchanged() if last.tag == tag else last
