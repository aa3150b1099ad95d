"""Real jobs among strangers, damaged files and full disks: training goes on, or stops with one clear line."""

from __future__ import annotations

import contextlib
import random
import subprocess
from typing import TYPE_CHECKING

import pytest
import zmq
from support.driver.real_job import Job, TcpBackend, plan, succeeded, training_held_at
from support.waiting import LIMIT_S

from dlrover_nb.core.rundir.job_file import read_job
from dlrover_nb.core.runtime.checkpoints.memory_names import buffers_of, run_name
from dlrover_nb.core.runtime.exchange.push_pull import Exchange, StaleEpoch
from dlrover_nb.core.runtime.exchange.sockets import connect_dealer, new_keys
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.job.job import JobPhase, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import Lease, Purpose
from dlrover_nb.core.structs.wire.messages import LinesWritten, ShardAsked, ShardFinished, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.more

N_JUNK = 200
OUTSIDE = "../../planted"  # a name that would leave the folder of logs


def junk(seed: int) -> Iterator[list[bytes]]:
    """Yield messages that no node would send: noise, other versions, cut and spoilt ones."""
    noise = random.Random(seed)
    good = encode(ShardFinished("worker-0", Lease(Purpose.TRAIN, 0, 1)))
    for n in range(N_JUNK):
        spoilt = bytearray(good[0])
        spoilt[noise.randrange(4)] ^= 0xFF
        yield [
            [noise.randbytes(noise.randrange(300)) for _ in range(noise.randrange(1, 20))],
            [bytes(spoilt)],
            [good[0][: noise.randrange(len(good[0]))]],
            [*good, b"one frame too many"],
        ][n % 4]


@contextlib.contextmanager
def stranger(endpoint: str, keys: object = None, name: str = "stranger") -> Iterator[zmq.Socket[bytes]]:
    context = zmq.Context()
    socket = connect_dealer(context, endpoint, name, keys or new_keys())  # type: ignore[arg-type]
    try:
        yield socket
    finally:
        socket.close(linger=0)
        context.term()


