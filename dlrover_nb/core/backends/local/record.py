"""Files in the run folder of a local job by which clients find its master.

The folder is closed to other users. `submission.json` holds what a client submits, `master.json` the address
of the running master and its token, `supervisor.json` what starts that again when it is killed
(`master_supervisor`), `end.bin` the last snapshot of a job that has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local import master_supervisor
from dlrover_nb.core.codec import from_checked_json, to_checked_json
from dlrover_nb.core.disk.files import replace_synced
from dlrover_nb.core.driver.detached import is_alive
from dlrover_nb.core.driver.past.finished_job import pack_snapshot, unpack_snapshot
from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.rundir.job_file import submit_from
from dlrover_nb.core.structs.data.features import FeatureSpec  # noqa: TC001 - decoded by its annotations
from dlrover_nb.core.structs.job.job import JobSpec  # noqa: TC001 - decoded by its annotations

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

SUBMISSION, LOG = "submission.json", "master.log"
MASTER, END, START_LOCK = master_supervisor.MASTER, master_supervisor.END, master_supervisor.START_LOCK
SUPERVISOR = master_supervisor.SUPERVISOR
PROGRESS = "master.progress"  # what a master does that continues the job, in words; not there otherwise
MOST_BYTES = 64 << 20  # of a last snapshot
LEAVE_LIMIT_S = 5.0  # of a supervisor without a master, or with one that is just starting


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as a client submits it.

    Parameters
    ----------
    cpus
        The cores that it may use; None: all of the machine.
    working_folder, report_token
        Where the programs of an external job run, and with which token they report.
    """

    spec: JobSpec
    features: FeatureSpec
    cpus: float | None = None
    working_folder: str = ""
    report_token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class MasterRecord:
    """A master's address: its process, its port on loopback, and the token that it requires."""

    pid: int
    started_at_s: float
    port: int
    access: str = field(repr=False)

    @property
    def is_alive(self) -> bool:
        """Whether that process still runs."""
        return is_alive(self.pid, self.started_at_s)


@dataclass(frozen=True, slots=True)
class SupervisorRecord:
    """What starts a job's master again.

    Parameters
    ----------
    pid
        Its process.
    is_alive
        Whether that runs.
    words
        Why there is no master, and what follows; empty: there is one, or nothing is known.
    """

    pid: int
    is_alive: bool
    words: str = ""


def read_supervisor(folder: Path) -> SupervisorRecord | None:
    """Return what starts a run's master again, alive or not; None: there has been none."""
    try:
        with (folder / SUPERVISOR).open("rb") as file:
            is_alive = _is_locked(file)
            text = json.loads(file.read())
        is_known = is_alive or not text["is_waiting"]  # one that was killed starts nothing again
        return SupervisorRecord(int(text["pid"]), is_alive, str(text["words"]) if is_known else "")
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def end_supervisor(folder: Path) -> None:
    """End what would start a run's master again, and the master that it is just starting."""
    end_s, number = time.monotonic() + LEAVE_LIMIT_S, signal.SIGTERM
    while (supervisor := read_supervisor(folder)) is not None and supervisor.is_alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor.pid, number)
        if time.monotonic() > end_s:
            number = signal.SIGKILL  # it was stopped
        time.sleep(0.02)


def write_private(path: Path, data: bytes) -> None:
    """Write a file for its owner alone, replacing an old one atomically."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    replace_synced(temporary, path)


def write_submission(folder: Path, submission: Submission) -> None:
    """Write what a client submits."""
    write_private(folder / SUBMISSION, to_checked_json(submission))


def read_submission(folder: Path) -> Submission:
    """Return what a client submitted.

    Raises
    ------
    CheckpointError
        When its file is gone or damaged.
    """
    path = folder / SUBMISSION
    try:
        return from_checked_json(path.read_bytes(), Submission)
    except (OSError, WireError) as error:
        what = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else f"is damaged: {error}"
        way_out = f"restore it from a backup, or {submit_from(folder)}"
        raise CheckpointError(f"{path} {what}; {way_out}") from error


def read_master(folder: Path) -> MasterRecord | None:
    """Return the address of a run's master, alive or not; None before it has begun."""
    try:
        return from_checked_json((folder / MASTER).read_bytes(), MasterRecord)
    except (OSError, WireError):
        return None


def write_master(folder: Path, record: MasterRecord) -> None:
    """Write the master's address for clients."""
    write_private(folder / MASTER, to_checked_json(record))


def read_end(folder: Path) -> JobSnapshot | None:
    """Return the last snapshot of a run; None while it has not ended, or its master was killed.

    Raises
    ------
    CheckpointError
        When it is damaged.
    """
    try:
        return unpack_snapshot((folder / END).read_bytes())
    except OSError:
        return None
    except WireError as error:
        raise CheckpointError(
            f"{folder / END}, the last snapshot of the job, is damaged: {error}; delete that file, and "
            "attach the job again: it is rebuilt from its log"
        ) from error


def has_ended(folder: Path) -> bool:
    """Whether the last snapshot of a run is written; it is not read for that, as lists have many runs."""
    return (folder / END).exists()


def write_end(folder: Path, snapshot: JobSnapshot) -> None:
    """Write the last snapshot of a run."""
    write_private(folder / END, pack_snapshot(snapshot, most_bytes=MOST_BYTES))
