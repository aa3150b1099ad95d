"""What ElasticJobs and ScalePlans of our own jobs ask for, by their documents; and exit codes of their masters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cases import for_each
from support.jobs.exports import JOB, OPTIONS, PLAN, TOLD

from dlrover_nb.core.backends.kubernetes.jobs.master_status import end_of_job
from dlrover_nb.core.backends.kubernetes.master import TERMINATED, exit_code_of
from dlrover_nb.core.backends.kubernetes.operator.elastic_desired import ASKED_NOTE
from dlrover_nb.core.backends.kubernetes.operator.elastic_plan import (
    noted_plan,
    open_scale_plans,
    plan_in,
    with_edits,
)
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

OTHER = ResourcePlan(worker=RolePlan(5, 2.0, 4096), ps=RolePlan(3, 1.0, 2048))


def document(kind: str, plan: ResourcePlan = PLAN) -> Any:
    return EXPORTERS[kind](JOB, plan, TOLD, OPTIONS)[-1]


@pytest.mark.parametrize("kind", ["elasticjob", "elasticjob-0", "scaleplan"])
def test_an_exported_plan_is_read_as_it_is(kind: str) -> None:
    assert plan_in(document(kind), OTHER) == PLAN


def test_what_a_scale_plan_leaves_out_stays_as_it_is() -> None:
    scale = document("scaleplan")
    scale["spec"]["replicaResourceSpecs"] = {"worker": {"replicas": 7}}
    assert plan_in(scale, OTHER) == replace(OTHER, worker=replace(OTHER.worker, count=7))


@pytest.mark.parametrize("key", ["createPods", "removePods"])
def test_a_scale_plan_of_single_pods_is_refused(key: str) -> None:
    scale = document("scaleplan")
    scale["spec"][key] = [{"name": "ctr-daily-worker-0"}]
    with pytest.raises(InvalidValueError, match=f"{key} names single pods"):
        plan_in(scale, OTHER)


def test_only_what_was_edited_is_applied_to_the_plan_that_runs() -> None:
    after = replace(PLAN, worker=replace(PLAN.worker, count=9))
    assert with_edits(OTHER, PLAN, after) == replace(OTHER, worker=replace(OTHER.worker, count=9))
    assert with_edits(OTHER, PLAN, PLAN) == OTHER


def test_a_plan_that_was_taken_is_known_by_its_annotation() -> None:
    scale = document("scaleplan")
    assert noted_plan(scale) is None
    scale["metadata"]["annotations"][ASKED_NOTE] = to_json(PLAN).decode()
    assert noted_plan(scale) == PLAN


def test_scale_plans_of_others_and_of_earlier_jobs_and_those_done_are_left_alone() -> None:
    def scale(name: str, at: str, owner: str = "ctr-daily", phase: str = "") -> Any:
        head = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{at}Z"}
        return {"metadata": head, "spec": {"ownerJob": owner}, "status": {"phase": phase}}

    job = {"metadata": {"name": "ctr-daily", "creationTimestamp": "2026-01-01T00:00:10Z"}}
    scales = [
        scale("newer", "30"),
        scale("open", "20", phase="Scaling"),
        scale("early", "05"),
        scale("theirs", "20", owner="other"),
        scale("done", "20", phase="Succeeded"),
        scale("refused", "20", phase="Failed"),
    ]
    assert [each["metadata"]["name"] for each in open_scale_plans(scales, job)] == ["open", "newer"]


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("Running", None),
        ("Succeeded", ""),
        ("Failed", "JobFailed: The job master failed with exitcode=1."),
    ],
)
def test_an_elasticjob_has_ended_when_the_operator_says_so(phase: str, told: str | None) -> None:
    condition = {"reason": "JobFailed", "message": "The job master failed with exitcode=1."}
    assert end_of_job({"status": {"phase": phase, "status": {"conditions": [condition]}}}) == told


@for_each(
    ("error", "in_job", "in_elastic_job"),
    [
        (BackendError("no API server"), 1, TERMINATED),
        (InvalidValueError("no job file"), 1, 1),
        (OSError(5, "away", "/dlrover-nb/state/x"), 1, TERMINATED),
        (OSError(104, "connection reset"), 1, TERMINATED),
    ],
)
def test_only_what_stays_wrong_fails_an_elasticjob_at_once(error, in_job, in_elastic_job) -> None:
    def start() -> int:
        raise error

    assert exit_code_of(start) == in_job
    assert exit_code_of(start, owner="ElasticJob") == in_elastic_job
    assert exit_code_of(lambda: 0, owner="ElasticJob") == 0
