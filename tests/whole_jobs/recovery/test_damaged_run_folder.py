"""Whatever a disk does to a run folder, its job goes on exactly, or is refused with what to do: never silently wrong."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.driver.damaged_world import FilesWorld, damage, killed_job, outcome, records
from support.driver.driver_world import features, plan

from dlrover_nb.core.alerts import JobMemory, findings
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.rundir import journal, log_file
from dlrover_nb.core.rundir.job_file import JOB, WRITE_AHEAD_LOG
from dlrover_nb.core.rundir.log_file import LogContent, read_log_file
from dlrover_nb.core.rundir.origin import origin_of
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.views.alerts import DEFAULT_RULES, AlertKind
from dlrover_nb.widgets.jobs.status import summary_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

N_CASE = 10  # of one test: in parts, so that several processes share them
GOOD = {"exact", "exact, and said", "refused"}


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the journal have snapshots."""
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(journal, "EVENT_SHARE", 0)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is no disk, where there is one: a case waits for a disk hundreds of times."""
    if not os.access(SHM, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        yield Path(folder)


def try_cases(folder: Path, seeds: Iterable[int]) -> Counter[str]:
    """Damage a job for each seed, and return how many went on how; half of them lose their nodes too."""
    ends: Counter[str] = Counter()
    for seed in seeds:
        job = killed_job(folder / str(seed))
        if seed % 2:
            job.lose_nodes()
        case = damage(job.folder, seed)
        end = outcome(job)
        assert end in GOOD, f"{case}: {end}"
        ends[end] += 1
        job.close()
    return ends


@pytest.mark.parametrize("part", range(10))
def test_a_damaged_file_costs_no_row_and_trains_none_twice(in_memory: Path, part: int) -> None:
    try_cases(in_memory, range(N_CASE * part, N_CASE * (part + 1)))


@pytest.mark.release
def test_five_hundred_damaged_files_cost_no_row_and_train_none_twice(in_memory: Path) -> None:
    ends = try_cases(in_memory, range(1000, 1500))
    assert min(ends[each] for each in GOOD) > 10, ends


def test_a_log_that_is_cut_at_its_first_bad_entry_is_found(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = log_file.read_log
    monkeypatch.setattr(log_file, "read_log", lambda data, start: LogContent(whole(data, start).entries))
    with pytest.raises(AssertionError, match=r"rows were trained .* times"):
        try_cases(in_memory, range(0, 40, 2))


def flip_entry(job: FilesWorld, number: int) -> None:
    """Flip a bit amid an entry of the log."""
    path = job.folder / WRITE_AHEAD_LOG
    entries = records(WRITE_AHEAD_LOG, path.read_bytes())  # the first one is its head
    at = len(entries[number]) // 2
    entries[number] = entries[number][:at] + bytes([entries[number][at] ^ 4]) + entries[number][at + 1 :]
    path.write_bytes(b"".join(entries))


@pytest.mark.parametrize("loses_nodes", [False, True])
@pytest.mark.parametrize("entry", [1, 9])
def test_a_flipped_bit_amid_the_log_sends_the_job_to_its_newest_checkpoint_and_is_said(
    tmp_path: Path, entry: int, *, loses_nodes: bool
) -> None:
    job = killed_job(tmp_path)
    before = set(job.nodes)
    if loses_nodes:
        job.lose_nodes()
    flip_entry(job, entry)
    assert outcome(job) == "exact, and said"
    now = job.now
    assert now.damage.startswith(
        f"{job.folder / WRITE_AHEAD_LOG} is damaged: entry {entry} is damaged, with "
    )
    assert "the job went back to checkpoint 2, with " in now.damage
    assert job.story_has(now.damage)
    assert job.story_has("checkpoint 2 was loaded from files")
    assert {AlertKind.DAMAGE} == {
        each.kind for each in findings(running(now), JobMemory(), DEFAULT_RULES) if each.is_bad
    }
    assert ("damaged", now.damage) in summary_facts(now)
    assert not any(job.nodes[name].is_alive for name in before)
    assert not before & {order.node for order in job.backend.started.values()}
    job.close()


def running(now: JobSnapshot) -> JobSnapshot:
    """Return a snapshot as one of a job that has not ended."""
    return replace(now, phase=JobPhase.TRAINING)


def test_a_damaged_log_without_a_checkpoint_is_refused_with_the_file_the_entry_and_the_way_out(
    tmp_path: Path,
) -> None:
    job = killed_job(tmp_path, n_checkpoint=0, checkpoint_every_s=0.0)
    n_entry = len(read_log_file(job.folder).entries)
    flip_entry(job, 4)
    with pytest.raises(CheckpointError) as caught:
        job.restart()
    text = str(caught.value)
    assert f"{job.folder / WRITE_AHEAD_LOG} is damaged: entry 4 is damaged, with {n_entry - 4} whole" in text
    assert "which rows were trained is lost from there on, and there is no whole checkpoint" in text
    assert f"start_from: {{source: {job.folder / 'checkpoints'}, rows: true}}" in text
    job.close()


def test_the_log_of_a_young_job_that_lost_its_end_begins_anew_and_says_so(tmp_path: Path) -> None:
    job = killed_job(tmp_path, n_checkpoint=0, checkpoint_every_s=0.0)
    path = job.folder / WRITE_AHEAD_LOG
    path.write_bytes(path.read_bytes()[:-700])
    assert outcome(job) == "exact, and said"
    assert job.story_has("missing or damaged; the job went back to its beginning, with 0 of 400 rows")
    job.close()


def test_a_second_damage_is_survived_like_the_first(tmp_path: Path) -> None:
    job = killed_job(tmp_path, n_epoch=4)
    for _ in range(2):
        flip_entry(job, 5)
        job.restart()
        known = checkpoints(job)
        job.until(lambda now, known=known: now.running and len(checkpoints(job) - known) > 1)
        job.crash()
    assert outcome(job) == "exact"
    job.close()


def checkpoints(job: FilesWorld) -> set[str]:
    return {path.parent.name for path in job.folder.glob("checkpoints/*/manifest.json")}


def test_a_job_that_had_ended_is_not_trained_again_by_a_damaged_log(tmp_path: Path) -> None:
    job = killed_job(tmp_path)
    assert outcome(job) == "exact"
    path = job.folder / WRITE_AHEAD_LOG
    path.write_bytes(path.read_bytes()[:-1])  # its last entry says that it has ended
    n_node = len(job.nodes)
    job.backend.has_gone = True
    with pytest.raises(CheckpointError, match=r"had ended, and its write-ahead log is damaged.*checkpoints"):
        job.restart()
    assert len(job.nodes) == n_node


@pytest.mark.parametrize("damages", ["gone", "a flipped bit"])
def test_a_job_file_that_is_lost_is_refused_and_the_way_out_leads_to_the_newest_checkpoint(
    tmp_path: Path, damages: str
) -> None:
    job = killed_job(tmp_path)
    path = job.folder / JOB
    if damages == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b'"n_epoch":2', b'"n_epoch":3'))
    with pytest.raises(CheckpointError, match=r"job\.json is (gone|damaged)") as caught:
        job.restart()
    place = re.search(r"start_from: {source: (\S+), rows: true}", str(caught.value))
    assert place is not None
    origin = origin_of(replace(job.spec, start_from=StartFrom(place[1], rows=True)), job.features)
    assert origin is not None
    newest = max(map(int, checkpoints(job)))
    assert origin.began_from.place.startswith(f"checkpoint {newest} of ")
    assert 0 < origin.began_from.n_sample <= job.last_seen.train.n_sample_done
    job.close()


@pytest.mark.parametrize("entry", [1, 5])
def test_a_job_that_began_from_a_checkpoint_never_goes_back_to_untrained_parameters(
    tmp_path: Path, entry: int
) -> None:
    """Its log is damaged, and so are all parts of its own checkpoints; the first entry names the one before them."""
    earlier = killed_job(tmp_path / "earlier")
    earlier.close()
    job = killed_job(tmp_path / "later", start_from=StartFrom(str(earlier.folder / "checkpoints")))
    flip_entry(job, entry)
    for number in checkpoints(job):
        for path in (job.folder / "checkpoints" / number).glob("*.part"):
            path.write_bytes(b"a disk lost this")
    job.lose_nodes()
    job.restart()
    if entry == 1:
        end = job.until_end()
        assert end.phase is JobPhase.FAILED
        assert re.search(r"cannot begin from .*; give another checkpoint in start_from", end.message)
    else:
        job.until(lambda now: now.running)
        assert job.story_has("continuing from the checkpoint that the job began from")
        job.driver.stop("ada")
        job.until_end()
    job.close()


def test_a_lost_journal_is_said(tmp_path: Path) -> None:
    job = killed_job(tmp_path)
    for path in job.folder.glob("journal*"):
        path.unlink()
    assert outcome(job) == "exact, and said"
    assert "story and decisions so far are lost" in job.now.damage
    job.close()


def test_a_job_that_went_back_runs_the_plan_that_was_decided_last(tmp_path: Path) -> None:
    job = FilesWorld(tmp_path, features(400, 20), plan=plan(1, 1), n_epoch=2, checkpoint_every_s=0.5)
    job.start()
    job.until(lambda now: now.running)
    job.scale(plan(2, 1))
    job.until(lambda now: now.running == plan(2, 1))
    job.until(lambda _: len(list(job.folder.glob("checkpoints/*/manifest.json"))) >= 2)
    job.crash()
    log = job.folder / WRITE_AHEAD_LOG
    log.write_bytes(log.read_bytes()[:40])  # no entry is left that knows a plan
    job.restart()
    assert "went back" in job.now.damage
    assert job.until_end().target == plan(2, 1)
    job.close()
