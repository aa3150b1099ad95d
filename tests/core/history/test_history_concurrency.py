"""Several processes make, migrate, write and thin one history at once; nothing is lost, nothing locked."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.waiting import LIMIT_S

from dlrover_nb.core.history import HistoryStore

pytestmark = pytest.mark.more

N_PROCESS, N_RECORD = 4, 50

PROGRAM = f"""
import sys
from dlrover_nb.core.history import HistoryStore, Thinning
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.views.past_jobs import SeriesRow
url, job, role = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
store = HistoryStore(url)
if role == "write":
    store.remember(job, 1.0, JobSpec(job))
    for i in range({N_RECORD}):
        store.remember(job, 2.0 + i, Decision(Verdict.SCALE, "ada", 2.0 + i, id=f"d{{i}}"))
        store.remember(job, 2.0 + i, SeriesRow(60.0 * (i + 1), 60.0, 10.0, 1, 1, 5.0, 5.0))
else:
    for i in range({N_RECORD}):
        store.compact(60.0 * {N_RECORD}, [Thinning(600.0, 600.0)])
        store.jobs(), store.past_jobs(), store.scores()
"""


@pytest.fixture
def at_once(url):
    """Start programs that all go off together, and wait for their good end."""

    def run(*jobs_and_roles):
        programs = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, url, job, role],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for job, role in jobs_and_roles
        ]
        for program in programs:
            program.stdout.readline()
        for program in programs:
            program.stdin.write("go\n")
            program.stdin.flush()
        told = [program.communicate(timeout=LIMIT_S)[1] for program in programs]
        assert [program.returncode for program in programs] == [0] * len(programs), "\n".join(told)
        return HistoryStore(url)

    return run


def _total(store, job):
    return sum(row.samples_per_s * row.span_s for row in store.series(job))


@pytest.mark.release_variants("sqlite")
def test_processes_that_find_no_tables_make_them_once_and_lose_nothing(at_once):
    jobs = [f"job-{i}" for i in range(N_PROCESS)]
    store = at_once(*((job, "write") for job in jobs))
    assert [len(store.decisions(job)) for job in jobs] == [N_RECORD] * N_PROCESS
    assert [len(store.series(job)) for job in jobs] == [N_RECORD] * N_PROCESS


@pytest.mark.release_variants("sqlite")
def test_two_masters_of_one_run_write_each_record_once(at_once):
    store = at_once(("same", "write"), ("same", "write"))
    assert len(store.jobs()) == 1
    assert len(store.decisions("same")) == len(store.series("same")) == N_RECORD


@pytest.mark.release_variants("sqlite")
def test_thinning_while_others_write_changes_no_total(at_once):
    store = at_once(("one", "write"), ("two", "write"), ("", "compact"), ("", "compact"))
    assert [_total(store, job) for job in ("one", "two")] == [pytest.approx(600.0 * N_RECORD)] * 2
    assert [len(store.decisions(job)) for job in ("one", "two")] == [N_RECORD] * 2
