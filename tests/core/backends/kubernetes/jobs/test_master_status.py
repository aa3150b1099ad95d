"""Where a master is, by what the cluster says of its Job and its pods."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.backends.kubernetes.jobs.master_status import (
    BEGUN_NOTE,
    ENDED_NOTE,
    Answering,
    Beginning,
    Over,
    Replaced,
    begun_s,
    has_begun,
    master_status,
)

FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "six times"}


def job(*conditions: dict, run: str = "r", parallelism: int = 1, **notes: str) -> dict:
    return {
        "metadata": {"uid": "u", "labels": {"dlrover-nb/run": run}, "annotations": notes},
        "spec": {"parallelism": parallelism},
        "status": {"conditions": list(conditions)},
    }


def pod(name: str, *, ready: bool = True, going: bool = False, phase: str = "Running") -> dict:
    meta: dict = {"name": name, "ownerReferences": [{"uid": "u"}]}
    meta |= {"creationTimestamp": f"2026-01-01T00:00:{int(name[1:]):02}Z"}
    return {
        "metadata": meta | ({"deletionTimestamp": "2026-01-01T00:01:00Z"} if going else {}),
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def test_a_master_that_lingers_answers_though_its_job_is_done():
    assert master_status(job({"type": "Complete", "status": "True"}), [pod("m1")], run="r") == Answering("m1")
    assert master_status(job({"type": "Complete", "status": "True"}), [], run="r") == Over("")


def test_a_job_that_was_given_up_tells_why(words):
    told = master_status(job(FAILED), [pod("m1", ready=False, phase="Failed")], run="r")
    assert told == Over("BackoffLimitExceeded: six times")
    assert master_status(job(FAILED | {"status": "False"}), [], run="r") == Beginning(words)


def test_a_long_reason_to_wait_keeps_its_beginning_and_its_end():
    waiting = pod("m1", ready=False, phase="Pending")
    message = f"rpc error: {'failed to pull ' * 40}no such host"
    state = {"waiting": {"reason": "ErrImagePull", "message": message}}
    waiting["status"]["containerStatuses"] = [{"state": state}]
    told = master_status(job(), [waiting], run="r")
    assert isinstance(told, Beginning)
    assert "ErrImagePull: rpc error: failed" in told.why
    assert told.why.endswith("no such host")


def test_a_job_that_was_stopped_before_it_began_is_over():
    assert master_status(job(parallelism=0, **{ENDED_NOTE: "stopped"}), [], run="r") == Over("")


def test_a_submission_that_is_not_complete_says_so():
    assert "not complete" in str(master_status(job(parallelism=0), [], run="r"))


def test_another_run_of_the_name_is_none_of_this_one():
    assert master_status(job(run="s"), [pod("m1")], run="r") == Replaced()
    somebody_elses = job()
    del somebody_elses["metadata"]["labels"]
    assert master_status(somebody_elses, [], run="r") == Replaced()


def test_a_pod_with_the_labels_of_a_master_that_the_job_did_not_make_is_not_asked():
    strange = pod("m9")
    strange["metadata"]["ownerReferences"] = []
    assert master_status(job(), [pod("m1"), strange], run="r") == Answering("m1")


def test_when_a_job_began_stands_in_its_annotation():
    assert begun_s(job()) is None
    assert has_begun(job(**{BEGUN_NOTE: "12.5"}))
    assert begun_s(job(**{BEGUN_NOTE: "12.5"})) == 12.5


PODS = st.lists(
    st.builds(
        pod,
        st.integers(0, 59).map("m{}".format),
        ready=st.booleans(),
        going=st.booleans(),
        phase=st.sampled_from(["Pending", "Running", "Failed"]),
    ),
    max_size=5,
    unique_by=lambda each: each["metadata"]["name"],
)


@given(PODS)
def test_only_a_pod_that_is_ready_and_stays_is_asked_and_always_the_newest(pods: list[dict]):
    staying = [
        each
        for each in pods
        if "deletionTimestamp" not in each["metadata"] and each["status"]["phase"] != "Failed"
    ]
    newest = max(staying, key=lambda each: each["metadata"]["creationTimestamp"], default=None)
    match master_status(job(), pods, run="r"):
        case Answering(name):
            assert newest is not None
            assert newest["metadata"]["name"] == name
            assert newest["status"]["conditions"][0]["status"] == "True"
        case Beginning(why):
            assert why
            assert newest is None or newest["status"]["conditions"][0]["status"] == "False"
        case other:
            raise AssertionError(other)
