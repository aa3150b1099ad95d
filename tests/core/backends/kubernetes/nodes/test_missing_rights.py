"""When a missing right of a job's master ends the job, and what is told of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    Forbidden,
    Operation,
    Status,
    Unauthorized,
    error_of,
)
from dlrover_nb.core.backends.kubernetes.nodes.missing_rights import (
    IDLE_S,
    NEVER_RAN_S,
    RECENT_S,
    Refusals,
    needed,
)
from dlrover_nb.core.manifests.kinds import JOB, POD
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

SPEC = JobSpec("clicks")
DENIED = 'pods is forbidden: User "system:serviceaccount:team:clicks-master" cannot create resource "pods"'
ERROR = Forbidden("no", Status(403, "Forbidden", DENIED), Operation("create", POD, "team"))


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.booleans()), max_size=40))
def test_a_job_ends_only_after_nothing_of_it_ran_for_long_while_it_was_refused(
    steps: list[tuple[float, bool]],
) -> None:
    refusals, at_s, idle_since_s, has_run = Refusals(SPEC), 0.0, 0.0, False
    refusals.refused("Create", ERROR, at_s)
    for pause_s, runs in steps:
        at_s += pause_s
        refusals.refused("Create", ERROR, at_s)
        has_run, idle_since_s = has_run or runs, at_s if runs else idle_since_s
        limit_s = IDLE_S if has_run else NEVER_RAN_S
        assert refusals.end_job(at_s, runs=runs) == (at_s >= idle_since_s + limit_s)


def test_while_a_node_runs_a_right_is_waited_for_without_end() -> None:
    refusals = Refusals(SPEC)
    for at_s in range(0, 100_000, 10):
        refusals.refused("Create", ERROR, at_s)
        assert not refusals.end_job(at_s, runs=True)


def test_a_refusal_after_a_quiet_time_counts_from_then_on() -> None:
    refusals = Refusals(SPEC)
    refusals.refused("Create", ERROR, 0.0)
    refusals.allowed("Create")
    later_s = 10 * NEVER_RAN_S
    refusals.refused("Create", ERROR, later_s)
    assert not refusals.end_job(later_s, runs=False)
    for n in range(1, 3):
        refusals.refused("Create", ERROR, later_s + n * NEVER_RAN_S / 2)
    assert refusals.end_job(later_s + NEVER_RAN_S, runs=False)


def test_what_is_missing_is_told_with_what_gives_it_back_until_it_is_there(words) -> None:
    refusals = Refusals(SPEC)
    told = refusals.refused("Create", ERROR, 0.0)
    assert told == words
    assert refusals.now(1.0) == told
    assert refusals.now(RECENT_S) == ""
    refusals.allowed("Create")
    assert refusals.now(1.0) == ""


def test_who_may_not_read_a_namespace_is_told_that_it_may_be_gone(words):
    body = b'{"kind": "Status", "message": "jobs.batch is forbidden: User \\"vic\\" cannot get resource"}'
    assert str(error_of(Operation("get", JOB, "team", "ads"), 403, body)) == words
    assert "was deleted" not in str(error_of(Operation("create", JOB, "team"), 403, body))


@pytest.mark.parametrize(("account", "named"), [("", "clicks-master"), ("trainers", "trainers")])
def test_a_master_whose_account_is_gone_is_told_what_to_restore_and_not_to_sign_in(account, named):
    gone = Unauthorized(
        "sign in again", Status(401, "Unauthorized", "Unauthorized"), Operation("list", POD, "team")
    )
    told = needed(JobSpec("clicks", kubernetes=KubernetesSpec(service_account=account)), gone)
    assert f"restore the ServiceAccount {named} with its rights" in told
    assert "sign in" not in told


@pytest.mark.parametrize("account", ["", "trainers"])
def test_an_account_of_the_users_own_has_no_role_of_the_job(account: str, words) -> None:
    told = needed(JobSpec("clicks", kubernetes=KubernetesSpec(service_account=account)), ERROR)
    assert ("trainers" in told) == bool(account)
    assert told == words
