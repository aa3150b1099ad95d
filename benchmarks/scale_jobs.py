"""A thousand jobs, or ten thousand, in one process of clients: what a list of them costs.

Run folders of ended jobs of this machine, as masters leave them (submission, address of the master, last
snapshot), and their runs in the history. Each has its own name. The list is that of `%dlrover jobs`, of the
dashboard and of the API: `Cluster.jobs`, called a few times as a page does that stays open.

first_s, first_cpu_s  the first list in a process, on the clock and of a core
list_s, list_cpu_s    each one after it, the median
folder_us             CPU time of a list for each job
client_mib            memory that the process holds more, after all lists

    python benchmarks/scale_jobs.py [--whole]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from lengths import parsed, print_figures

from dlrover_nb.core.backends.local.cluster import connect_local
from dlrover_nb.core.backends.local.record import (
    SUBMISSION,
    MasterRecord,
    Submission,
    write_end,
    write_master,
    write_private,
)
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.connect import connect
from dlrover_nb.core.data import make_features
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.rundir.locate import new_run_folder
from dlrover_nb.core.runtime.process.time_accounting import own_memory
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.views.events import PhaseChanged

NO_PROCESS = 2**22 + 1  # above the most that Linux gives
N_LIST = 5
MIB = 1 << 20


def write_jobs(n_job: int) -> None:
    """Leave jobs as they are after their end, each with the snapshot of a simulated one."""
    spec, cluster = JobSpec("scale"), connect("sim")
    handle = cluster.submit(spec)
    while (snapshot := handle.snapshot()).samples_per_s == 0:
        time.sleep(0.05)  # a simulated job reports some times a second
    snapshot = replace(snapshot, phase=JobPhase.SUCCEEDED, ended_at_s=snapshot.at_s, series=handle.series())
    cluster.shutdown(force=True)
    store, first = HistoryStore(None), new_run_folder("scale-0")
    write_private(first / SUBMISSION, to_json(Submission(spec, make_features(spec.data, spec.model))))
    write_master(first, MasterRecord(NO_PROCESS, 0.0, 1, "none"))
    write_end(first, snapshot)
    for number in range(n_job):
        name = f"scale-{number}"
        if number:
            shutil.copytree(first, new_run_folder(name), dirs_exist_ok=True)
        store.remember(name, float(number), replace(spec, name=name))
        store.remember(name, number + 0.5, PhaseChanged(number + 0.5, JobPhase.SUCCEEDED, "trained"))
    store.close()


def listed(n_job: int) -> tuple[float, float]:
    """List all jobs; return the seconds that this took, and those of a core."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    found = connect_local().jobs()
    assert len(found) == n_job, len(found)
    assert all(each.phase is JobPhase.SUCCEEDED for each in found)
    return time.perf_counter() - began_s, time.process_time() - cpu_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1_000)
    n_job = parsed(parser, jobs=10_000).jobs
    with tempfile.TemporaryDirectory(prefix="dn") as root:
        os.environ |= {f"XDG_{kind}_HOME": str(Path(root) / kind.lower()) for kind in ("STATE", "DATA")}
        write_jobs(n_job)
        before = own_memory()
        first, *rest = (listed(n_job) for _ in range(N_LIST + 1))
        list_s, list_cpu_s = (statistics.median(column) for column in zip(*rest, strict=True))
        found = {
            "jobs": n_job,
            "first_s": round(first[0], 2),
            "first_cpu_s": round(first[1], 2),
            "list_s": round(list_s, 2),
            "list_cpu_s": round(list_cpu_s, 2),
            "folder_us": round(1e6 * list_cpu_s / n_job, 1),
            "client_mib": round((own_memory() - before) / MIB, 1),
        }
    print_figures("scale_jobs", found)


if __name__ == "__main__":
    main()
