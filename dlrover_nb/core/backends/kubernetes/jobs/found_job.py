"""A job of a namespace as its objects tell it: its Job or ElasticJob, and where its master is."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.jobs.master_status import master_status
from dlrover_nb.core.manifests.objects import OWNER_NOTE
from dlrover_nb.core.manifests.pod_parts import run_of
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.job import JobPhase


class FoundJob:
    """A Job or an ElasticJob of ours with its master's location."""

    def __init__(self, job: Doc, masters: Iterable[Doc]) -> None:
        self.job = job
        self.name, self.run = name_of(job), run_of(job)
        mine = (pod for pod in masters if run_of(pod) == self.run)
        self.where = master_status(job, mine, run=self.run)

    def summary(self, phase: JobPhase, message: str) -> JobSummary:
        """Return its line when its master does not answer."""
        head = self.job["metadata"]
        began_s = datetime.fromisoformat(head["creationTimestamp"]).timestamp()
        owner = head.get("annotations", {}).get(OWNER_NOTE, "")
        return JobSummary(
            self.name,
            phase,
            owner,
            began_s,
            None,
            0.0,
            None,
            None,
            live=False,
            at_s=max(time.time(), began_s),  # the API server's clock may be ahead of ours
            message=message,
        )


def name_of(document: Doc) -> str:
    """Return an object's name."""
    return str(document["metadata"]["name"])
