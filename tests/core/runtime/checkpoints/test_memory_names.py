from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from dlrover_nb.core.runtime.checkpoints.keeper import FlashCheckpoint
from dlrover_nb.core.runtime.checkpoints.memory_names import MemoryClaim, free_memory, run_name, sweep_memory

FOLDER = Path("/jobs/a-run")


def claimed(shm):
    return contextlib.closing(MemoryClaim("a", FOLDER, shm=shm))


def names(shm):
    return sorted(path.name for path in shm.iterdir())


@pytest.fixture
def leave(shm, arrays):
    """Leave a copy behind, as a PS does that is killed."""

    def _leave(job="a", folder=FOLDER, node="ps-0", number=1):
        keeper = FlashCheckpoint(job, folder, node, shm=shm)
        part = keeper.copy(number, {}, arrays())
        keeper.close(unlink=False)
        return part.name

    return _leave


def test_memory_of_a_job_without_a_process_is_swept(shm, leave):
    left = [leave(), leave(node="ps-1"), leave(job="a-b")]
    assert set(left) == set(names(shm))
    assert set(left) <= set(sweep_memory(shm=shm))
    assert names(shm) == []


def test_memory_that_is_claimed_stays_for_as_long(shm, leave):
    with claimed(shm), claimed(shm):
        left = leave()
        assert sweep_memory(shm=shm) == ()
        assert left in names(shm)
    sweep_memory(shm=shm)
    assert names(shm) == []


def test_the_last_claim_leaves_nothing_where_there_are_no_buffers(shm):
    with claimed(shm):
        with claimed(shm):
            pass
        assert names(shm) == [f"{run_name('a', FOLDER)}.claim"]
    assert names(shm) == []


def test_a_claim_ends_with_a_process_that_is_killed(shm, leave):
    left = leave()
    code = (
        "import sys, pathlib; from dlrover_nb.core.runtime.checkpoints.memory_names import MemoryClaim as c\n"
        f"claim = c('a', {str(FOLDER)!r}, shm=pathlib.Path({str(shm)!r}))\n"
        "print('claimed', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"claimed\n"
        assert sweep_memory(shm=shm) == ()
        process.kill()
    assert left in sweep_memory(shm=shm)
    assert names(shm) == []


def test_a_run_is_freed_at_its_end_and_no_other(shm, leave):
    left, other = leave(), leave(folder=Path("/jobs/another"))
    with claimed(shm):
        free_memory("a", FOLDER, shm=shm)
        assert left not in names(shm)
        assert other in names(shm)
    assert names(shm) == [other]


def test_a_job_whose_name_begins_like_another_is_told_apart(shm, leave):
    left = leave(job="a-0123456789ab-b")
    free_memory("a", FOLDER, shm=shm)
    assert names(shm) == [left]


def test_files_of_others_are_left_alone(shm):
    (shm / "dlrover-nb-notes").write_text("mine")
    (shm / "psm_1234").write_text("mine")
    assert sweep_memory(shm=shm) == ()
    assert names(shm) == ["dlrover-nb-notes", "psm_1234"]


def test_a_claim_that_was_swept_while_it_was_waited_for_is_made_again(shm):
    with claimed(shm):
        free_memory("a", FOLDER, shm=shm)  # by another master of the same run
        with claimed(shm):
            assert names(shm) == [f"{run_name('a', FOLDER)}.claim"]


def test_without_shared_memory_there_is_nothing_to_claim_or_sweep(shm):
    shm.rmdir()
    with claimed(shm):
        assert sweep_memory(shm=shm) == ()
    free_memory("a", FOLDER, shm=shm)
