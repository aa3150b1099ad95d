from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.rundir.checkpoint_folder import MANIFEST, CheckpointFolder
from dlrover_nb.core.rundir.journal import JOURNAL
from dlrover_nb.core.runtime.checkpoints import write_url
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["", "folder", "file://", "memory://"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield each kind of place where checkpoints may be kept."""
    places = {
        "": "",
        "folder": f"{tmp_path}/elsewhere/",
        "file://": f"file://{tmp_path}/url",
        "memory://": "memory://checkpoints-test",
    }
    yield places[request.param]
    memory = fsspec.filesystem("memory")
    if memory.exists("/checkpoints-test"):
        memory.rm("/checkpoints-test", recursive=True)


@pytest.fixture
def listed(tmp_path: Path, url: str) -> Callable[[], set[str]]:
    """Return a function that lists all files under the root of the run's checkpoints."""
    root = checkpoint_root(url, str(tmp_path / "run"))
    fs, path = fsspec.core.url_to_fs(root)
    return lambda: {name.removeprefix(path).strip("/") for name in fs.find(path)}


@pytest.fixture
def kept(tmp_path: Path, url: str) -> CheckpointFolder:
    (tmp_path / "run").mkdir()
    return CheckpointFolder(tmp_path / "run", url)


def manifest(number: int = 1, at_s: float = 5.0) -> Manifest:
    ledger = ShardLedger(Split(100, 10, 2)).checkpoint()
    return Manifest(number, at_s, 1, (0, 0), (("a", "b"),), 3, 4, ledger)


def test_a_checkpoint_is_complete_with_its_manifest(
    kept: CheckpointFolder, listed: Callable[[], set[str]]
) -> None:
    kept.prepare(1, 1000)
    with pytest.raises(CheckpointError, match="checkpoint 1 is not complete"):
        kept.read(1)
    kept.write(manifest())
    assert kept.read(1) == manifest()
    assert listed() == {f"1/{MANIFEST}"}


def test_a_manifest_says_how_long_the_journal_was_when_all_stood_still(
    kept: CheckpointFolder, tmp_path: Path
) -> None:
    journal = tmp_path / "run" / JOURNAL
    journal.write_bytes(b"one\ntwo\n")
    kept.note_journal(1)
    kept.prepare(1, 1000)
    journal.write_bytes(b"one\ntwo\nthree\n")
    kept.write(manifest())
    assert kept.read(1).n_journal_byte == len(b"one\ntwo\n")


def test_a_dropped_checkpoint_leaves_nothing_and_may_be_dropped_again(
    kept: CheckpointFolder, listed: Callable[[], set[str]]
) -> None:
    for number in (1, 2):
        kept.prepare(number, 1000)
        kept.write(manifest(number))
    kept.drop(1)
    kept.drop(1)
    assert listed() == {f"2/{MANIFEST}"}


def test_two_runs_at_one_url_do_not_meet(tmp_path: Path, url: str) -> None:
    runs = [CheckpointFolder(tmp_path / name, url) for name in ("a-1", "a-2")]
    for at_s, run in enumerate(runs):
        run.prepare(1, 1000)
        run.write(manifest(1, at_s))
    assert [run.read(1).at_s for run in runs] == [0, 1]


def test_a_damaged_manifest_is_one_clear_line(tmp_path: Path) -> None:
    kept = CheckpointFolder(tmp_path)
    kept.prepare(1, 1000)
    (tmp_path / "checkpoints" / "1" / MANIFEST).write_text('{"number": 1}')
    with pytest.raises(CheckpointError, match=r"manifest.json is damaged.*use another") as caught:
        kept.read(1)
    assert "\n" not in str(caught.value)


def test_too_little_room_is_found_beforehand_on_a_disk(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"expected \d+ MiB free on the disk of"):
        CheckpointFolder(tmp_path).prepare(1, 1 << 60)


def with_bytes(kept: CheckpointFolder, tmp_path: Path, *sizes: int) -> None:
    """Write checkpoints 1, 2, ... of so many bytes."""
    for number, n_byte in enumerate(sizes, start=1):
        kept.prepare(number, 0)
        (tmp_path / "checkpoints" / str(number) / "ps-0.part").write_bytes(bytes(n_byte))
        kept.write(manifest(number))


def set_free(monkeypatch: pytest.MonkeyPatch, n_byte: int) -> None:
    usage = shutil.disk_usage("/")._replace(free=n_byte)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 5000), max_size=4),
    n_free=st.integers(0, 20_000),
    n_byte=st.integers(0, 20_000),
)
def test_the_oldest_checkpoints_make_room_and_none_is_deleted_where_all_are_not_enough(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], n_free: int, n_byte: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("room")
    kept = CheckpointFolder(tmp_path)
    with_bytes(kept, tmp_path, *sizes)
    spare, new = range(1, len(sizes)), len(sizes) + 1  # all but the newest
    held = [sum(f.stat().st_size for f in (tmp_path / "checkpoints" / str(n)).iterdir()) for n in spare]
    with pytest.MonkeyPatch.context() as patched:
        set_free(patched, n_free)
        if n_free + sum(held) < 1.15 * n_byte:
            with pytest.raises(CheckpointError, match="free space there or choose another place"):
                kept.prepare(new, n_byte, spare)
            dropped = ()
        else:
            dropped = kept.prepare(new, n_byte, spare)
            assert list(dropped) == list(spare)[: len(dropped)]
            assert n_free + sum(held[: len(dropped)]) >= 1.15 * n_byte
            assert not dropped or n_free + sum(held[: len(dropped) - 1]) < 1.15 * n_byte
    left = {int(path.parent.name) for path in (tmp_path / "checkpoints").glob(f"*/{MANIFEST}")}
    assert left == set(range(1, new)) - set(dropped)


def test_what_nobody_knows_is_swept_and_all_else_stays(
    kept: CheckpointFolder, listed: Callable[[], set[str]], tmp_path: Path, url: str
) -> None:
    root = checkpoint_root(url, str(tmp_path / "run"))
    for number in (1, 2, 3, 4, 9):
        kept.prepare(number, 0)
        kept.write(manifest(number))
    write_url(f"{root}/1/.ps-0.part.7.tmp", [])
    write_url(f"{root}/mine/notes", [])
    kept.sweep(in_use=(2, 4), last=4)
    assert listed() == {f"2/{MANIFEST}", f"4/{MANIFEST}", f"9/{MANIFEST}", "mine/notes"}
    kept.sweep(in_use=(2, 4), last=4)


def test_nothing_to_sweep_and_a_place_that_is_gone_are_no_error(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path / "none").sweep((), 5)
    CheckpointFolder(tmp_path / "run", "nowhere://a").sweep((), 5)


def test_a_place_that_is_none_is_told_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match="cannot make the folder nowhere://a/run/1: ValueError: Protocol not known"
    ):
        CheckpointFolder(tmp_path / "run", "nowhere://a").prepare(1, 1)
