"""The power is cut at every moment of a job that writes checkpoints: a whole one is always found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.master.master_world import World, features, plan, spec
from support.master.power_cut import Disk, lay

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.master.own.write_ahead_log import Entry, read_back
from dlrover_nb.core.master.shared.orders import (
    DropCheckpoint,
    PrepareCheckpoint,
    SweepCheckpoints,
    WriteManifest,
)
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.log_file import WriteAheadLogFile, read_log_file
from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.master.played_nodes import FakeNode

    from dlrover_nb.core.master.shared.orders import Order
    from dlrover_nb.core.sharding.manifest import Manifest

N_CHECKPOINT = 6


class Logged(list[bytes]):
    """The entries of a job master, which go to its real log too."""

    def __init__(self, folder: Path) -> None:
        self.file = WriteAheadLogFile(folder)

    def begin(self, first: bytes) -> None:
        self.file.begin(from_json(first, Entry))

    def append(self, entry: bytes) -> None:
        super().append(entry)
        self.file.append(from_json(entry, Entry))


class DiskWorld(World):
    """A job whose log and checkpoints are real files."""

    def __init__(self, folder: Path, *args: Any, **options: Any) -> None:
        self.folder, self.kept, self.logged = str(folder), CheckpointFolder(folder), Logged(folder)
        self.n_known = 0
        super().__init__(*args, **options)

    def do(self, orders: Iterable[Order]) -> None:
        orders = tuple(orders)
        if self.entries is not self.logged:
            self.logged.begin(self.entries[0])
            self.entries = self.logged
        if entry := self.log.entry(orders):
            self.entries.append(to_json(entry))
        self.n_known = max((0, *(each.number for each in self.master.checkpoints if each.is_on_disk)))
        for order in orders:
            self._really(order)
            super().do((order,))

    def _really(self, order: Order) -> None:
        match order:
            case PrepareCheckpoint(number, n_byte, spare):
                self.kept.prepare(number, n_byte, spare)
            case WriteManifest(manifest):
                self.kept.write(manifest)
            case DropCheckpoint(number):
                self.kept.drop(number)
            case SweepCheckpoints(numbers, last):
                self.kept.sweep(numbers, last)

    def _persist(self, node: FakeNode) -> bool:
        if not node.writes or self.writes_nothing:
            return False
        save = node.writes[0]
        written = ps_checkpoint.write(Path(save.file), self.parts[node.id, save.checkpoint])
        super()._persist(node)
        saved, arrays = node.outbox[-1]
        node.outbox[-1] = replace(saved, sha256=written.sha256), arrays  # type: ignore[call-arg]
        return True


def recorded(folder: Path, *, forgets: bool = False) -> Disk:
    """Let a job write checkpoints, lose a PS and make its log short, and return what its disk saw."""
    world: DiskWorld | None = None
    disk = Disk(folder, lambda: 0 if world is None else world.n_known, forgets)
    with pytest.MonkeyPatch.context() as patch:
        disk.record(patch)
        world = DiskWorld(folder, spec(plan(1, 2), checkpoint_every_s=1.0), features(4000))
        world.run_until(lambda: world.n_known >= 2)
        world.kill(world.living(Role.PS)[0])
        world.run_until(lambda: world.n_known >= N_CHECKPOINT // 2)
        world.logged.file.begin(world.log.first())  # as a long log is made short
        world.run_until(lambda: world.n_known >= N_CHECKPOINT)
    world.logged.file.close()
    disk.close()
    return disk


def whole(manifest: Manifest) -> bool:
    """Whether all parts of a checkpoint are there, unchanged."""
    try:
        for path, sha256 in manifest.files:
            ps_checkpoint.read(Path(path), sha256)
    except CheckpointError:
        return False
    return True


def resumable(folder: Path) -> bool:
    """Whether a master that resumes has a whole checkpoint to load, and a client one to begin from."""
    world = World(spec(plan(1, 2)), features(4000))
    try:
        record, kept = read_back(world.master, read_log_file(folder).entries)
    except CheckpointError:
        return False
    world.master.resume(record, kept, 0.0)
    on_disk = {each.number: each for each in kept if each.is_on_disk}
    known = [on_disk[number] for number, is_on_disk in record.checkpoints if is_on_disk]
    newest = CheckpointFolder(folder).latest()
    return bool(known) and whole(known[-1].manifest) and newest is not None and whole(newest)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "run"
    place.mkdir()
    return place


def test_after_a_cut_at_any_moment_a_whole_checkpoint_is_found(folder: Path) -> None:
    disk = recorded(folder)
    n_state = 0
    for n_known, tree in disk.states():
        if not n_known:
            continue  # no checkpoint was promised yet
        lay(tree, folder)
        assert resumable(folder), f"after checkpoint {n_known}: {sorted(map(str, folder.rglob('*')))}"
        n_state += 1
    assert {n for n, _ in disk.states()} >= set(range(N_CHECKPOINT + 1))
    assert n_state > 10 * N_CHECKPOINT


def test_a_disk_that_takes_no_notice_of_syncs_loses_it(folder: Path) -> None:
    disk = recorded(folder, forgets=True)
    lost = 0
    for n_known, tree in disk.states():
        if n_known and not lost:
            lay(tree, folder)
            lost += not resumable(folder)
    assert lost
