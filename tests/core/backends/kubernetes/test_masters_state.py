"""What a master says of a volume for run folders that it cannot use, and whether its job has failed of it."""

from __future__ import annotations

from errno import EACCES, EIO, ENOSPC, EROFS

import pytest

from dlrover_nb.core.backends.kubernetes import master as program
from dlrover_nb.core.backends.kubernetes.master import PodMaster
from dlrover_nb.core.backends.kubernetes.master_status import BEGUN_NOTE
from dlrover_nb.core.structs.job import JobPhase, JobSpec
from dlrover_nb.core.structs.pods import PodJob

JOB = PodJob(JobSpec("rows"), None, "0123abcd", "public", "secret-key", "the-token")
FOLDER = "/dlrover-nb/state/rows-0123abcd"


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
def test_a_job_that_may_not_write_its_run_folder_has_failed_and_says_so(broken, number):
    last = broken(OSError(number, "not for you", FOLDER))
    assert last.phase is JobPhase.FAILED
    assert f"got: not for you ({FOLDER})" in last.message
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


def test_a_masters_program_that_meets_a_full_volume_says_it_in_one_line(monkeypatch, caplog):
    def full():
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(program, "read_pod_job", full)
    assert program.main() == 1
    (told,) = caplog.messages
    assert "the volume at /dlrover-nb/state must take files of user" in told
    assert "No space left on device" in told
