"""Slow a node for as long as a ``with`` block lasts, or until `close`.

The work is done by a process of its own (`injector`). A thread here passes it the reports of the node, and
ends it when the node or the job has ended. Should that process be killed, the thread undoes what is on record
(`holding`); should this process be killed, the other one does. `restore` is for the case that both were.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.testing.faults.holding import held, held_nodes
from dlrover_nb.testing.faults.patterns import Persistent, Transient, single
from dlrover_nb.testing.faults.target import Snapshots, Target, find_target
from dlrover_nb.testing.faults.ways import Answer, CpuShare, Latency, News, Order, Way

if TYPE_CHECKING:
    from types import TracebackType

logger = logging.getLogger(__name__)

MODULE = "dlrover_nb.testing.faults.injector"
POLL_S = 0.5  # of the job's snapshot: a node reports once a second
END_LIMIT_S = 10.0  # for the injector to let go


class Fault:
    """A node that is slowed; made by `slow`.

    Attributes
    ----------
    node
        Its name.
    how
        In words, what is done to it.
    """

    def __init__(self, job: Snapshots, target: Target, order: Order) -> None:
        self._job, self._target, self._ended = job, target, ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # neither a Ctrl-C nor the end of a kernel's group reaches it
        )
        self._write(order)
        self.node, self.how = target.node, self._begun().how
        self._closes = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"fault of {self.node}", daemon=True)
        self._thread.start()

    @property
    def injector(self) -> int:
        """Id of the process that slows the node."""
        return self._process.pid

    @property
    def ended(self) -> str:
        """Why the node is no longer slowed; empty: it is."""
        return "" if self._thread.is_alive() else self._ended

    def close(self) -> None:
        """Let the node go, and return when it runs as before."""
        self._closes.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _begun(self) -> Answer:
        answer = self._read()
        if not answer.how:
            self._finish()
            if answer.refused:
                raise InvalidValueError(answer.refused)
            raise BackendError(
                f"{self._target.node} is not slowed: {answer.ended or 'the injector failed; see above'}"
            )
        return answer

    def _follow(self) -> None:
        """Pass on reports until the fault or the node ends."""
        last_s = 0.0
        while not self._closes.wait(POLL_S) and self._process.poll() is None:
            try:
                snapshot = self._job.snapshot()
            except DlroverError as error:  # without news the injector lets the node run
                logger.info("no news of %s: %s", self.node, error)
                continue
            view = next((view for view in snapshot.nodes if view.id == self.node), None)
            if view is None or snapshot.phase.is_final:
                break
            if view.last is not None and view.last.at_s > last_s:
                last_s = view.last.at_s
                self._write(News(view.last.iter_s))
        self._finish()

    def _finish(self) -> None:
        """End the injector, and undo what it did if it was killed."""
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._ended = self._read().ended or "its injector was killed"
        assert self._process.stdout is not None
        self._process.stdout.close()
        with contextlib.suppress(InvalidValueError):  # another fault has begun, and has undone it
            _restore(self._target.folder, self._target.node)

    def _read(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return from_json(line, Answer) if line else Answer()

    def _write(self, record: Order | News) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and its answer says why
            self._process.stdin.write(to_json(record) + b"\n")
            self._process.stdin.flush()


def slow(job: Snapshots, node: str, way: Way, *, began_up_s: float | None = None) -> Fault:
    """Slow a node of a job that runs on this machine, until the result is closed or the node ends.

    Parameters
    ----------
    job
        A job of ``connect("local")`` or of a Ray of this machine.
    node
        Name of a worker or PS, such as ``worker-1``.
    way
        A pattern of delays (`Persistent`, `Transient`, `Together`), a `CpuShare`, or, for a PS, a `Latency`.
    began_up_s
        When a pattern began, by ``time.monotonic()``, so that several nodes follow one; None: now.

    Returns
    -------
    Fault
        A context manager; its ``how`` says what is done to which process.

    Raises
    ------
    NotFoundError
        When the job has no such node.
    InvalidValueError
        When the node does not run on this machine, or is slowed already; nothing was changed.
    BackendError
        When it ended meanwhile.

    Examples
    --------
    >>> with slow(job, "worker-1", Persistent(sleep_s=0.5)) as fault:
    ...     print(fault.how)
    """
    target = find_target(job, node)
    if isinstance(way, Latency) and target.role is not Role.PS:
        raise InvalidValueError(
            f"only a PS has a socket that requests come to, got {node}; "
            "slow its PS, or give it a Persistent delay"
        )
    return Fault(job, target, _order(target, way, time.monotonic() if began_up_s is None else began_up_s))


def restore(job: Snapshots) -> tuple[str, ...]:
    """Undo what killed processes left slowed in a job; return in words what that was.

    Needed only where the process that asked for a fault and its injector were killed at once. Nodes that are
    being slowed by a living injector are not touched.
    """
    folder, words = Path(job.snapshot().folder), list[str]()
    for node in held_nodes(folder):
        with contextlib.suppress(InvalidValueError):  # its injector lives
            words += [text] if (text := _restore(folder, node)) else []
    return tuple(words)


def _restore(folder: Path, node: str) -> str:
    if not folder.is_dir():  # the job was deleted
        return ""
    with held(folder, node) as file:
        return file.let_go()


def _order(target: Target, way: Way, began_up_s: float) -> Order:
    patterns = () if isinstance(way, CpuShare | Latency) else single(way)
    return Order(
        job=target.job,
        folder=str(target.folder),
        node=target.node,
        pid=target.pid,
        started_at_s=target.started_at_s,
        parent=os.getpid(),
        heartbeat_timeout_s=target.heartbeat_timeout_s,
        began_up_s=began_up_s,
        by=user_name(),
        iter_s=target.iter_s,
        persistent=tuple(each for each in patterns if isinstance(each, Persistent)),
        transient=tuple(each for each in patterns if isinstance(each, Transient)),
        share=way.share if isinstance(way, CpuShare) else None,
        latency_s=way.delay_s if isinstance(way, Latency) else None,
    )
