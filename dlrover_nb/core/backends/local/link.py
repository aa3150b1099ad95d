"""Client link to the master of a local job: HTTP on loopback, to the port in the run folder.

A killed master is started again by its supervisor; where that was killed too, by the client that notices it.
Before each request the client checks that the process in `master.json` is the one that wrote it: otherwise
the token could be sent to another program that got its port.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import sys
import time
from shutil import disk_usage
from typing import TYPE_CHECKING

from dlrover_nb.core import errors
from dlrover_nb.core.backends.local import master_supervisor
from dlrover_nb.core.backends.local.record import (
    LOG,
    PROGRESS,
    START_LOCK,
    end_supervisor,
    read_end,
    read_master,
    read_supervisor,
)
from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.client.link.call_ends import CallHandler, CallLink, unpack_answer
from dlrover_nb.core.client.link.calls import CALLS, ONCE
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, CALL_PATH
from dlrover_nb.core.driver.detached import is_alive, last_lines, spawn, start_time
from dlrover_nb.core.driver.past.finished_job import FinishedJob
from dlrover_nb.core.errors import AwayError, BackendError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.backends.local.record import MasterRecord
    from dlrover_nb.core.client.link.calls import Answer, Call

MODULE = "dlrover_nb.core.backends.local"
START_LIMIT_S = 90.0
CALL_LIMIT_S = 30.0
POLL_S = 0.05


class LocalLink(CallLink):
    """Link to the master of a run folder on this machine.

    Parameters
    ----------
    job
        The job's name.
    folder
        The run folder.
    limit_s
        Seconds to wait for one answer.
    """

    def __init__(self, job: str, folder: Path, *, limit_s: float = CALL_LIMIT_S) -> None:
        super().__init__()
        self._job, self._folder, self._limit_s = job, folder, limit_s
        self._ended: CallHandler | None = None

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._folder

    def send(self, call: Call) -> Answer:
        """Send a call; if the master was killed, restart it first."""
        try:
            return self._ask(call)
        except NoAnswerError:
            if isinstance(call, ONCE):
                raise
            return self._ask(call)

    def _ask(self, call: Call) -> Answer:
        if self._ended is not None:
            return self._ended.answer(call)
        record = read_master(self._folder)
        if record is None or not record.is_alive:
            if (last := self._end()) is not None:
                self._ended = last
                return last.answer(call)
            record = start_master(self._job, self._folder)
        return post(record, call, self._job, limit_s=self._limit_s)

    def _end(self) -> CallHandler | None:
        if not self._folder.exists():
            raise NotFoundError(f"job {self._job} was deleted; submit it again")
        last = read_end(self._folder)
        return None if last is None else CallHandler(FinishedJob(last))


class NoAnswerError(BackendError):
    """The answer was lost with the master, or with its connection."""


def post(record: MasterRecord, call: Call, job: str, *, limit_s: float = CALL_LIMIT_S) -> Answer:
    """Send a call to the master that a record names, and return its answer.

    Raises
    ------
    NoAnswerError
        When no answer came back: the master may have ended, with the call done or not.
    AwayError
        When it takes longer than `limit_s`.
    """
    connection = http.client.HTTPConnection("127.0.0.1", record.port, timeout=limit_s)
    try:
        connection.request("POST", CALL_PATH, CALLS.pack(call), {ACCESS_HEADER: record.access})
        response = connection.getresponse()
        body = response.read()
    except TimeoutError as error:
        raise AwayError(f"the master of job {job} did not answer within {limit_s:g} s; try again") from error
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(
            f"the master of job {job} (process {record.pid}) did not answer ({error}); try again"
        ) from error
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise BackendError(
            f"the master of job {job} refused a call ({response.status}); use the release of "
            "dlrover-nb that the job was submitted with"
        )
    return unpack_answer(body)


def start_master(job: str, folder: Path) -> MasterRecord:
    """Start the master of a run folder with its supervisor, or return the running one.

    It is safe for concurrent clients, and beside a supervisor that is about to start the master: that is
    ended, as a client does not want to wait for it.

    Raises
    ------
    DlroverError
        Why the job cannot begin, by its master.
    BackendError
        When no master starts.
    """
    with _locked(folder):
        record = read_master(folder)
        if record is not None and record.is_alive:
            return record
        end_supervisor(folder)
        supervisor = [sys.executable, "-I", "-S", master_supervisor.__file__, str(folder)]
        pid = spawn([*supervisor, sys.executable, "-m", MODULE, str(folder)], folder / LOG, os.environ)
        return _await_record(job, folder, pid)


def _await_record(job: str, folder: Path, pid: int) -> MasterRecord:
    """Return the address of the master that a supervisor starts for the first time."""
    started_at_s, progress = start_time(pid), ""
    end_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end_s:
        if (what := _progress(folder)) not in ("", progress):  # it continues the job, and gets on
            progress, end_s = what, time.monotonic() + START_LIMIT_S
            tell(f"the master of job {job}, which {what}")
        record = read_master(folder)
        if record is not None and record.is_alive:
            return record
        supervisor = read_supervisor(folder)
        has_ended = supervisor is not None and supervisor.pid == pid and bool(supervisor.words)
        if has_ended or not is_alive(pid, started_at_s):  # it may try again, but this client asks now
            raise _why_not_started(job, folder)
        time.sleep(POLL_S)
    raise BackendError(
        f"the master of job {job} did not start within {START_LIMIT_S:g} s; see {folder / LOG}, and try again"
    )


def _progress(folder: Path) -> str:
    try:
        return (folder / PROGRESS).read_text()
    except OSError:
        return ""


def _why_not_started(job: str, folder: Path) -> errors.DlroverError:
    """Return the error that ended a master before it began: the last line of its log names it."""
    if not (log_end := last_lines(folder / LOG)):
        return BackendError(
            f"the master of job {job} ended before it began, and wrote nothing to {folder / LOG} "
            f"({disk_usage(folder).free >> 20} MiB are free there); make room on that disk, or in memory"
        )
    name, _, text = last_lines(folder / LOG, 1).partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.DlroverError):
        return kind(text)
    return BackendError(f"the master of job {job} ended before it began: {log_end}")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / START_LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
