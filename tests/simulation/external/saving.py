"""Programs of one process that keep checkpoints: the real `checkpoint` of `dlrover_nb.client`, or files of their own.

Parameters are the rows that they were taught, as those of elastic programs. The auditor has an account of its own of all
that was kept whole: so it knows from which copy a program must go on, and with which rows.
"""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from simulation.external.elastic import PlayedFuture
from simulation.external.programs import BATCH, BATCH_S
from support.driver.damaged_world import OF_BYTES, flip

from dlrover_nb.client import checkpoint
from dlrover_nb.client.checkpoint import Saver
from dlrover_nb.client.memory import Memory
from dlrover_nb.client.shards import shards

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from simulation.external.programs import PlayedSession
    from simulation.external.world import ExternalWorld, Pod


class Copy(NamedTuple):
    """What a whole copy held when it was written."""

    data: bytes
    step: int


class Copies:
    """All checkpoints of one job.

    Attributes
    ----------
    wrong
        Programs that went on from another one than the newest whole one, in words.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.wrong = folder, list[str]()
        self._states: dict[int, int] = {}  # by step
        self._whole: dict[Path, Copy] = {}
        self._steps = count(1)

    def memory_of(self, node: str) -> Path:
        """What the memory of a node holds, which ends with it."""
        return self.folder.with_name("memory of programs") / node

    def begin(self, state: int) -> int:
        """Return the number of a step at which parameters of this state are kept."""
        step = next(self._steps)
        self._states[step] = state
        return step

    def content(self, step: int) -> bytes:
        return f"parameters {self._states[step]} of step {step}".encode()

    def note(self, path: Path, step: int) -> None:
        """Note that a copy was written, if it was."""
        if path.exists() and self.content(step) in (data := path.read_bytes()):
            self._whole[path] = Copy(data, step)

    def newest(self, node: str) -> int:
        """Return the step of the newest whole copy that a program of a node finds; 0: there is none."""
        there = (self.folder, self.memory_of(node))
        steps = [
            copy.step
            for path, copy in self._whole.items()
            if path.parent in there and path.exists() and path.read_bytes() == copy.data
        ]
        return max(steps, default=0)

    def loaded(self, node: str, newest: int, step: int, content: bytes) -> int:
        """Return the state of parameters that a program loaded; step 0: none."""
        if step != newest or (step and content != self.content(step)):
            self.wrong.append(f"{node} goes on from step {step} ({content!r}), step {newest} is whole")
        return self._states[step] if step else 0

    def damage(self, seed: int) -> None:
        """Damage the newest file, as disks do."""
        rng = random.Random(seed)
        files = sorted(self.folder.glob("checkpoint-*.dlnb"))
        if files and files[-1].stat().st_size:
            how = flip if rng.random() < 0.5 else rng.choice(OF_BYTES)
            files[-1].write_bytes(how(files[-1].read_bytes(), rng))


class PlayedMemory(Memory):
    """Memory of a node, of which nobody else has to be told."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.places = tuple(str(folder / side) for side in "ab")


class SavingSaver(Saver):
    """Keeps a copy in memory at once, and writes the file later, unless its process is killed before."""

    def __init__(self, world: ExternalWorld, joined: PlayedSession) -> None:
        self._world, self._joined = world, joined
        super().__init__(str(world.copies.folder), PlayedMemory(world.copies.memory_of(joined.pod.node)))
        self.step = 0

    def save(self, state: bytes | Callable[[], bytes], step: int) -> None:
        self.step = step
        super().save(state, step)

    def _keep(self, head: object, data: memoryview) -> str | None:
        path = super()._keep(head, data)  # type: ignore[arg-type]
        if path is not None:
            self._world.copies.note(Path(path), self.step)
        return path

    def _begin(self, fill: Callable[[BinaryIO], None]) -> None:
        world, number, step, future = self._world, self._count, self.step, PlayedFuture(self._world)
        path = Path(self.folder) / f"checkpoint-{number:08d}.dlnb"

        def write() -> None:
            with suppress(OSError):  # what a kill leaves
                path.parent.mkdir(exist_ok=True)
                path.with_name(f"{path.name}.1.tmp").write_bytes(b"unfinished")
            world.tasks.sleep(world.rng.choice([0.0, 0.25, 2.0]))
            self._write_file(number, fill)
            world.copies.note(path, step)

        world.run_in(self._joined.pod, self._joined, lambda: future.run(write))
        self._writer = SimpleNamespace(join=future.result)  # type: ignore[assignment]


class OwnFile:
    """A file in a form of the program's own, with the account of rows beside its parameters."""

    def __init__(self, world: ExternalWorld, joined: PlayedSession) -> None:
        self._copies, self._path = world.copies, world.copies.folder / "model.json"
        self._joined = joined

    def load(self) -> int:
        newest, step, content, rows = self._copies.newest(self._joined.pod.node), 0, b"", ""
        if self._path.exists():
            kept = json.loads(self._path.read_text())
            step, content, rows = kept["step"], kept["parameters"].encode(), kept["rows"]
        checkpoint.restore(rows)
        return self._copies.loaded(self._joined.pod.node, newest, step, content)

    def save(self, state: int) -> None:
        rows, step = checkpoint.rows(), self._copies.begin(state)
        kept = {"parameters": self._copies.content(step).decode(), "step": step, "rows": rows}
        unfinished = self._path.with_suffix(".tmp")
        with suppress(OSError):  # the one before is kept
            self._path.parent.mkdir(exist_ok=True)
            unfinished.write_text(json.dumps(kept))
            unfinished.replace(self._path)
        self._copies.note(self._path, step)

    def wait(self) -> None:
        """Do nothing: it has been written."""


class ClientFiles:
    """Checkpoints of the client."""

    def __init__(self, world: ExternalWorld, joined: PlayedSession) -> None:
        self._copies, self._node = world.copies, joined.pod.node

    def load(self) -> int:
        newest = self._copies.newest(self._node)
        found = checkpoint.load()
        step, content = (found.step, found.state) if found else (0, b"")
        return self._copies.loaded(self._node, newest, step, content)

    def save(self, state: int) -> None:
        step = self._copies.begin(state)
        checkpoint.save(lambda: self._copies.content(step), step)

    def wait(self) -> None:
        checkpoint.wait()


def train_and_save(world: ExternalWorld, pod: Pod, joined: PlayedSession) -> None:
    """Go on from the newest checkpoint, train all rows that are left, and keep the parameters now and then."""
    kept = (OwnFile if world.case.own_files else ClientFiles)(world, joined)
    state, saved_s = kept.load(), world.elapsed_s
    joined.check_account = lambda account: world.states.check_account(state, account)
    for shard in shards(world.case.n_row, wait=True):
        for rows in shard.batches(BATCH):
            world.tasks.sleep(BATCH_S * world.slow.get(pod.node, 1.0) * world.rng.choice([1, 1, 2]))
            if not world.case.poison.isdisjoint(rows):
                world.fail_program(pod, 139)
            state = world.states.teach(state, ((shard.epoch, tuple(rows)),))
            world.learnt |= dict.fromkeys(world.states.rows[state], 1)
            world.count_step()
            shard.done(len(rows))
            if world.elapsed_s >= saved_s + world.case.keeps_every_s:
                saved_s = world.elapsed_s
                kept.save(state)
    kept.save(state)
    kept.wait()
    world.states.ends.append(state)


def free_memory(world: ExternalWorld, node: str) -> None:
    """Free the memory of a node that has ended."""
    shutil.rmtree(world.copies.memory_of(node), ignore_errors=True)
