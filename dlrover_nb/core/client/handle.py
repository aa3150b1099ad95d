"""A client's side of a job: read frozen snapshots, send commands; it decides nothing itself.

Every front end uses `JobHandle`. It depends on no backend: it calls the job's master through a
`core.client.link.protocols.MasterLink`. Each command goes through a `CommandService`, which knows who asks: a
handle belongs to one person, and `asked_by` makes another person's of it.
"""

from __future__ import annotations

import asyncio
import copy
import getpass
import os
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.client.job_commands import JobCommands
from dlrover_nb.core.client.link.protocols import RemoteRunFolder
from dlrover_nb.core.client.until import Until, is_reached, waited_for
from dlrover_nb.core.commands.requests import Stop
from dlrover_nb.core.errors import AwayError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.reported import URL_VAR

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from dlrover_nb.core.client.link.protocols import MasterLink
    from dlrover_nb.core.client.trainer.status_sender import TrainerSender
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.views.schema import DataSchema
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

LEAST_POLL_S, POLL_S = 0.05, 0.5
POLL_SHARE = 0.1  # of the wait so far: a short one ends in time, and a long one does not keep a master busy
STOP_TIMEOUT_S = 60.0
AWAY_LIMIT_S = 60.0  # for a cluster that is away while a job is waited for


def user_name() -> str:
    """Return the user of this process; where a user id has no name, as in many pods, the id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def poll_s(waited_s: float) -> float:
    """Return the seconds until a master is asked again by who has waited so long."""
    return min(max(LEAST_POLL_S, POLL_SHARE * waited_s), POLL_S)


def _sender() -> TrainerSender | None:
    """Return what sends a job's progress to Kubeflow Trainer, in a pod of it; few processes are."""
    from dlrover_nb.core.client.trainer.status_sender import sender_of  # noqa: PLC0415 - as above

    return sender_of(os.environ)


class JobHandle(JobCommands):
    """A client's handle of one job: snapshots and decisions.

    Parameters
    ----------
    name
        The job's name.
    link
        Link to its master.
    user
        The name of the account that asks, where the cluster tells it; the login name by default.
    namespace
        Of the job; empty on clusters without namespaces.
    simulated
        Whether the job is simulated: it leaves nothing on this machine.
    schema
        What the submit took of the job's data; None for a job that was found again, or whose rows only its
        nodes can read.
    bounds
        The plans that it may be given on this cluster; None for a job that was found again.
    deadline
        What its submit could promise of its deadline; None: it has none, or nothing was known.
    """

    def __init__(  # noqa: PLR0913 - its parts, all by keyword
        self,
        name: str,
        link: MasterLink,
        *,
        user: str | None = None,
        namespace: str = "",
        simulated: bool = False,
        schema: DataSchema | None = None,
        bounds: PlanBounds | None = None,
        deadline: DeadlineOutlook | None = None,
    ) -> None:
        super().__init__(name, link, user=user or user_name(), namespace=namespace, simulated=simulated)
        self.schema = schema
        self.bounds, self.deadline = bounds, deadline

    @property
    def link(self) -> MasterLink:
        """The link to its master."""
        return self._link

    @property
    def is_far(self) -> bool:
        """Whether only the job's own nodes can read its run folder."""
        return isinstance(self._link, RemoteRunFolder)

    @property
    def with_short_timeout(self) -> JobHandle:
        """The same job for views: an unreachable master is reported within seconds."""
        if not isinstance(self._link, RemoteRunFolder):
            return self
        other = copy.copy(self)
        vars(other).update(_link=self._link.with_short_timeout())
        return other

    def fetch_model(self, into: Path) -> Path | None:
        """Write the files of a model below `into`; None: the run folder is on this machine."""
        return self._link.fetch_model(into) if isinstance(self._link, RemoteRunFolder) else None

    def series(self, cursor: int = 0) -> SeriesChunk:
        """Return telemetry newer than `cursor` (0: all that is kept)."""
        return self._link.series(cursor)

    def weigh(self, *plans: ResourcePlan) -> tuple[Weighed, ...]:
        """Return for each plan its predicted effect, and why a decision for it would be refused now.

        Nothing is changed. Before the first measurement only the refusals are known.
        """
        return self._link.weigh(plans)

    def learn_curves(self, curves: tuple[QualityCurve, ...]) -> None:
        """Let the job plan with these curves of quality, and no others, from now on."""
        self._link.learn_curves(curves)

    def explain(self, proposal: str | None = None) -> Explanation:
        """Explain a proposal: the one named, or the open one; without one, why there is none.

        Raises
        ------
        NotFoundError
            When there is no proposal of that id.
        """
        return self._link.explain(proposal)

    def logs(self, node: str | None = None, *, n_line: int = 100) -> tuple[LogLine, ...]:
        """Return the newest log lines of a node, or of all nodes together, the newest last.

        Ended nodes are included: the last lines of a crashed worker say why it crashed.

        Raises
        ------
        NotFoundError
            When no node of that name is known; it names the nearest.
        InvalidValueError
            When `n_line` is below 1.
        """
        return self._link.logs(node, n_line)

    def stop(self, *, why: str = "") -> JobSnapshot:
        """Stop the job and return its last snapshot; a job that takes longer than a minute goes on ending."""
        self.ask(Stop(why=why))
        return self.wait(timeout_s=STOP_TIMEOUT_S)

    def wait(self, timeout_s: float | None = None, *, until: Until = Until.END) -> JobSnapshot:
        """Block until the job has ended (or what `until` names has come about), or `timeout_s` has passed.

        An interrupt does not affect the job. `InvalidValueError` when `timeout_s` is not a valid time.
        In a pod of Kubeflow Trainer a wait for the end sends the job's progress there.
        """
        if timeout_s is not None:
            _check.at_least(
                "timeout in seconds", timeout_s, 0, hint="leave it out to wait as long as it takes"
            )
        began = time.monotonic()
        end = None if timeout_s is None else began + timeout_s
        sender = _sender() if until is Until.END and URL_VAR in os.environ else None
        while True:
            snapshot = self._awaited(end)
            if sender is not None:
                sender.offer(snapshot)
            if is_reached(snapshot, until) or (end is not None and time.monotonic() >= end):
                return snapshot
            tell(waited_for(snapshot, until))
            time.sleep(poll_s(time.monotonic() - began))  # a master in another process sets no event

    def _awaited(self, end_s: float | None) -> JobSnapshot:
        """Return a snapshot; a cluster that is away for a while does not end the wait for a job."""
        longest_s = time.monotonic() + AWAY_LIMIT_S
        last_s = longest_s if end_s is None else min(end_s, longest_s)
        while True:
            try:
                return self.snapshot()
            except AwayError as error:
                if time.monotonic() >= last_s:
                    raise
                tell(f"an answer: {error}")
            time.sleep(POLL_S)

    def __await__(self) -> Generator[object, None, JobSnapshot]:
        """Wait without blocking the event loop: ``await job``."""
        return self._await_final().__await__()

    async def _await_final(self) -> JobSnapshot:
        began = time.monotonic()
        while not (snapshot := await asyncio.to_thread(self._awaited, None)).phase.is_final:  # noqa: ASYNC110 - the master is another process: it sets no event here
            await asyncio.sleep(poll_s(time.monotonic() - began))
        return snapshot
