"""The programs of a simulated external job: the real client on a line that loses, delays and repeats what is said.

`Session`, `Link` and `shards` of `dlrover_nb.client` are the real ones; played is the HTTP between them and the master, and
the thread that reports, which is a task here.
"""

from __future__ import annotations

import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from greenlet import getcurrent
from simulation.tasks import PER_S, Time, Turns

from dlrover_nb.client.checkpoint import Saver
from dlrover_nb.client.link import LIMIT_S, Link
from dlrover_nb.client.session import Session
from dlrover_nb.client.shards import shards

NAMES = ("link", "shards", "checkpoint")
LINKS, SHARDS, CHECKPOINTS = (sys.modules[f"dlrover_nb.client.{name}"] for name in NAMES)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from simulation.external.collectives import Batch, Meeting
    from simulation.external.saving import SavingSaver
    from simulation.external.world import ExternalWorld, Pod

BATCH, BATCH_S = 8, 0.25


class PlayedLink(Link):
    """A way to the master that may fail at each request."""

    def __init__(self, world: ExternalWorld, pod: Pod) -> None:
        super().__init__(pod.node, "token", "")
        self._world, self._pod = world, pod
        self.owner = ""

    def _post(self, body: bytes) -> tuple[int, bytes]:
        world, node, rng = self._world, self._pod.node, self._world.rng
        if world.tasks.present.is_killed:
            raise ConnectionAbortedError
        n_pushed = world.account.n_pushed(self.owner)
        fate = rng.random()
        if (left_s := world.cut_until_s.get(node, 0.0) - world.elapsed_s) > 0:
            world.later(
                left_s, body, self.owner, n_pushed
            )  # it arrives when nobody waits for its answer any more
            world.tasks.sleep(min(left_s, LIMIT_S))
            raise TimeoutError("no answer")
        if node in world.broken_links:
            world.broken_links.discard(node)
            raise ConnectionResetError
        if fate < world.case.lost / 2:
            raise ConnectionResetError
        world.tasks.sleep(rng.choice([1, 1, 4, 64]) / PER_S)
        if not world.master_is_up:
            raise ConnectionRefusedError
        answer = world.calls.ask_for(body, self.owner, n_pushed)
        if fate < world.case.lost:
            raise ConnectionResetError
        if fate > 1 - world.case.lost / 4:
            world.later(rng.choice([0.1, 1.0, 10.0]), body, self.owner, n_pushed)
        if answer is None:
            return 503, b"the loop does not answer"
        return 200, answer


class Ends:
    """What `threading.Event` is to the reporter of a session."""

    def __init__(self, world: ExternalWorld) -> None:
        self._world = world

    def wait(self, seconds: float) -> bool:
        self._world.tasks.sleep(seconds)
        return False


class PlayedSession(Session):
    """A session whose lock and thread are those of tasks."""

    def __init__(self, world: ExternalWorld, pod: Pod, slot: str = "0") -> None:
        super().__init__(link := PlayedLink(world, pod), slot)
        self.caller["program"] = f"program-{next(world.counts)}"
        link.owner = "/".join((pod.node, slot, self.caller["program"]))
        self.owner = link.owner
        self._world, self.pod, self._reports = world, pod, False
        self.n_step = 0
        self.meeting: Meeting | None = None  # with the other members of an elastic job
        self.rank, self.limit_s = 0, 0.0
        self.batches: list[Batch] = []  # of its present step
        self.coming: tuple[Batch, ...] = ()  # of all members in the last one
        self.check_account: Callable[[str], None] = lambda _: None
        self.saver: SavingSaver | None = None
        self._lock = Turns(world.tasks)  # type: ignore[assignment]
        self._ends = Ends(world)  # type: ignore[assignment]

    def rows(self) -> str:
        account = super().rows()
        self.check_account(account)
        return account

    def _begin(self) -> None:
        if not self._reports:
            self._reports = True
            self._world.run_in(self.pod, self, self._run)


class PlayedSaver(Saver):
    """Keeps checkpoints in files alone, and has written them when `save` returns."""

    def _begin(self, fill: Callable[[BinaryIO], None]) -> None:
        self._write_file(self._count, fill)


def train(world: ExternalWorld, pod: Pod, joined: PlayedSession) -> None:
    """Train all rows that the job grants, and end."""
    with closing(shards(world.case.n_row, wait=True)) as granted:
        for shard in granted:
            for rows in shard.batches(BATCH):
                world.tasks.sleep(BATCH_S * world.slow.get(pod.node, 1.0) * world.rng.choice([1, 1, 2]))
                if not world.case.poison.isdisjoint(rows):
                    world.fail_program(pod, 139)
                world.push(joined.owner, shard.epoch, rows)


def session_of_task() -> PlayedSession | None:
    """Return the session of the program that runs."""
    joined: PlayedSession | None = getattr(getcurrent(), "session", None)
    return joined


@contextmanager
def played_client(world: ExternalWorld) -> Iterator[None]:
    """Let the client's modules run in tasks."""
    time = Time(world.tasks)

    def saver(_folder: str | None) -> Saver:
        return world.saver_of(session_of_task()) if world.case.saves else PlayedSaver(str(world.kept), None)

    with (
        mock.patch.object(LINKS, "time", time),
        mock.patch.object(SHARDS, "time", time),
        mock.patch.object(SHARDS, "session", session_of_task),
        mock.patch.object(CHECKPOINTS, "session", session_of_task),
        mock.patch.object(CHECKPOINTS, "_saver", saver),
    ):
        yield
