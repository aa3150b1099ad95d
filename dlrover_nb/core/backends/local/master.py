"""The master of a local job: ``python -m dlrover_nb.core.backends.local RUN_FOLDER [HOW_IT_ENDED]``.

A process of its own per job, started by the client that submits and detached from it, below a supervisor
that starts it again and says how the one before ended. It drives the job,
answers calls over HTTP on loopback, writes the last snapshot when the job has ended, and answers for a while
longer, so that views read the last telemetry. Restarted in the run folder of an unfinished job, it resumes
the job with the nodes that still run.

Calls come to a port of loopback. A Unix socket was rejected because its path may have 100 characters at most,
which home folders exceed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import secrets
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.backends.local.master_supervisor import DAMAGED, TERMINATED
from dlrover_nb.core.backends.local.record import (
    PROGRESS,
    MasterRecord,
    Submission,
    read_submission,
    write_end,
    write_master,
)
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.disk.files import writing_to
from dlrover_nb.core.driver.calls.http_server import LOOPBACK, ThreadedServer
from dlrover_nb.core.driver.calls.service import REPORT_PATH, MasterService
from dlrover_nb.core.driver.detached import start_time
from dlrover_nb.core.errors import CheckpointError, DlroverError
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.pruning import prune
from dlrover_nb.core.runtime.process.lasting_imports import collect_rarely, lasting_imports
from dlrover_nb.core.runtime.process.output import log_lines
from dlrover_nb.core.structs.decisions.call_rights import BY_TOKEN_ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from dlrover_nb.core.driver.external.external_inputs import StepReports
    from dlrover_nb.core.driver.external.external_job import ExternalJob
    from dlrover_nb.core.driver.own.own_job import OwnJob


logger = logging.getLogger(__name__)

NOT_KNOWN = "ended together with its supervisor or with the machine, and a client asked for it"
LINGER_S = 300.0  # to keep answering after the job's end


def driver_of(
    folder: Path, service: MasterService, server: ThreadedServer, how_ended: str = NOT_KNOWN
) -> OwnJob | ExternalJob:
    """Return the loop of the job in a run folder: a new one, or one that resumes it.

    Parameters
    ----------
    service, server
        Where the programs of an external job report, and what serves that.
    how_ended
        How the master before this one ended, if there was one.
    """
    submission = read_submission(folder)
    if submission.spec.foreign is not None:
        return _programs_driver(folder, submission, service, server, how_ended)
    backend = LocalBackend(folder, cpus=submission.cpus, outlive=True, keeps_spare=True)
    if not (folder / JOB).exists():
        backend.prepare(submission.spec.plan.worker)
    with lasting_imports():
        from dlrover_nb.core.driver.own import own_job  # noqa: PLC0415 - while the first workers import

    setup = own_job.RunSetup(backend, folder, history_url=None, clock=SystemClock())
    if not (folder / JOB).exists():
        return own_job.begin(submission.spec, submission.features, setup)
    with _progress_writer(folder) as on_progress:
        return own_job.resume(replace(setup, how_ended=how_ended), on_progress=on_progress)


def _programs_driver(
    folder: Path, submission: Submission, service: MasterService, server: ThreadedServer, how_ended: str
) -> ExternalJob:
    # few jobs are external, and their masters' modules are many
    from dlrover_nb.core.backends.local.programs import LocalPrograms  # noqa: PLC0415 - see above
    from dlrover_nb.core.driver.calls.certificate import certificate_of  # noqa: PLC0415 - see above
    from dlrover_nb.core.driver.external import external_job  # noqa: PLC0415 - see above

    reports: StepReports = queue.SimpleQueue()
    token, clock = submission.report_token, SystemClock()
    certificate = certificate_of(folder, LOOPBACK, clock)
    server.encryption = certificate.context
    service.take_reports(token, reports.put)
    backend = LocalPrograms(
        folder,
        token=token,
        certificate=certificate.text,
        working_folder=submission.working_folder,
        cpus=submission.cpus,
    )
    with _progress_writer(folder) as on_progress:
        around = external_job.Surroundings(
            folder,
            None,
            clock,
            server.url + REPORT_PATH,
            reports,
            on_progress,
            features=submission.features,
        )
        service.take_calls(token, around.calls)
        if (folder / JOB).exists():
            return external_job.resume(backend, replace(around, how_ended=how_ended))
        return external_job.begin(submission.spec, backend, around)


@contextlib.contextmanager
def _progress_writer(folder: Path) -> Iterator[Callable[[str], None]]:
    """Give a function that writes to a file what is done, for the client that waits."""
    progress = folder / PROGRESS

    def on_progress(what: str) -> None:
        with contextlib.suppress(OSError):  # a full disk keeps no master from resuming
            progress.write_text(what)

    try:
        yield on_progress
    finally:
        progress.unlink(missing_ok=True)


def run(folder: Path, how_ended: str = NOT_KNOWN) -> int:
    """Drive the job of a run folder to its end, and answer calls; return the exit code."""
    may_leave = threading.Event()

    def leave(_signal: int, _frame: FrameType | None) -> None:
        """Exit; at once while the job runs, as if killed, so that the next master resumes it.

        A job that has just ended is put away first: its last snapshot, and its memory on this machine.
        """
        if not driver.has_ended:
            os._exit(TERMINATED)
        may_leave.set()

    service = MasterService(access := secrets.token_hex(32), BY_TOKEN_ALONE)
    server = ThreadedServer(service)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    driver = driver_of(folder, service, server, how_ended)
    driver.start()
    signal.signal(signal.SIGTERM, leave)
    service.serve(driver)
    threading.Thread(target=prune, args=(folder.parent, time.time()), name="prune", daemon=True).start()
    pid = os.getpid()
    with writing_to(folder):
        write_master(folder, MasterRecord(pid, start_time(pid), server.server_port, access))
    driver.join()
    write_end(folder, driver.last_snapshot())
    may_leave.wait(LINGER_S)
    return 0


def main() -> int:
    """Run the master of the run folder that the command line names."""
    collect_rarely()
    log_lines()
    try:
        return run(Path(sys.argv[1]), *sys.argv[2:])
    except DlroverError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")  # `link.start_master` reads it
        return DAMAGED if isinstance(error, CheckpointError) else 1


if __name__ == "__main__":  # a supervisor of an earlier release names this module
    sys.exit(main())
