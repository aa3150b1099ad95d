"""Run one node in its pod: ``python -m dlrover_nb.core.runtime.pod``.

A pod gets its configuration from the job's Secret (`PodJob`), from variables, and from a file that names the
master's endpoint and changes when a restarted master has another address. From these it makes the
`NodeConfig` that nodes elsewhere get as a whole.

Exit codes are those of `core.runtime.node`. One line with the reason of a failure is written where the
kubelet reads it, so that the status of the pod shows it after its log is gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.runtime.node.node import run
from dlrover_nb.core.runtime.pod.staging import receive
from dlrover_nb.core.runtime.process.agent import read_endpoint
from dlrover_nb.core.runtime.process.container import ContainerLimits, charged_bytes
from dlrover_nb.core.runtime.process.output import log_lines
from dlrover_nb.core.runtime.process.time_accounting import own_memory
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from dlrover_nb.core.structs.wire.pod_contract import (
    CPU_VAR,
    END_FILE,
    FOLDER_VAR,
    IP_VAR,
    JOB_FILE,
    MASTER_FILE,
    MEMORY_VAR,
    NODE_VAR,
    ROLE_VAR,
    PodJob,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

_log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_EVERY_S = 0.2
VALUE_LIMIT_S = 120.0  # the kubelet updates a changed Secret in its pods within about a minute
MOST_LETTERS = 2000  # of the line why a pod failed; the kubelet keeps 4096 bytes


def read_pod_job(path: Path = Path(JOB_FILE)) -> PodJob:
    """Return the job of this pod.

    Raises
    ------
    NotFoundError
        When the Secret is not there.
    WireError
        When its content is invalid.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFoundError(
            f"the pod has no {path} ({error.strerror}); mount the job's Secret there"
        ) from error
    return from_json(data, PodJob)


def node_config(job: PodJob, variables: Mapping[str, str], *, master: str) -> NodeConfig:
    """Return the configuration of the node that the pod's variables describe.

    Raises
    ------
    InvalidValueError
        When a variable is missing or invalid.
    """
    if job.features is None:
        raise InvalidValueError(
            "expected the features of the job's data, got none; its master writes them before nodes start"
        )
    address = _variable(variables, IP_VAR)
    return NodeConfig(
        node=_variable(variables, NODE_VAR),
        role=_parsed(variables, ROLE_VAR, Role),
        spec=job.spec,
        features=job.features,
        cpu=_parsed(variables, CPU_VAR, float),
        memory_mib=_parsed(variables, MEMORY_VAR, int),
        master=master,
        listen=f"tcp://[{address}]" if ":" in address else f"tcp://{address}",
        folder=_variable(variables, FOLDER_VAR),
        public_key=job.public_key,
        secret_key=job.secret_key,
        master_file=MASTER_FILE,
        batch_costs=job.batch_costs,
    )


def _variable(variables: Mapping[str, str], name: str) -> str:
    if not variables.get(name):
        raise InvalidValueError(f"variable {name} must be set, got none; let the job's master create the pod")
    return variables[name]


def _parsed(variables: Mapping[str, str], name: str, kind: Callable[[str], T]) -> T:
    text = _variable(variables, name)
    try:
        return kind(text)
    except ValueError as error:
        raise InvalidValueError(f"expected a value in variable {name}, got {text!r}") from error


def await_value(read: Callable[[], T | None], what: str, *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Poll until a value is available.

    Raises
    ------
    BackendError
        When it is not available within the limit.
    """
    for _ in range(round(VALUE_LIMIT_S / POLL_EVERY_S)):
        if (value := read()) is not None:
            return value
        sleep(POLL_EVERY_S)
    raise BackendError(
        f"the pod did not get {what} within {VALUE_LIMIT_S:g} s; check the log of the job's master"
    )


def _prepared_job() -> PodJob | None:
    """Return the job once its data are known; a Secret that was changed comes to its pods a little later."""
    job = read_pod_job()
    return job if job.features is not None else None


def run_pod() -> None:
    """Run the node of this pod to its end; raises as `node.run` does, and what is wrong before it."""
    job = await_value(_prepared_job, "the features of the job's data")
    master = await_value(lambda: read_endpoint(MASTER_FILE) or None, "the endpoint of the job's master")
    config = node_config(job, os.environ, master=master)
    receive(job.spec, Path(config.folder), url=job.code_url)
    run(config, limits=ContainerLimits(), memory=_memory)


def _memory() -> int:
    """Return the bytes that count against the pod's limit, or those of the process where that is unknown."""
    charged = charged_bytes()
    return own_memory() if charged is None else charged


def write_end_message(error: BaseException, path: Path = Path(END_FILE)) -> str:
    """Write one line with the reason of a failure for the pod's status; return it."""
    text = str(error) if isinstance(error, DlroverError) else f"{type(error).__name__}: {error}"
    line = " ".join(text.split())[:MOST_LETTERS]
    with contextlib.suppress(OSError):  # no such file outside a pod
        path.write_text(line)
    return line


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def main() -> int:
    """Run this pod's node; return the exit code."""
    log_lines()
    signal.signal(signal.SIGTERM, _exit)  # the first process of a pod ignores signals without a handler
    try:
        run_pod()
    except DlroverError as error:
        _log.error("%s", write_end_message(error))
        return 1
    except Exception as error:  # noqa: BLE001 - a bug ends the pod too, and is logged with its traceback
        _log.exception("%s", write_end_message(error))
        return 1
    return 0
