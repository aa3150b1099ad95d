"""View model of a job's live view: its state, and its user's actions; no drawing.

Fetches and actions run on pool threads, so that neither a busy kernel cell nor a slow master freezes a front
end; readers get one consistent `ViewState`.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.commands.requests import (
    Accept,
    Override,
    Reject,
    RetryShard,
    Scale,
    SetMode,
    SkipShard,
    Undo,
)
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.training.shards import ShardAction
from dlrover_nb.widgets.jobs.review_card import Answer, Link, PendingAction
from dlrover_nb.widgets.series import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.commands.requests import Request
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.job.spec_choices import Mode
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.jobs.review_card import Press

_ACTIONS = ThreadPoolExecutor(2, thread_name_prefix="dlrover-action")


@dataclass(frozen=True, slots=True)
class ViewState:
    """The state that a screen draws."""

    snapshot: JobSnapshot
    series: SeriesChunk
    request: PendingAction | None
    link: Link


class JobViewModel:
    """The newest snapshot of one job.

    Parameters
    ----------
    handle
        The job.
    on_change
        Called, from any thread, when an action has progressed.
    monotonic
        A monotonic clock in seconds; ages use it because the master's clock may differ from ours.
    """

    def __init__(
        self,
        handle: JobHandle,
        on_change: Callable[[], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handle, self._on_change, self._monotonic = handle, on_change, monotonic
        self.name = handle.name
        self._looks = handle.with_short_timeout
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._window = Window()
        self._request: PendingAction | None = None
        self._error = ""
        self._snapshot = handle.snapshot()
        self._heard_s = monotonic()
        self._window.add(handle.series(0))

    def fetch(self) -> None:
        """Fetch updates from the master; an error of the link is kept for display."""
        with self._fetching:
            try:
                snapshot = self._looks.snapshot()
                chunk = self._looks.series(self._window.cursor)
            except DlroverError as error:
                with self._lock:
                    self._error = str(error).splitlines()[0]
                return
            with self._lock:
                self._take(snapshot, chunk)

    def _take(self, snapshot: JobSnapshot, chunk: SeriesChunk) -> None:
        if snapshot.at_s != self._snapshot.at_s or snapshot.phase.is_final:
            self._heard_s = self._monotonic()
        self._snapshot, self._error = snapshot, ""
        self._window.add(chunk)

    def state(self) -> ViewState:
        """Return the present state."""
        with self._lock:
            link = Link(self._monotonic() - self._heard_s, self._error)
            return ViewState(self._snapshot, self._window.chunk(), self._request, link)

    def accept(self, proposal: str, why: str = "") -> None:
        """Accept the proposal, or the action against stragglers, that the user saw."""
        self._ask(PendingAction(Verdict.ACCEPT, proposal), Accept(proposal, why=why))

    def reject(self, proposal: str, why: str = "") -> None:
        """Reject the proposal, or the action against stragglers, that the user saw."""
        self._ask(PendingAction(Verdict.REJECT, proposal), Reject(proposal, why=why))

    def override(self, proposal: str, plan: ResourcePlan, why: str = "") -> None:
        """Override the proposal that the user saw with another plan."""
        self._ask(
            PendingAction(Verdict.OVERRIDE, proposal),
            Override.to(plan, proposal, why=why),
        )

    def scale(self, plan: ResourcePlan, why: str = "", *, version: str) -> None:
        """Change the job to a plan that answers no proposal, if its `version` is still the present one."""
        self._ask(
            PendingAction(Verdict.SCALE, aim=f"scale to {plan.short}"),
            Scale.to(plan, why=why),
            version,
        )

    def set_mode(self, mode: Mode, why: str = "", *, version: str) -> None:
        """Set who decides from now on, if the job's `version` is still the present one."""
        self._ask(
            PendingAction(Verdict.MODE, aim=f"change to {mode} mode"),
            SetMode(mode, why=why),
            version,
        )

    def undo(self, decision: str, why: str = "", *, aim: str, is_under_way: bool = False) -> None:
        """Undo the decision that the user saw as the latest; `aim` is the request as text.

        `is_under_way`: they saw it being applied, and cancel that.
        """
        self._ask(PendingAction(None, aim=aim), Undo(decision, cancels=is_under_way, why=why))

    def decide_rows(self, shard: int, action: ShardAction, why: str = "") -> None:
        """Train a shard in question again, or go on without it."""
        skips = action is ShardAction.SKIP
        aim = f"skip shard {shard}" if skips else f"train shard {shard} again"
        request = SkipShard(shard=shard, why=why) if skips else RetryShard(shard=shard, why=why)
        self._ask(PendingAction(None, aim=aim), request)

    def press(self, press: Press, why: str = "") -> None:
        """Do what a button says that names what it answers."""
        match press.verb:
            case Verdict.ACCEPT:
                self.accept(press.subject, why)
            case Verdict.REJECT:
                self.reject(press.subject, why)
            case "undo" | "cancel":
                aim = f"{press.verb} {press.subject}"
                self.undo(press.subject, why, aim=aim, is_under_way=press.verb == "cancel")
            case ShardAction.RETRY | ShardAction.SKIP:
                shard = int(press.subject.removeprefix("shard "))
                self.decide_rows(shard, ShardAction(press.verb), why)

    def refuse(self, request: PendingAction, why: str) -> None:
        """Record that a request cannot be sent."""
        with self._lock:
            self._request = replace(request, answer=Answer.REFUSED, why=why)
        self._on_change()

    def weigh(self, plan: ResourcePlan) -> Weighed:
        """Query the effect of a plan; not on a front end's thread, as it waits for the master."""
        (weighed,) = self._handle.weigh(plan)
        return weighed

    def explain(self, proposal: str | None) -> Explanation:
        """Query why a plan is recommended, or none; blocks, so not for a front end's thread."""
        return self._handle.explain(proposal)

    def logs(self, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest log lines of all nodes; blocks, as `explain` does."""
        return self._handle.logs(n_line=n_line)

    def _ask(self, pending: PendingAction, request: Request, version: str = "") -> None:
        with self._lock:
            if self._request is not None and self._request.answer is Answer.ASKED:
                return  # a double click: the first one is pending
            self._request = pending
        self._on_change()
        _ACTIONS.submit(self._act, pending, request, version)

    def _act(self, pending: PendingAction, request: Request, version: str) -> None:
        try:
            made = self._handle.ask(request, version=version)
            done = replace(pending, answer=Answer.TAKEN, decision=made)
        except DlroverError as error:
            done = replace(pending, answer=Answer.REFUSED, why=str(error))
        with self._lock:
            self._request = done
        self.fetch()
        self._on_change()
