"""A local Ray head of our own: started, found, and ended without touching any other Ray.

A Ray that a notebook kernel starts dies with that kernel, and the job with it; so the head is a process
of its own session. It listens on loopback alone and requires a token (Ray's own token authentication),
because an open Ray port lets anyone who reaches it run code as us. Ray turns 127.0.0.1 into the machine's
outside address unless its clusters are switched off for the platform: that switch is what `_ray_environment`
sets. `ray stop` would end every Ray of this machine; we end the processes of the one session that we started,
by pid.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.disk.files import writing_to
from dlrover_nb.core.disk.paths import state_folder
from dlrover_nb.core.driver.detached import has_started_since, is_alive, last_lines, spawn, start_time
from dlrover_nb.core.errors import BackendError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 600.0  # a start takes 5 s, on an overloaded machine minutes; an exit is noticed at once
STOP_TIMEOUT_S = 2.0  # the raylet is gone by then; the others would wait for it for up to 30 s
OBJECT_STORE_BYTES = 100 << 20  # parameters do not travel through it
LOOPBACK = "127.0.0.1"
OWN_PORTS = range(20_000, 32_768)  # below those that Linux gives to a program that asks for any
# With ports that it has to learn from its agents, the raylet aborts where one is not up within 15 s.
AGENT_PORTS = (
    "--dashboard-agent-grpc-port",
    "--dashboard-agent-listen-port",
    "--metrics-export-port",
    "--runtime-env-agent-port",
)
PATIENT_START = "dlrover_nb.core.backends.ray.patient_start"


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """The data to find a head, and to end it. `session` is its session id, the head's pid."""

    address: str
    session: int
    started_at_s: float
    folder: str
    cpus: float


def token_file() -> Path:
    """Return the file with the token of this user's local Ray, made on first use."""
    path = state_folder() / "ray-token"
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    return path


def ray_environment() -> dict[str, str]:
    """Return the settings that keep a local Ray private, for its processes and for its clients."""
    return {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else 127.0.0.1 is replaced by an outside address
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file()),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


def running_head() -> HeadRecord | None:
    """Return this user's local head; None when none is alive."""
    try:
        record = from_json(_record_file().read_bytes(), HeadRecord)
    except (FileNotFoundError, WireError):
        return None
    return record if _leader_alive(record) else None


def start_head(*, cpus: float | None = None) -> HeadRecord:
    """Start a local head, or return the running one; safe for concurrent processes.

    Parameters
    ----------
    cpus
        Cores to offer; by default those this process may use.

    Raises
    ------
    BackendError
        When Ray does not come up; the text ends with Ray's own last lines.
    """
    with _locked():
        if (record := running_head()) is not None:
            return record
        _remove_remains()
        record = _launch(cpus or len(os.sched_getaffinity(0)))
        _record_file().write_bytes(to_json(record))
        return record


def stop_head() -> bool:
    """End this user's local head with all its processes; False when there was none."""
    with _locked():
        try:
            record = from_json(_record_file().read_bytes(), HeadRecord)
        except (FileNotFoundError, WireError):
            return False
        alive = bool(_session_processes(record))
        _end_session(record)
        shutil.rmtree(record.folder, ignore_errors=True)
        _record_file().unlink(missing_ok=True)
        return alive


def _record_file() -> Path:
    return state_folder() / "ray-head.json"


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with writing_to(state_folder()):
        lock = (state_folder() / "ray-head.lock").open("w")
    with lock as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_remains() -> None:
    """End the processes that a dead head left, and remove its folder."""
    try:
        record = from_json(_record_file().read_bytes(), HeadRecord)
    except (FileNotFoundError, WireError):
        return
    _end_session(record)
    shutil.rmtree(record.folder, ignore_errors=True)
    _record_file().unlink(missing_ok=True)


def _launch(cpus: float) -> HeadRecord:
    folder = Path(tempfile.mkdtemp(prefix="dlrover-ray-"))  # short: Ray puts unix sockets below it
    log = folder / "head.log"
    pid = spawn(_command(folder, cpus), log, _process_environment())
    record = HeadRecord("", pid, start_time(pid), str(folder), cpus)
    try:
        address = _wait_for_address(pid, folder, log)
    except BaseException:
        _end_session(record)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    logger.info("started a local Ray head at %s with %g cores", address, cpus)
    return replace(record, address=address)


def _process_environment() -> Mapping[str, str]:
    """Return our environment with Ray's settings; nothing of an outer Ray (RAY_ADDRESS) is inherited.

    Ray gives its parts 30 s for their start, and starts workers with niceness 15: on a busy machine job
    masters would then miss heartbeats.
    """
    outer = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    patience = {
        "RAY_agent_register_timeout_ms": f"{START_TIMEOUT_S * 1000:.0f}",
        "RAY_gcs_server_port_wait_time_s": f"{START_TIMEOUT_S:.0f}",
        "RAY_worker_niceness": "0",
    }
    return outer | ray_environment() | patience


def _command(folder: Path, cpus: float) -> list[str]:
    return [
        *(sys.executable, "-m", PATIENT_START, "start", "--head", "--block"),
        *("--node-ip-address", LOOPBACK, "--port", "0", "--num-cpus", f"{cpus:g}"),
        *("--include-dashboard=false", "--disable-usage-stats"),
        *("--object-store-memory", str(OBJECT_STORE_BYTES), "--temp-dir", str(folder / "ray")),
        *(
            f"{option}={port}"
            for option, port in zip(AGENT_PORTS, _free_ports(len(AGENT_PORTS)), strict=True)
        ),
    ]


def _free_ports(n: int) -> list[int]:
    """Return free ports of the loopback interface that the system gives to no other program."""
    ports: list[int] = []
    while len(ports) < n:
        port = secrets.choice(OWN_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            if port not in ports:
                ports.append(port)
    return ports


def _wait_for_address(pid: int, folder: Path, log: Path) -> str:
    """Return the address that Ray writes when it is up; its file is there, and empty, a moment before."""
    address_file = folder / "ray" / "ray_current_cluster"
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if (ended := os.waitpid(pid, os.WNOHANG))[0]:
            code = os.waitstatus_to_exitcode(ended[1])
            raise BackendError(f"Ray did not start (exit code {code}); its last lines: {last_lines(log)}")
        is_up = b"Ray runtime started" in log.read_bytes() and address_file.exists()
        if is_up and (address := address_file.read_text().strip()):
            return address
        time.sleep(0.1)
    raise BackendError(f"Ray did not start within {START_TIMEOUT_S:g} s; its last lines: {last_lines(log)}")


def _leader_alive(record: HeadRecord) -> bool:
    return is_alive(record.session, record.started_at_s)


def _session_processes(record: HeadRecord) -> list[psutil.Process]:
    """Return the live processes of the session; its id is not reused while one of them lives."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) != record.session or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if has_started_since(process.pid, record.started_at_s):
                processes.append(process)
    return processes


def _end_session(record: HeadRecord) -> None:
    """Terminate the session's processes, leader last so that it does not restart any, then kill them."""
    for process in sorted(_session_processes(record), key=lambda p: p.pid == record.session):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    if _await_end(record, STOP_TIMEOUT_S):
        return
    for process in _session_processes(record):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _await_end(record, STOP_TIMEOUT_S)


def _await_end(record: HeadRecord, timeout_s: float) -> bool:
    """Wait until no process of the session lives; one that is dead but not yet reaped counts as gone."""
    end = time.monotonic() + timeout_s
    while _session_processes(record):
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)
    return True
