"""A job among played nodes whose parameter servers write and read real files, and what disks do to such files."""

from __future__ import annotations

import random
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.errors import CheckpointError, DlroverError
from dlrover_nb.core.rundir.job_file import JOB, WRITE_AHEAD_LOG
from dlrover_nb.core.rundir.log_file import HEAD_BYTES
from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.wire.messages import Saved
from support.driver.driver_world import DriverWorld, features, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.runtime.store import StorePart
    from dlrover_nb.core.structs.training.checkpoints import PartSource
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from support.master.played_nodes import FakeNode

WAY_OUT = re.compile(r"start_from|submit the job again|restore it from a backup")
N_BLOCK = 64  # bytes at least of a block of a disk that loses it: files of small jobs are short


class FilesWorld(DriverWorld):
    """A job whose checkpoints are real files; what the memory of its host holds is lost with its nodes."""

    def _persist(self, node: FakeNode) -> bool:
        if not node.writes or self.writes_nothing:
            return False
        save = node.writes[0]
        written = ps_checkpoint.write(Path(save.file), self.parts[node.id, save.checkpoint])
        super()._persist(node)
        saved, arrays = node.outbox[-1]
        assert isinstance(saved, Saved)
        node.outbox[-1] = replace(saved, sha256=written.sha256, n_byte=written.n_byte), arrays
        return True

    def _found(self, part: PartSource) -> StorePart | None:
        if part.memory is not None and part.memory.number in self.memory:
            return self.parts.get((part.memory.name, part.memory.number))
        try:
            return ps_checkpoint.read(Path(part.url), part.sha256) if part.url else None
        except CheckpointError:
            return None

    def lose_nodes(self) -> None:
        """End all nodes, and what the memory of their host holds."""
        for node in self.nodes.values():
            node.is_alive = False
        self.memory.clear()

    def restart(self) -> None:
        """Let another master go on, as those of all backends do: where there is no job file, it begins the job."""
        if not (self.folder / JOB).exists():
            own_job.begin(self.spec, self.features, self._setup())
        self.come_back()


def killed_job(folder: Path, *, n_checkpoint: int = 2, **changes: object) -> FilesWorld:
    """Return a job whose master was killed amid training, some rows after its last checkpoint."""
    fields = {"plan": plan(2, 2, ps_cpu=0.2), "n_epoch": 2, "checkpoint_every_s": 0.5, "shard_batches": 1}
    job = FilesWorld(folder, features(200, 20), **(fields | changes))
    job.start()
    job.until(lambda _: len(list(job.folder.glob("checkpoints/*/manifest.json"))) >= n_checkpoint)
    n_done = job.now.train.n_sample_done
    job.until(lambda now: now.running and now.train.n_sample_done > n_done + 20)
    job.crash()
    return job


# what disks do


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def zero(data: bytes, rng: random.Random) -> bytes:
    start, stop = _block(data, rng)
    return data[:start] + bytes(stop - start) + data[stop:]


def double(data: bytes, rng: random.Random) -> bytes:
    start, stop = _block(data, rng)
    return data[:stop] + data[start:]


def lose(data: bytes, rng: random.Random) -> bytes:
    start, stop = _block(data, rng)
    return data[:start] + data[stop:]


def swap(data: bytes, rng: random.Random) -> bytes:
    n = rng.choice([N_BLOCK, 512])
    blocks = [data[at : at + n] for at in range(0, len(data), n)]
    i, j = rng.randrange(len(blocks)), rng.randrange(len(blocks))
    blocks[i], blocks[j] = blocks[j], blocks[i]
    return b"".join(blocks)


def _block(data: bytes, rng: random.Random) -> tuple[int, int]:
    n = rng.choice([N_BLOCK, 512, 4096])
    start = rng.randrange(len(data)) // n * n
    return start, min(start + n, len(data))