def test_noise_on_the_sockets_of_master_and_ps_is_dropped_counted_and_training_goes_on(
    start: Callable[..., Job],
) -> None:
    job = start(plan=plan(worker_cpu=1.0))
    with training_held_at(job.features.n_train // 2):
        make_noise(job)
    end = succeeded(job)
    assert end.train.returned == end.train.refused == 0


def make_noise(job: Job) -> None:
    """Send noise to the sockets of a job, which must be up until all of it was read."""
    now = job.until(lambda now: now.running and now.train.n_sample_done > 5_000)
    (ps,) = (node for node in now.nodes if node.role is Role.PS)
    for endpoint in (read_job(job.folder).endpoint, f"ipc://{job.folder}/ps-0.{ps.pid}"):
        with stranger(endpoint) as socket:
            for frames in junk(seed=1):
                socket.send_multipart(frames)
            is_master = endpoint == read_job(job.folder).endpoint
            socket.send_multipart(encode(ShardAsked("stranger") if is_master else Exchange(-2, 0)))
            assert socket.poll(1000 * LIMIT_S)
            answer, _ = decode(socket.recv_multipart())  # the only one: noise is not answered
            assert isinstance(answer, Stop if is_master else StaleEpoch)
    with stranger(read_job(job.folder).endpoint, name=OUTSIDE) as socket:
        line = LogLine(0.0, OUTSIDE, "INFO", "x")
        socket.send_multipart(encode(LinesWritten(OUTSIDE, (line,), (0, 0))))
        socket.send_multipart(encode(ShardAsked(OUTSIDE)))
        assert socket.poll(1000 * LIMIT_S)  # an answer: the lines before it were read
    assert not list(job.folder.parent.glob("planted*"))
    assert OUTSIDE not in {line.node for line in job.driver.logs(None, 1000)}
    job.until(lambda now: now.n_dropped_message == 2 * N_JUNK)


def test_over_tcp_nobody_without_the_key_is_heard(start: Callable[..., Job]) -> None:
    job = start(backend=TcpBackend, plan=plan(worker_cpu=1.0))
    with training_held_at(job.features.n_train // 2):
        ask_without_the_key(job)
        job.until(lambda now: now.n_refused_client >= 2)
    assert succeeded(job).n_dropped_message == 0


def ask_without_the_key(job: Job) -> None:
    """Ask the master of a job in the name of a worker, with another key and with none; see that it is deaf."""
    job.until(lambda now: now.running and now.train.n_sample_done > 5_000)
    endpoint = read_job(job.folder).endpoint
    with stranger(endpoint) as other_key, zmq.Context() as context, context.socket(zmq.DEALER) as no_key:
        no_key.linger = 0
        no_key.connect(endpoint)
        for socket in (other_key, no_key):
            with contextlib.suppress(zmq.Again):  # refused so early that there is nobody to send to
                socket.send_multipart(encode(ShardAsked("worker-0")), zmq.NOBLOCK)
            assert not socket.poll(500)


def memory_of(job: Job) -> tuple[Path, ...]:
    return buffers_of(run_name(job.spec.name, job.folder))


@pytest.mark.release
def test_a_killed_ps_is_restored_from_memory_and_nothing_stays_there(start: Callable[..., Job]) -> None:
    job = start(plan=plan(worker_cpu=1.0), n_epoch=3, checkpoint_every_s=1.0)
    job.until(lambda now: any((job.folder / "checkpoints").glob("*/manifest.json")) and now.running)
    job.kill(Role.PS)
    end = succeeded(job)
    assert job.story_has("checkpoint", "was loaded from memory")
    assert not memory_of(job)
    assert [(each.node, each.n_retryable) for each in end.node_errors] == [("ps-0", 1)]


@pytest.mark.release
def test_memory_that_is_damaged_gives_way_to_the_file(start: Callable[..., Job]) -> None:
    job = start(plan=plan(worker_cpu=1.0), n_epoch=3, checkpoint_every_s=1.0)
    checkpoints = job.folder / "checkpoints"
    job.until(lambda now: now.train.n_sample_done > 5_000)
    early = set(checkpoints.glob("*/manifest.json"))  # on a slow machine of no rows yet

    def damaged() -> bool:
        """Damage what is in memory between two checkpoints: one that is being written is not sealed yet."""
        if job.driver._master.record.writing or not job.driver._master.running:
            return False
        job.kill(Role.PS)
        for memory in memory_of(job):
            with memory.open("r+b") as file:
                file.seek(10_000)
                file.write(bytes(range(256)))
        return True

    job.until(lambda _: len(set(checkpoints.glob("*/manifest.json")) - early) > 1)
    job.until(lambda _: job.driver._commands.ask(damaged))
    succeeded(job)
    assert "is damaged; it is read elsewhere" in job.backend.log("ps-1").read_text()
    assert job.story_has("checkpoint", "was loaded from files")


@pytest.mark.release
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(start: Callable[..., Job]) -> None:
    job = start(plan=plan(worker_cpu=1.0), n_epoch=3, checkpoint_every_s=1.0)
    folder = job.folder / "checkpoints"
    job.until(lambda now: len(list(folder.glob("*/manifest.json"))) == 2 and now.running)
    job.kill(Role.PS)
    for memory in memory_of(job):
        memory.unlink()
    whole = max(folder.glob("*/manifest.json"), key=lambda path: int(path.parent.name)).parent
    for part in whole.glob("*.part"):
        with part.open("r+b") as file:
            file.truncate(1000)
    succeeded(job)
    assert job.story_has(f"{whole}/", "is damaged", f"continuing from checkpoint {int(whole.name) - 1}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str, int], Path]]:
    """Mount disks of a few KiB; only root may."""
    mounted = []

    def mount(name: str, kib: int) -> Path:
        path = tmp_path / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "dlrover-nb", str(path)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this user may not mount a disk")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.release
@pytest.mark.parametrize(("kib", "why"), [(1024, "MiB free"), (2560, "cannot write")])
def test_a_change_of_ps_on_a_full_disk_is_given_up_and_nothing_is_lost(
    start: Callable[..., Job], small_disk: Callable[[str, int], Path], kib: int, why: str
) -> None:
    small_disk("run/checkpoints", kib)
    model = ModelSpec(embedding_dim=64)
    job = start(plan=plan(worker_cpu=1.0), model=model, migration=Migration.RESTART, n_epoch=3)
    job.until(lambda now: now.running and now.train.n_sample_done > 5_000)
    job.scale(plan(1, 2))
    job.until(lambda _: job.story_has("failed", "could not be written", why))
    end = succeeded(job)
    assert end.train.returned == end.train.refused == 0
    assert end.target.ps == job.spec.plan.ps  # workers may have got more memory of their own accord


@pytest.mark.release
def test_a_full_disk_under_journal_history_and_checkpoints_does_not_stop_training(
    start: Callable[..., Job], small_disk: Callable[[str, int], Path], caplog: pytest.LogCaptureFixture
) -> None:
    disk = small_disk("run", 4096)
    job = start(history=f"sqlite:///{disk}/history.db", checkpoint_every_s=1.0)
    job.until(lambda now: now.running and now.train.n_sample_done > 5_000)
    with contextlib.suppress(OSError), (disk / "filler").open("wb") as file:
        while True:
            file.write(bytes(1024))
            file.flush()
    job.scale(plan(2, 1))
    end = job.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.finished
    assert "the job continues" in caplog.text
    assert "is not in the history from here on" in caplog.text
