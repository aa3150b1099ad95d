"""A client's side of a job: read frozen snapshots, send decisions; it decides nothing itself.

Notebooks, the command line and the live views use `JobHandle`. It depends on no backend: it calls the job's
master through a `core.client.master_link.MasterLink`.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.client.master_link import RemoteRunFolder
from dlrover_nb.core.client.until import Until, is_reached, waited_for
from dlrover_nb.core.errors import AwayError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions import Decision, Verdict
from dlrover_nb.core.structs.shards import BatchChoice, FinishChoice, ShardAction, ShardChoice
from dlrover_nb.core.waits import tell

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from dlrover_nb.core.client.master_link import MasterLink
    from dlrover_nb.core.structs.bounds import Pins, PlanBounds
    from dlrover_nb.core.structs.deadline import DeadlineOutlook
    from dlrover_nb.core.structs.job import Mode
    from dlrover_nb.core.structs.questions import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.schema import DataSchema
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk

POLL_S = 0.5
STOP_TIMEOUT_S = 60.0
AWAY_LIMIT_S = 60.0  # for a cluster that is away while a job is waited for


def user_name() -> str:
    """Return the user of this process; where a user id has no name, as in many pods, the id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class JobHandle:
    """A client's handle of one job: snapshots and decisions.

    Parameters
    ----------
    name
        The job's name.
    link
        Link to its master.
    user
        Recorded as the author of decisions; the login name by default.
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
        simulated: bool = False,
        schema: DataSchema | None = None,
        bounds: PlanBounds | None = None,
        deadline: DeadlineOutlook | None = None,
    ) -> None:
        self.name = name
        self.simulated = simulated
        self.schema = schema
        self.bounds, self.deadline = bounds, deadline
        self._link = link
        self._user = user or user_name()

    @property
    def link(self) -> MasterLink:
        """The link to its master."""
        return self._link

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job."""
        return self._link.snapshot()

    @property
    def is_far(self) -> bool:
        """Whether only the job's own nodes can read its run folder."""
        return isinstance(self._link, RemoteRunFolder)

    @property
    def with_short_timeout(self) -> JobHandle:
        """The same job for views: an unreachable master is reported within seconds."""
        if not isinstance(self._link, RemoteRunFolder):
            return self
        return JobHandle(
            self.name, self._link.with_short_timeout(), user=self._user, simulated=self.simulated
        )

    def fetch_model(self, into: Path) -> Path | None:
        """Write the files of a model below `into`; None: the run folder is on this machine."""
        return self._link.fetch_model(into) if isinstance(self._link, RemoteRunFolder) else None

    def series(self, cursor: int = 0) -> SeriesChunk:
        """Return telemetry newer than `cursor` (0: all that is kept)."""
        return self._link.series(cursor)

    def accept(self, proposal: str | None = None, *, why: str = "") -> Decision:
        """Accept a proposal: the one named, or the open one.

        Raises
        ------
        NotFoundError
            When none is open and none was named.
        StaleDecisionError
            When it is no longer open.
        """
        return self._decide(Verdict.ACCEPT, proposal=proposal or self._open_proposal(), why=why)

    def reject(self, proposal: str | None = None, *, why: str = "") -> Decision:
        """Reject a proposal: the one named, or the open one."""
        return self._decide(Verdict.REJECT, proposal=proposal or self._open_proposal(), why=why)

    def override(self, plan: ResourcePlan, *, proposal: str | None = None, why: str = "") -> Decision:
        """Answer a proposal with another plan, which is applied instead."""
        return self._decide(Verdict.OVERRIDE, proposal=proposal or self._open_proposal(), plan=plan, why=why)

    def scale(self, plan: ResourcePlan, *, why: str = "") -> Decision:
        """Change the running job to `plan`, whether or not anything was proposed."""
        return self._decide(Verdict.SCALE, plan=plan, why=why)

    def undo(self, decision: str | None = None, *, why: str = "") -> Decision:
        """Undo the latest change of the plan, the mode or the pins, by any user.

        A change of plan that is still under way is cancelled: the plan before it runs on, or is restored.
        An undo is a change too: undoing it is a redo. A rejection changed nothing and is skipped: name the
        decision where that matters. An undone plan is not proposed again, nor set by auto mode, until its
        prediction has changed materially.

        Parameters
        ----------
        decision
            The latest one shown to the user (``d3``); None: the present latest.

        Raises
        ------
        NotFoundError
            When there is nothing to take back.
        StaleDecisionError
            When `decision` is no longer the latest change (the error names later ones).
        """
        back = self._alive().undo
        if back is None:
            raise NotFoundError(
                f"job {self.name} has nothing to undo: no decision has changed its plan, its mode or its pins"
            )
        return self._hand_in(replace(back, undoes=decision or back.undoes, why=why))

    def weigh(self, *plans: ResourcePlan) -> tuple[Weighed, ...]:
        """Return for each plan its predicted effect, and why a decision for it would be refused now.

        Nothing is changed. Before the first measurement only the refusals are known.
        """
        return self._link.weigh(plans)

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

    def set_mode(self, mode: Mode, *, why: str = "") -> Decision:
        """Set who decides from now on: the user (manual, suggest) or the optimizer (auto)."""
        return self._decide(Verdict.MODE, mode=mode, why=why)

    def pin(self, pins: Pins, *, why: str = "") -> Decision:
        """Fix these parts of every plan from now on, and no others; empty pins free all.

        Raises
        ------
        InvalidValueError
            When just these are pinned already.
        CapacityError
            When no plan with these pins fits on the machines.
        """
        return self._decide(Verdict.PIN, pins=pins, why=why)

    def retry_shard(self, shard: int, *, why: str = "") -> None:
        """Retry a shard that ended its workers, after its rows were repaired.

        Raises
        ------
        InvalidValueError
            When it is not in quarantine.
        """
        self._link.choose(ShardChoice(shard, ShardAction.RETRY, self._user, why))

    def skip_shard(self, shard: int, *, why: str = "") -> None:
        """Skip a shard that ended its workers; `InvalidValueError` when it is not in quarantine."""
        self._link.choose(ShardChoice(shard, ShardAction.SKIP, self._user, why))

    def adjust_batches(self, sizes: Mapping[str, int], *, why: str = "") -> None:
        """Set batch sizes of workers by name, from one iteration on.

        Raises
        ------
        InvalidValueError
            When a worker is not there, or a size is below 1.
        """
        self._link.choose(BatchChoice(tuple(sorted(sizes.items())), self._user, why))

    def finish(self, *, why: str = "") -> None:
        """Train no more rows: the shards at hand are completed, the model is evaluated, the job succeeds.

        Raises
        ------
        StaleDecisionError
            When the job is ending already.
        InvalidValueError
            When it runs programs of others.
        """
        self._link.choose(FinishChoice(self._user, why))

    def stop(self, *, why: str = "") -> JobSnapshot:
        """Stop the job and return its last snapshot."""
        self._link.stop(self._user, why)
        return self.wait(timeout_s=STOP_TIMEOUT_S)

    def wait(self, timeout_s: float | None = None, *, until: Until = Until.END) -> JobSnapshot:
        """Block until the job has ended (or what `until` names has come about), or `timeout_s` has passed.

        An interrupt does not affect the job. `InvalidValueError` when `timeout_s` is not a valid time.
        """
        if timeout_s is not None:
            _check.at_least(
                "timeout in seconds", timeout_s, 0, hint="leave it out to wait as long as it takes"
            )
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_reached(snapshot := self._awaited(end), until):
            tell(waited_for(snapshot, until))
            if end is not None and time.monotonic() >= end:
                break
            time.sleep(POLL_S)
        return snapshot

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

    def _open_proposal(self) -> str:
        snapshot = self._alive()
        if snapshot.open_proposal is None:
            last = snapshot.proposals[-1] if snapshot.proposals else None
            told = f"the last one, {last.id}, is {last.status}" if last else "there was none yet"
            raise NotFoundError(
                f"job {self.name} has no open proposal ({told}); use scale to set a plan yourself"
            )
        return snapshot.open_proposal.id

    def _decide(
        self,
        verdict: Verdict,
        *,
        proposal: str | None = None,
        plan: ResourcePlan | None = None,
        mode: Mode | None = None,
        pins: Pins | None = None,
        why: str = "",
    ) -> Decision:  # fields of a decision, all by keyword
        self._alive()
        return self._hand_in(Decision(verdict, "", 0.0, proposal, plan, mode, why, pins=pins))

    def _hand_in(self, decision: Decision) -> Decision:
        return self._link.decide(replace(decision, by=self._user))

    def _alive(self) -> JobSnapshot:
        """Return the newest snapshot of a job that still accepts decisions."""
        snapshot = self.snapshot()
        if snapshot.phase.is_final:
            from dlrover_nb.core.client.submit_again import submit_again  # noqa: PLC0415 - it reads YAML

            raise StaleDecisionError(
                f"job {self.name} has {snapshot.phase}: nothing to decide any more; "
                f"{submit_again(snapshot.spec)}"
            )
        return snapshot

    async def _await_final(self) -> JobSnapshot:
        while not (snapshot := await asyncio.to_thread(self._awaited, None)).phase.is_final:  # noqa: ASYNC110 - the master is another process: it sets no event here
            await asyncio.sleep(POLL_S)
        return snapshot
