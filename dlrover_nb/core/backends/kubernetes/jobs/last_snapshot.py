"""Snapshots of jobs whose master does not run: the last one, in a ConfigMap, or one made without it.

A ConfigMap holds 1 MiB, so the snapshot is packed (`core.driver.past.finished_job`). The last lines of the
nodes are beside it: their pods are deleted at the end, and the run folder is where no client reads it. More
people may read ConfigMaps than Secrets, so it holds no secret; all who may read them may read logs too
(`role_rules`).
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.client.bare_snapshot import bare_snapshot
from dlrover_nb.core.client.link.calls import Lines
from dlrover_nb.core.codec import with_texts
from dlrover_nb.core.driver.past.finished_job import (
    FinishedJob,
    pack_lines,
    pack_snapshot,
    unpack_lines,
    unpack_snapshot,
)
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.manifests.pod_parts import end_name, labels
from dlrover_nb.core.structs.job.secrets import secret_values
from dlrover_nb.core.structs.plan.capacity import Capacity
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.views.snapshot import JobSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.decisions.query_answers import LogLine
    from dlrover_nb.core.structs.job.job import JobPhase
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

MOST_BYTES = 800 << 10  # of a packed snapshot, so that it fits with its ConfigMap's other fields
MOST_LOG_BYTES = 150 << 10
KEY, LOGS_KEY = "snapshot", "logs"


def without_master(
    job: PodJob, phase: JobPhase, why: str, *, at_s: float, started_at_s: float
) -> JobSnapshot:
    """Return the snapshot of a job whose master has not begun, or could not.

    The two times may be of different machines; no job ends before it has started.
    """
    spec, at_s = job.spec, max(at_s, started_at_s)
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


def end_document(
    snapshot: JobSnapshot, *, run: str, namespace: str, lines: tuple[LogLine, ...] = ()
) -> dict[str, Any]:
    """Return the ConfigMap that keeps a job's last snapshot, and the last lines of its nodes."""
    name = snapshot.spec.name
    log_lines = with_texts(Lines(lines), Redactor(secret_values(snapshot.spec)).within).lines
    packed = {
        KEY: pack_snapshot(bare_snapshot(snapshot), most_bytes=MOST_BYTES),
        LOGS_KEY: pack_lines(log_lines, most_bytes=MOST_LOG_BYTES),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": end_name(name), "namespace": namespace, "labels": labels(name, run)},
        "binaryData": {key: base64.b64encode(data).decode() for key, data in packed.items()},
    }


def end_of(document: Mapping[str, Any]) -> JobSnapshot:
    """Return the last snapshot that a ConfigMap keeps.

    Raises
    ------
    WireError
        When it holds none, or one of an incompatible release.
    """
    try:
        return unpack_snapshot(base64.b64decode(document["binaryData"][KEY]))
    except (KeyError, TypeError, ValueError, WireError) as error:
        name = document.get("metadata", {}).get("name", "")
        raise WireError(f"ConfigMap {name} holds no snapshot of a job: {error}") from error


def finished(document: Mapping[str, Any]) -> FinishedJob:
    """Return the ended job that a ConfigMap keeps; one of an earlier release keeps no lines.

    Raises
    ------
    WireError
        As `end_of`.
    """
    lines = (document.get("binaryData") or {}).get(LOGS_KEY)
    try:
        return FinishedJob(end_of(document), unpack_lines(base64.b64decode(lines)) if lines else ())
    except ValueError as error:
        raise WireError(f"the log lines of an ended job cannot be read: {error}") from error
