"""Takes what an ElasticJob of our own job, and ScalePlans of it, ask for: as decisions, like those of a user.

A thread of the job's master follows both. What they ask for goes the way of all decisions, so it is checked,
recorded with its author, shown and undone as any other. What was taken is noted in the document, so that
another master takes nothing twice: one that died between the two finds that the job is on that plan already.

The status of a ScalePlan is written here: Scaling, Succeeded when its plan runs, Failed with the reason in an
annotation when it was refused or another plan came. That of the ElasticJob is the operator's. Its spec is not
changed: it is what people applied.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.informer import Informer
from dlrover_nb.core.backends.kubernetes.operator.elastic_desired import ASKED_NOTE, DECISION_NOTE
from dlrover_nb.core.backends.kubernetes.operator.elastic_plan import (
    noted_plan,
    open_scale_plans,
    plan_in,
    with_edits,
)
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import BackendError, DlroverError
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB, SCALE_PLAN
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, PREFIX, owned_by
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.client.link.protocols import MasterLink
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
REFUSED_NOTE = f"{PREFIX}refused"  # annotation: why what a document asks for is not done


@dataclass(frozen=True, slots=True)
class _Adoption:
    """What was taken from a ScalePlan: the plan, and the decision; empty: the job was on that plan."""

    plan: ResourcePlan
    decision: str
    at_s: float


class PlanFollower:
    """Follows the documents of one run until `close`.

    Parameters
    ----------
    job
        The run; its plan is the one that the ElasticJob was applied with.
    api
        The API server, at the job's namespace.
    link
        To the job's loop.
    """

    def __init__(self, job: PodJob, api: Api, link: MasterLink) -> None:
        self._name, self._first = job.spec.name, job.spec.plan
        self._api, self._link = api, link
        self._jobs = Informer(api, ELASTIC_JOB, f"{JOB_LABEL}={job.spec.name}")
        self._scales: Informer | None = None
        self._edited_plan: ResourcePlan | None = None  # of the ElasticJob, whose copy shows it later
        self._adoptions: dict[str, _Adoption] = {}  # by ScalePlan
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"plans-{self._name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, after a last word on what was taken."""
        self._closed.set()
        self._thread.join()
        for informer in filter(None, (self._jobs, self._scales)):
            informer.close()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            try:
                self._look()
            except BackendError as error:
                logger.info("job %s: later, for now: %s", self._name, error)
            except DlroverError as error:
                logger.warning("job %s: a plan is not taken: %s", self._name, error)

    def _look(self) -> None:
        if self._scales is None and self._api.has(SCALE_PLAN):
            self._scales = Informer(self._api, SCALE_PLAN)
        job = self._jobs.items().get(self._name)
        if job is None:
            return
        self._take_edit(job)
        for scale in open_scale_plans(self._scales.items().values() if self._scales else (), job):
            self._follow(scale, job)

    def _take_edit(self, job: Doc) -> None:
        """Decide what was changed in the ElasticJob since the last time."""
        before, why_not = self._edited_plan or noted_plan(job) or self._first, None
        after = plan_in(job, before)
        if after == before:
            return
        try:
            self._decide(with_edits(self._link.snapshot().target, before, after), f"ElasticJob {self._name}")
        except BackendError:
            raise
        except DlroverError as error:
            why_not = str(error)
            logger.warning("job %s: the edited ElasticJob is refused: %s", self._name, error)
        self._edited_plan = after
        notes = {ASKED_NOTE: to_json(after).decode(), REFUSED_NOTE: why_not}
        self._api.patch(ELASTIC_JOB, self._name, {"metadata": {"annotations": notes}})

    def _follow(self, scale: Doc, job: Doc) -> None:
        """Take a ScalePlan up, note that, and judge it; what was written is seen a little later."""
        name, noted = scale["metadata"]["name"], noted_plan(scale)
        if noted is not None:
            self._adoptions.setdefault(name, _Adoption(noted, "", 0.0))
            self._judge(scale, self._adoptions[name])
            return
        if name not in self._adoptions and not self._take(scale):
            return
        adoption = self._adoptions[name]
        notes = {ASKED_NOTE: to_json(adoption.plan).decode(), DECISION_NOTE: adoption.decision or None}
        owners = [*(scale["metadata"].get("ownerReferences") or ()), *owned_by(job)]
        self._say(scale, "Scaling", createTime=self._now())
        self._api.patch(SCALE_PLAN, name, {"metadata": {"annotations": notes, "ownerReferences": owners}})

    def _take(self, scale: Doc) -> bool:
        """Decide what a ScalePlan asks for; return whether it is taken."""
        name = scale["metadata"]["name"]
        try:
            plan = plan_in(scale, self._link.snapshot().target)
            decided = self._decide(plan, f"ScalePlan {name}")
        except BackendError:
            raise
        except DlroverError as error:
            self._end(scale, str(error))
            return False
        decision, at_s = (decided.id, decided.at_s) if decided else ("", 0.0)
        self._adoptions[name] = _Adoption(plan, decision, at_s)
        return True

    def _judge(self, scale: Doc, adoption: _Adoption) -> None:
        """Say that the plan of a ScalePlan runs, or that another one took its place."""
        shown = self._link.snapshot()
        if shown.at_s <= adoption.at_s:  # published before the decision
            return
        if shown.running == adoption.plan:
            self._end(scale, "")
        elif shown.target != adoption.plan:
            self._end(scale, f"another plan took its place: {shown.target}")

    def _decide(self, plan: ResourcePlan, by: str) -> Decision | None:
        """Set a plan; None: it is the target already."""
        if plan == self._link.snapshot().target:
            return None
        return self._link.decide(replace(Decision(Verdict.SCALE, by, 0.0), plan=plan))

    def _end(self, scale: Doc, why_not: str) -> None:
        if why_not:
            logger.warning("job %s: %s fails: %s", self._name, scale["metadata"]["name"], why_not)
            note = {"metadata": {"annotations": {REFUSED_NOTE: why_not}}}
            self._api.patch(SCALE_PLAN, scale["metadata"]["name"], note)
        self._say(scale, "Failed" if why_not else "Succeeded", finishTime=self._now())

    def _say(self, scale: Doc, phase: str, **times: str) -> None:
        status = {"status": {"phase": phase, **times}}
        self._api.patch(SCALE_PLAN, scale["metadata"]["name"], status, subresource="status")

    def _now(self) -> str:
        """Return the API server's time, as it writes it."""
        return datetime.fromtimestamp(self._api.date_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
