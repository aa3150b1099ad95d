"""The protocols of a link to a job's master, apart from what carries its calls.

Every front end imports them, when it is loaded; the records of calls need numpy and much else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.plan.offers import Allotment, Offer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk


class MasterLink(Protocol):
    """The calls that a job's master answers; each raises `BackendError` when it cannot be reached.

    Every implementation meets `tests/support/conformance/link.py`.
    """

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job."""
        ...

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        ...

    def decide(self, decision: Decision) -> Decision:
        """Submit a decision; return it with its id, or raise why it is refused."""
        ...

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Return for each plan its predicted effect, and why a decision for it would be refused now."""
        ...

    def explain(self, proposal: str | None) -> Explanation:
        """Return why a proposal was made; None: the open one, or why there is none."""
        ...

    def offer(self) -> Offer:
        """Return the plans that the job could use, for a choice among jobs; or why it takes no part."""
        ...

    def allot(self, allotment: Allotment) -> None:
        """Say what the job may plan with beside others; raise why that is refused."""
        ...

    def learn_curves(self, curves: tuple[QualityCurve, ...]) -> None:
        """Let the job plan with these curves of quality, and no others, from now on."""
        ...

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines of a node, or of all (None), ended ones included; the newest last."""
        ...

    def choose(self, choice: UserChoice) -> None:
        """Apply a choice about a shard, batch sizes or an early end, or raise why it is refused."""
        ...

    def stop(self, by: str, why: str) -> None:
        """Save the job's state and end its nodes; nothing happens when it has ended."""
        ...


@runtime_checkable
class RemoteRunFolder(Protocol):
    """A link to a job whose run folder only its own nodes can read."""

    def fetch_model(self, into: Path) -> Path:
        """Write the files that a model is loaded from into a folder below `into`; return that folder."""
        ...

    def with_short_timeout(self) -> MasterLink:
        """Return a link for views: it reports within seconds that the master does not answer."""
        ...
