"""The shards that one process holds, and what it has reported of them to the master.

Rows that are done are counted here at once, and reported with the next request: at the latest by the thread
that also keeps the process known as alive. So a step costs no message.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import threading
import uuid
from typing import Any

from .link import Link, ServiceError, UnreachableError, link_of

logger = logging.getLogger(__name__)

EVERY_S = 1.0  # between two reports of rows; the state of the job is as old at most
_PROCESS = os.getpid()  # of the import: a fork has another one


class Lease:
    """A granted shard: how many of its rows are done, and how many of them are reported."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.key: tuple[int, int] = (int(answer["shard"]), int(answer["grant"]))
        self.end, self.n_done = int(answer["until"]), int(answer["offset"])
        self.n_told = self.n_done
        self.is_stale = False
        self.is_relayed = False  # another process trains its rows, and reports them

    @property
    def is_over(self) -> bool:
        """Whether all of its rows are done and reported."""
        return self.n_told >= self.end


class Session:
    """One process of a job.

    Parameters
    ----------
    link
        The way to the master.
    slot
        Its place among the processes of the node.
    """

    def __init__(self, link: Link, slot: str) -> None:
        self._link = link
        program = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.caller = {"node": link.node, "slot": slot, "program": program}
        self._lock = threading.RLock()
        self._leases: dict[tuple[int, int], Lease] = {}
        self._elsewhere: dict[tuple[str, int, int], tuple[dict[str, str], int]] = {}
        self._state: dict[str, Any] = {}
        self._n_restored = 0
        self.busy: tuple[int, float] = (0, 0.0)  # rows computed since the start, and the seconds for them
        self.batch_cost: dict[str, Any] = {}  # what a mini-batch costs, where that was measured
        self.asks_size = False  # whether the program ever asked how large its batches should be
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    # shards

    def ask(self, n_row: int = 0) -> tuple[str, dict[str, Any], Lease | None]:
        """Report what is done and ask for a shard; return the answer, and the shard if there is one."""
        with self._lock:
            name, answer = self._call("shard", holding=self._holding(), n_row=n_row)
            lease = None
            if name == "granted":
                lease = Lease(answer)
                self._leases[lease.key] = lease
        self._begin()
        return name, answer, lease

    def report(self) -> None:
        """Report now what is done; returns when the master has it."""
        with self._lock:
            self._refresh()

    def give_back(self, leases: list[Lease]) -> None:
        """Give shards back with their rows that are done, if the master answers: it takes them anyhow."""
        with self._lock:
            mine = [lease for lease in leases if lease.key in self._leases and not lease.n_done >= lease.end]
            try:
                self._call("give back", tries=1, leases=[list(lease.key) for lease in mine])
            except ServiceError as error:
                logger.info("shards are not given back: %s", error)
            for lease in mine:
                self._leases.pop(lease.key, None)

    def done_elsewhere(self, caller: dict[str, str], key: tuple[int, int], n_row: int) -> None:
        """Count the first rows of a shard that this process trains, and another one may have drawn."""
        with self._lock:
            own = self._leases.get(key) if caller == self.caller else None
            if own is not None:
                own.n_done = max(own.n_done, n_row)
                return
            place = (caller["program"], key[0], key[1])
            self._elsewhere[place] = caller, max(n_row, self._elsewhere.get(place, (caller, 0))[1])
        self._begin()

    @property
    def n_open(self) -> int:
        """Rows that were drawn here and are not done."""
        return sum(lease.end - lease.n_done for lease in self._leases.values() if not lease.is_relayed)

    # elastic jobs

    def ask_world(self, number: int, step: int, reached: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        """Ask with which members to train; `number` is that of the newest world known here."""
        with self._lock:
            self._begin()
            return self._link.call(
                "world", {"caller": self.caller, "seen": number, "step": step, "reached": reached}
            )

    def tell_reached(self, reached: list[dict[str, Any]]) -> None:
        """Count the rows as done that the parameters of this process contain, trained here or elsewhere."""
        with self._lock:
            self._link.call("reached", {"caller": self.caller, "reached": reached})

    def tell_evaluation(self, auc: float, log_loss: float, n_sample: int, after: int = 0) -> None:
        """Tell the quality of the model on held-out rows: after a pass, or (0) when it is trained."""
        with self._lock:
            fields = {"auc": auc, "log_loss": log_loss, "n_sample": n_sample, "after": after}
            self._link.call("evaluated", {"caller": self.caller, **fields})

    def tell_model(self, url: str, sha256: str, n_row: int, n_byte: int) -> None:
        """Tell where a trained model of ours was written, with all rows that are done here."""
        with self._lock:
            self._refresh()
            fields = {"url": url, "sha256": sha256, "n_row": n_row, "n_byte": n_byte}
            self._link.call("model kept", {"caller": self.caller, **fields})

    @property
    def outdated_world(self) -> int:
        """Number of the world that another one is to follow; 0: the present one is right."""
        return int(self._state.get("outdated_world", 0))

    # the job

    def state(self, *, fresh: bool = False) -> dict[str, Any]:
        """Return the job's state, at most about a second old."""
        if fresh or not self._state:
            self.report()
            self._begin()
        return self._state

    def batch_size(self) -> int:
        """Return the rows of a mini-batch of this node, as set by a command; 0: not set."""
        self.asks_size = True
        return int(self.state()["batch_size"])

    def rows(self) -> str:
        """Return the account of rows, with all that is done here."""
        with self._lock:
            self._refresh()
            return str(self._call("rows")[1]["rows"])

    def restore(self, rows: str) -> None:
        """Go back to an account of rows; shards at hand are dropped."""
        with self._lock:
            self._n_restored += 1
            self._link.call("restore", {"caller": self.caller, "rows": rows, "number": self._n_restored})
            for lease in self._leases.values():
                lease.is_stale = True
            self._leases.clear()
            self._elsewhere.clear()

    # parts

    def _refresh(self, tries: int = 0) -> None:
        for caller, done in self._done_elsewhere():
            try:
                self._link.call("state", {"caller": caller, "done": done}, tries=tries)
            except UnreachableError:
                raise
            except ServiceError as error:  # the process that drew them was replaced: others train the rows
                logger.warning("rows of another process are not counted: %s", error)
            for each in done:
                del self._elsewhere[caller["program"], each["shard"], each["grant"]]
        n_row, busy_s = self.busy
        counts: dict[str, Any] = {"n_row_busy": n_row, "busy_s": busy_s, "asks_size": self.asks_size}
        if self.batch_cost:
            counts["batch_cost"] = self.batch_cost
        self._state = self._call("state", tries=tries, holding=self._holding(), **counts)[1]

    def _call(self, kind: str, tries: int = 0, **fields: Any) -> tuple[str, dict[str, Any]]:  # noqa: ANN401 - JSON
        """Send a request with what is done since the last one, and note what it says of the leases."""
        news = [lease for lease in self._leases.values() if lease.n_done > lease.n_told]
        counts = [(lease, lease.n_done) for lease in news]
        done = [{"shard": h.key[0], "grant": h.key[1], "n_row": n_done} for h, n_done in counts]
        name, answer = self._link.call(kind, {"caller": self.caller, "done": done, **fields}, tries=tries)
        for lease, n_done in counts:
            lease.n_told = max(lease.n_told, n_done)
            if lease.is_over:
                self._leases.pop(lease.key, None)
        for shard, grant in answer.get("stale", ()):
            self._drop((shard, grant))
        return name, answer

    def _drop(self, key: tuple[int, int]) -> None:
        lease = self._leases.pop(key, None)
        if lease is None or lease.is_over:
            return
        lease.is_stale = True
        if not lease.is_relayed:
            logger.warning(
                "shard %d was taken back from this process; others train its rows from %d on",
                key[0],
                lease.n_told,
            )

    def _holding(self) -> list[list[int]]:
        return [list(key) for key in self._leases]

    def _done_elsewhere(self) -> list[tuple[dict[str, str], list[dict[str, int]]]]:
        by_program: dict[str, tuple[dict[str, str], list[dict[str, int]]]] = {}
        for (program, shard, grant), (caller, n_row) in self._elsewhere.items():
            done = by_program.setdefault(program, (caller, []))[1]
            done.append({"shard": shard, "grant": grant, "n_row": n_row})
        return list(by_program.values())

    # the thread

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dlrover-nb-client", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(EVERY_S):
            try:
                with self._lock:
                    self._refresh(tries=1)
            except UnreachableError as error:
                logger.debug("rows are reported later: %s", error)
            except ServiceError as error:
                logger.warning("rows are not reported any more: %s", error)
                return


_sessions: dict[int, Session | None] = {}  # by process: a fork has a place of its own
_lock = threading.Lock()


def session() -> Session | None:
    """Return the session of this process; None outside of a job."""
    with _lock:
        if os.getpid() not in _sessions:
            link = link_of()
            _sessions[os.getpid()] = None if link is None else Session(link, _slot())
        return _sessions[os.getpid()]


def _slot() -> str:
    """Return the place of this process on its node, which its successor after a restart has too."""
    slot = os.environ.get("LOCAL_RANK") or "0"
    torch_data = sys.modules.get("torch.utils.data")
    worker = torch_data.get_worker_info() if torch_data is not None else None
    if worker is not None:
        return f"{slot}.{worker.id}"
    identity = getattr(multiprocessing.current_process(), "_identity", ())
    if identity:
        return "{}.m{}".format(slot, ".".join(str(number) for number in identity))
    return slot if os.getpid() == _PROCESS else f"{slot}.f{os.getpid()}"