def records(name: str, data: bytes) -> list[bytes]:
    """Return the entries of a log or the lines of a text, each whole: a fault that no checksum of one alone finds."""
    if name != WRITE_AHEAD_LOG:
        return data.splitlines(keepends=True)
    entries, at = [data[:HEAD_BYTES]], HEAD_BYTES
    while at < len(data):
        n_byte = struct.unpack_from("<I", data, at)[0] + struct.calcsize("<III")
        entries.append(data[at : at + n_byte])
        at += n_byte
    return entries


def double_record(entries: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(entries))
    return entries[: at + 1] + entries[at:]


def lose_record(entries: list[bytes], rng: random.Random) -> list[bytes]:
    at = rng.randrange(len(entries))
    return entries[:at] + entries[at + 1 :]


def swap_records(entries: list[bytes], rng: random.Random) -> list[bytes]:
    i, j = rng.randrange(len(entries)), rng.randrange(len(entries))
    entries = list(entries)
    entries[i], entries[j] = entries[j], entries[i]
    return entries


def cut_records(entries: list[bytes], rng: random.Random) -> list[bytes]:
    return entries[: rng.randrange(1, len(entries) + 1)]


OF_BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, cut, zero, double, lose, swap)
OF_RECORDS: tuple[Callable[[list[bytes], random.Random], list[bytes]], ...] = (
    double_record,
    lose_record,
    swap_records,
    cut_records,
)


@dataclass(frozen=True)
class Case:
    """What happened to files of a run folder, by its seed."""

    seed: int
    damages: tuple[tuple[str, str], ...]  # files and what befell them


def damage(folder: Path, seed: int) -> Case:
    """Damage one file of a run folder, or one of a checkpoint too.

    Half of the seeds choose the write-ahead log, which changes most.
    """
    rng = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    log = folder / WRITE_AHEAD_LOG
    case = _damage(folder, log if rng.random() < 0.5 else rng.choice(files), rng)
    others = [path for path in files if "checkpoints" in path.parts and path.exists() and path.stat().st_size]
    if rng.random() < 0.25 and others:
        case += _damage(folder, rng.choice(others), rng)
    return Case(seed, case)


def _damage(folder: Path, path: Path, rng: random.Random) -> tuple[tuple[str, str], ...]:
    """Damage a file; return which and how."""
    log = folder / WRITE_AHEAD_LOG
    data, name = path.read_bytes(), str(path.relative_to(folder))
    if rng.random() < 0.05:
        path.unlink()
        return ((name, "missing"),)
    if (path == log or path.suffix == ".jsonl") and rng.random() < 0.4:
        of_records = rng.choice(OF_RECORDS)
        path.write_bytes(b"".join(of_records(records(name, data), rng)))
        return ((name, of_records.__name__),)
    of_bytes = rng.choice(OF_BYTES)
    path.write_bytes(of_bytes(data, rng))
    return ((name, of_bytes.__name__),)


def outcome(job: FilesWorld) -> str:
    """Let another master go on with what is there to the end; return how that ended.

    "exact": every row was trained as often as the job asks, by what its parameter servers hold; "refused": with
    the way out. Anything else is wrong.
    """
    try:
        job.restart()
    except DlroverError as error:
        return "refused" if WAY_OUT.search(str(error)) else f"refused without a way out: {error}"
    said = job.now.damage
    end = job.until_end()
    if end.phase is JobPhase.FAILED and WAY_OUT.search(end.message):
        return "refused"
    return _what_is_wrong(job, end, said) or ("exact, and said" if said else "exact")


def _what_is_wrong(job: FilesWorld, end: JobSnapshot, said: str) -> str:
    n_row = job.features.n_train * job.spec.n_epoch
    if (end.phase, end.train.n_sample_done) != (JobPhase.SUCCEEDED, n_row):
        return f"{end.phase} with {end.train.n_sample_done} of {n_row} rows: {end.message}"
    try:
        times = job.n_trained()
    except AssertionError:
        return "rows are missing, or counted otherwise than the parameter servers hold them"
    if times != {1}:
        return f"rows were trained {sorted(times)} times"
    return "" if not said or job.story_has(said) else f"the story does not say: {said}"
