"""What a master says of a volume for run folders that it cannot use, and whether its job has failed of it."""

from __future__ import annotations

import os
import queue
import uuid
from dataclasses import replace
from errno import EACCES, EIO, ENOSPC, EROFS

import pytest
from support.jobs import builders
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.kubernetes import master as program
from dlrover_nb.core.backends.kubernetes.jobs.master_status import BEGUN_NOTE
from dlrover_nb.core.backends.kubernetes.jobs.submission import Prepared, new_pod_job
from dlrover_nb.core.backends.kubernetes.master import PodMaster
from dlrover_nb.core.errors import JobFailedError
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.pod_parts import run_of
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.structs.wire.pod_contract import PodJob, state_folder

JOB = PodJob(JobSpec("rows"), None, "0123abcd", "public", "secret-key", "the-token")
FOLDER = "/dlrover-nb/state/rows-0123abcd"


def of_any_user(text: str) -> str:
    return text.replace(f"user {os.getuid()},", "user UID,")


@pytest.fixture
def broken(monkeypatch):
    def break_with(error, *, begun=False):
        def refuse(*_):
            raise error

        monkeypatch.setattr(PodMaster, "_driver", refuse)
        notes = {BEGUN_NOTE: "12.5"} if begun else {}
        return PodMaster(JOB, None, ip="10.0.0.1")._driven({"metadata": {"annotations": notes}})

    return break_with


@pytest.mark.parametrize("number", [EACCES, EROFS])
def test_a_job_that_may_not_write_its_run_folder_has_failed_and_says_so(broken, number, words):
    last = broken(OSError(number, "not for you", FOLDER))
    assert last.phase is JobPhase.FAILED
    assert of_any_user(last.message) == words
    assert len(last.message.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "begun"),
    [
        (OSError(EIO, "away", FOLDER), False),
        (OSError(ENOSPC, "full", FOLDER), False),
        (OSError(EACCES, "not for you", FOLDER), True),
        (OSError(EACCES, "not for you", "/etc/passwd"), False),
    ],
)
def test_what_may_pass_is_left_to_the_master_that_is_started_again(broken, error, begun):
    with pytest.raises(OSError, match=error.strerror):
        broken(error, begun=begun)


class Namespace:
    """An API server with these pods of the job's nodes."""

    def __init__(self, pods):
        self.items = pods

    def list(self, kind, *, selector):
        assert (kind, "rows" in selector) == (POD, True)
        return self


@pytest.mark.parametrize(("begun", "pods"), [(True, []), (False, [{"metadata": {"name": "rows-ps-0"}}])])
def test_a_job_that_had_begun_has_failed_without_its_run_folder_and_says_how_to_keep_it(
    begun, pods, error_words
):
    owner = {"metadata": {"annotations": {BEGUN_NOTE: "12.5"} if begun else {}}}
    master = PodMaster(JOB, Namespace(pods), ip="10.0.0.1")
    with error_words(JobFailedError):
        master._check_first(owner)


def test_a_job_that_has_not_begun_needs_no_run_folder():
    PodMaster(JOB, Namespace([]), ip="10.0.0.1")._check_first({"metadata": {"annotations": {}}})


def test_a_masters_program_that_meets_a_full_volume_says_it_in_one_line(monkeypatch, caplog, words):
    def full():
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(program, "read_pod_job", full)
    assert program.main() == 1
    (told,) = caplog.messages
    assert of_any_user(told) == words


class Driver:
    """A job that ends at once."""

    def start(self):
        """Do nothing."""

    def join(self):
        """Do nothing."""

    def last_snapshot(self):
        return builders.snapshot()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_master_that_begins_deletes_old_run_folders_on_its_volume(monkeypatch, tmp_path, keeps):
    volumes = (Volume(STATE, claim="runs"),) if keeps else ()
    job = replace(JOB, spec=replace(JOB.spec, kubernetes=KubernetesSpec(volumes=volumes)))
    pruned = queue.SimpleQueue()
    monkeypatch.setattr(program, "state_folder", lambda *_: str(tmp_path / "rows-0123abcd"))
    monkeypatch.setattr(program, "prune", lambda jobs, _: pruned.put(jobs))
    monkeypatch.setattr(PodMaster, "_driver", lambda *_: Driver())
    PodMaster(job, None, ip="10.0.0.1")._driven({"metadata": {"annotations": {BEGUN_NOTE: "12.5"}}})
    if keeps:
        assert pruned.get(timeout=LIMIT_S) == tmp_path
    assert pruned.empty()


def test_one_name_in_two_namespaces_has_two_run_folders_on_one_volume():
    """Each run has an id of its own: one that a client drew, or of the identity that the API server gave."""
    jobs = [new_pod_job(Prepared(JobSpec("rows")), None)[0] for _ in range(2)]
    labels = {"dlrover-nb/job": "rows"}
    applied = [run_of({"metadata": {"labels": labels, "uid": str(uuid.uuid4())}}) for _ in range(2)]
    folders = {state_folder("rows", run) for run in (*applied, *(job.run for job in jobs))}
    assert len(folders) == 4
