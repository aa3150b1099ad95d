"""A job without a living master: what is left of one that ended, and what is known of one that has not begun.

The last picture of a job stays in a ConfigMap, which holds 1 MiB. It is packed, and where that is not enough
it loses what the history keeps too, oldest first.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import StaleDecisionError, WireError
from dlrover_nb.core.manifests.parts import end_name, labels
from dlrover_nb.core.structs.capacity import Capacity
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.shards import ShardCounts
from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
from dlrover_nb.core.structs.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.decisions import Decision
    from dlrover_nb.core.structs.pods import PodJob
    from dlrover_nb.core.structs.questions import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.shards import UserChoice
    from dlrover_nb.core.structs.summary import JobSummary

MOST_BYTES = 900 << 10  # of a packed picture, so that it fits with all around it
MOST_RAW_BYTES = 256 << 20  # that one may unpack to
KEY = "snapshot"
_LONG = ("samples", "story", "curves", "nodes", "proposals", "decisions", "outcomes", "markers", "rounds")
_PICTURES: Tagged[JobSnapshot] = Tagged(JobSnapshot)


class FinishedJob:
    """Answers for a job whose master is gone, from its last picture; fits `MasterLink`.

    Parameters
    ----------
    snapshot
        The last picture.
    """

    def __init__(self, snapshot: JobSnapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> JobSnapshot:
        """Return the last picture."""
        return self._snapshot

    def summary(self) -> JobSummary:
        """Return the one line that a list of jobs shows."""
        return replace(summarize(self._snapshot), live=False)

    def series(self, cursor: int) -> SeriesChunk:
        """Return that no telemetry is left."""
        return SeriesChunk(cursor, {}, {})

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return that no lines are left."""
        del node, n_line
        return ()

    def stop(self, by: str, why: str) -> None:
        """Do nothing: it has ended."""

    def decide(self, decision: Decision) -> Decision:
        """Refuse: nothing can be decided any more."""
        del decision
        self._refuse()

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Refuse, as `decide`."""
        del plans
        self._refuse()

    def explain(self, proposal: str | None) -> Explanation:
        """Refuse, as `decide`."""
        del proposal
        self._refuse()

    def choose(self, choice: UserChoice) -> None:
        """Refuse, as `decide`."""
        del choice
        self._refuse()

    def _refuse(self) -> NoReturn:
        name, phase = self._snapshot.spec.name, self._snapshot.phase
        raise StaleDecisionError(f"job {name} has {phase} and its master is gone: nothing to decide any more")


def without_master(
    job: PodJob, phase: JobPhase, why: str, *, at_s: float, started_at_s: float
) -> JobSnapshot:
    """Return the picture of a job that no master can draw: it has not begun, or could not."""
    spec = job.spec
    return JobSnapshot(
        at_s=at_s,
        spec=spec,
        capacity=job.capacity or Capacity(()),
        phase=phase,
        message=why,
        mode=spec.mode,
        started_at_s=started_at_s,
        ended_at_s=at_s if phase.is_final else None,
        target=spec.plan,
        running=None,
        samples_per_s=0.0,
        loss=None,
        nodes=(),
        train=ShardCounts(),
        evaluate=ShardCounts(),
        fit=None,
        curves=(),
        samples=(),
        front=None,
        memory=(),
        proposals=(),
        decisions=(),
        outcomes=(),
        markers=(),
        evaluation=None,
        story=(why,),
        pins=spec.pins,
    )


def end_document(snapshot: JobSnapshot, *, run: str, namespace: str) -> dict[str, Any]:
    """Return the ConfigMap that keeps a job's last picture."""
    name = snapshot.spec.name
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": end_name(name), "namespace": namespace, "labels": labels(name, run)},
        "binaryData": {KEY: base64.b64encode(packed(snapshot)).decode()},
    }


def end_of(document: Mapping[str, Any]) -> JobSnapshot:
    """Return the last picture that a ConfigMap keeps.

    Raises
    ------
    WireError
        When it holds none, or one of a release that this one does not understand.
    """
    try:
        content = base64.b64decode(document["binaryData"][KEY])
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(content, MOST_RAW_BYTES)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        name = document.get("metadata", {}).get("name", "")
        raise WireError(f"ConfigMap {name} holds no picture of a job: {error}") from error
    return _PICTURES.unpack(raw)


def packed(snapshot: JobSnapshot, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return a picture that fits into a ConfigMap; where it must, it loses its oldest samples and lines."""
    keep = max(len(getattr(snapshot, name)) for name in _LONG)
    while len(data := zlib.compress(_PICTURES.pack(snapshot), 6)) > most_bytes and keep:
        keep //= 2
        newest: dict[str, Any] = {name: getattr(snapshot, name)[-keep:] if keep else () for name in _LONG}
        snapshot = replace(snapshot, **newest)
    return data
