"""Masters of the local head, asked without Ray: over HTTP on loopback, at the port in their run folder.

A call of the command line asks one master one thing. Ray's client takes most of a second of CPU time to load
and to connect for that, and the answer some milliseconds. So a master on the local head serves its calls as
the master of a local job does, beside its actor's method; the owner of the run folder finds it there.

A record may be stale: Ray restarts a killed master in another process, and ids of processes are reused. It
counts only while the process is the one that wrote it and belongs to the session of the head that runs now,
which no other user's process and no other head's can. Otherwise Ray is asked, which waits for a master that
comes back.

`ray-head.json` is written by the client that submits, so that a list of jobs knows of those that have no
address yet. Masters that other releases started are seen by the names of their processes.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from dlrover_nb.core.backends.local.link import NoAnswerError, post
from dlrover_nb.core.backends.local.record import MasterRecord, read_master, write_master, write_private
from dlrover_nb.core.client.link.call_ends import CallLink
from dlrover_nb.core.client.link.calls import ONCE
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.driver.detached import start_time
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.rundir.locate import newest_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dlrover_nb.core.backends.ray.head import HeadRecord
    from dlrover_nb.core.client.link.calls import Answer, Call

logger = logging.getLogger(__name__)

HEAD = "ray-head.json"
CALL_LIMIT_S = 30.0
TITLES = ("ray::RayMaster", "ray::RayProgramsMaster")  # of their processes, by their classes' names


@dataclass(frozen=True, slots=True)
class HeadOfRun:
    """The local head that a run was submitted to: its session, and when that was started."""

    session: int
    started_at_s: float


def write_head(folder: Path, head: HeadRecord) -> None:
    """Write into a new run folder which head the job goes to."""
    write_private(folder / HEAD, to_json(HeadOfRun(head.session, head.started_at_s)))


def write_address(folder: Path, port: int, access: str) -> None:
    """Write where this process, the master of a run, answers; on a full disk clients ask by Ray instead."""
    pid = os.getpid()
    try:
        write_master(folder, MasterRecord(pid, start_time(pid), port, access))
    except OSError as error:
        logger.warning("calls come to this master by Ray alone, as its address was not written: %s", error)


def runs_of(head: HeadRecord) -> dict[str, Path]:
    """Return the newest run folder of each job that was submitted to a head."""
    of_head = HeadOfRun(head.session, head.started_at_s)
    runs = newest_runs(jobs_folder(), HEAD)
    return {job: folder for job, folder in runs.items() if _read_head(folder) == of_head}


def _read_head(folder: Path) -> HeadOfRun | None:
    try:
        return from_json((folder / HEAD).read_bytes(), HeadOfRun)
    except (OSError, WireError):
        return None


def address_of(folder: Path, head: HeadRecord) -> MasterRecord | None:
    """Return where the master of a run answers; None: it has not begun, was killed, or is of another head."""
    record = read_master(folder)
    if record is None or not record.is_alive or _session(record.pid) != head.session:
        return None
    return record


def has_other_masters(head: HeadRecord, pids: set[int]) -> bool:
    """Whether a master runs on a head besides these processes, as one of another release does."""
    of_head = (pid for pid in psutil.pids() if pid not in pids and _session(pid) == head.session)
    return any(_title(pid).startswith(TITLES) for pid in of_head)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # it has ended, or belongs to another user
        return None


def _title(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline()[:1])
    return ""


class NearLink(CallLink):
    """Link to the master of a run on the local head, by Ray only while that has no address.

    Parameters
    ----------
    job, folder
        The job, and its run folder.
    head
        The head that it runs on.
    by_ray
        Sends a call to the job's master through Ray, and returns the answer.
    limit_s
        Seconds to wait for one answer.
    """

    def __init__(
        self,
        job: str,
        folder: Path,
        head: HeadRecord,
        by_ray: Callable[[Call], Answer],
        *,
        limit_s: float = CALL_LIMIT_S,
    ) -> None:
        super().__init__()
        self._job, self._folder, self._head = job, folder, head
        self._by_ray, self._limit_s = by_ray, limit_s

    def send(self, call: Call) -> Answer:
        """Send a call; where the master was killed, through Ray, which restarts it."""
        record = address_of(self._folder, self._head)
        if record is not None:
            try:
                return post(record, call, self._job, limit_s=self._limit_s)
            except NoAnswerError:
                if isinstance(call, ONCE):
                    raise
        return self._by_ray(call)


def addresses(runs: Mapping[str, Path], head: HeadRecord) -> dict[str, MasterRecord] | None:
    """Return where the masters of a head answer, by job; None where that is not known of all of them."""
    records: dict[str, MasterRecord] = {}
    for job, folder in runs.items():
        if (record := address_of(folder, head)) is None:
            return None
        records[job] = record
    return None if has_other_masters(head, {record.pid for record in records.values()}) else records
