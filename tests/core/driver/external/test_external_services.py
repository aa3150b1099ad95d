"""Programs that use the services of their job's master, over real HTTP, and kill -9 of programs and master.

Each program appends every batch that it has trained to a file of its own: those files are what was trained.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.driver.external_pods_double import ROOT, ForeignJob, kill, plan
from support.waiting import until

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, buffers_of, free_memory
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.training.shards import BatchChoice
from dlrover_nb.core.structs.views.snapshot import JobSnapshot

PYTHON = (sys.executable, "-c")
HEAD = """
import os, pathlib, sys, time
from dlrover_nb import client
place = pathlib.Path(sys.argv[1])
out = open(place / f"{os.environ['DLROVER_NB_NODE']}-{os.getpid()}.rows", "a")
def train(epoch, rows):
    time.sleep(float(sys.argv[2]))
    out.write("".join(f"{epoch} {row}\\n" for row in rows))
    out.flush()
"""
PROGRAM = (
    HEAD
    + """
for shard in client.shards(600):
    for rows in shard.batches(10):
        train(shard.epoch, rows)
"""
)
# Its parameters are the rows that they have seen, so each of them must be there once at the end.
WITH_CHECKPOINTS = (
    HEAD
    + """
import json
found = client.checkpoint.load(folder=str(place / "checkpoints"))
seen, step = (json.loads(found.state), found.step) if found else ([], 0)
for shard in client.shards(600):
    for rows in shard.batches(10):
        train(shard.epoch, rows)
        seen += [[shard.epoch, row] for row in rows]
        shard.done(len(rows))
        step += 1
        if step % 5 == 0:
            client.checkpoint.save(lambda: json.dumps(seen).encode(), step, folder=str(place / "checkpoints"))
(place / "seen.json").write_text(json.dumps(seen))
"""
)
OWN_FOLDER = (
    HEAD
    + """
os.chdir(place)
found = client.checkpoint.load()
(place / f"{sys.argv[3]}.found").write_text(repr(found))
for shard in client.shards(600):
    shard.done()
    client.checkpoint.save(b"state", shard.stop)
"""
)
POLITE = (
    HEAD
    + """
sizes = place / f"{os.environ['DLROVER_NB_NODE']}.sizes"
while not client.should_stop():
    sizes.write_text(str(client.batch_size(10)))
    time.sleep(0.02)
(place / "saved").touch()
"""
)
TORCH = (
    HEAD
    + """
from torch.utils.data import DataLoader
class Rows:
    def __len__(self): return 600
    def __getitem__(self, row): return row
if sys.argv[3] == "sampler":
    sampler = client.ShardSampler(600)
    loader = DataLoader(Rows(), batch_size=16, sampler=sampler, num_workers=1)
    for _ in client.passes():
        for batch in loader:
            train(0, batch.tolist())
            sampler.done(len(batch))
else:
    data = client.ShardDataset(list, 600, batch_size=16)
    loader = DataLoader(data, batch_size=None, num_workers=int(sys.argv[4]))
    for _ in client.passes():
        for batch, ticket in loader:
            train(0, batch)
            data.done(ticket)
    assert not client.session.session()._leases, "nothing piles up"
"""
)
# Processes in step: rank 0 loads and saves, all acknowledge before; the parameters count the rows they have seen.
IN_STEP = (
    HEAD
    + """
import io, torch, torch.distributed as dist
from torch.distributed.algorithms.join import Join
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), str(place / "checkpoints")
model = torch.nn.Linear(4, 1)
found = client.checkpoint.load(folder=folder) if rank == 0 else None
if found:
    model.load_state_dict(torch.load(io.BytesIO(found.state)))
parallel = torch.nn.parallel.DistributedDataParallel(model)
with Join([parallel]):
    for shard in client.shards(600, wait=False):
        for rows in shard.batches(10):
            parallel(torch.ones(len(rows), 4)).sum().backward()
            train(shard.epoch, rows)
client.acknowledge()
dist.barrier()
if rank == 0:
    client.checkpoint.save(b"", 1, folder=folder)
dist.destroy_process_group()
"""
)


def foreign(program, place, *more, n_sample=1200):
    role = ExternalRole((*PYTHON, program, str(place), *more))
    return ExternalSpec(role, n_sample, ps=ExternalRole(("sleep", "600")), framework=Framework.TORCH)


@pytest.fixture
def job(tmp_path):
    made = []

    def make(spec, **changes):
        settings = {"plan": plan(), "batch_size": 10, "shard_batches": 4, "n_epoch": 2} | changes
        made.append(ForeignJob(tmp_path, spec, **settings))
        made[0].driver.start()
        return made[0]

    yield make
    for each in made:
        each.close()


def trained(place):
    """Return how often each row of each pass was trained."""
    lines = [line for path in place.glob("*.rows") for line in path.read_text().splitlines()]
    return Counter(tuple(map(int, line.split())) for line in lines if len(line.split()) == 2)


def everything(n_epoch=2):
    return Counter((epoch, row) for epoch in range(n_epoch) for row in range(600))


def test_programs_train_each_row_once(job, tmp_path):
    running = job(foreign(PROGRAM, tmp_path, "0.001"))
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert trained(tmp_path) == everything()
    assert (end.train.done, end.train.n_sample_done, end.train.refused) == (30, 1200, 0)


@pytest.mark.release
def test_programs_that_are_killed_and_scaled_train_all_rows(job, tmp_path):
    running = job(foreign(PROGRAM, tmp_path, "0.02"))
    running.until(lambda now: now.train.n_sample_done > 100)
    kill(running.pods["worker-0"])
    running.until(lambda now: now.train.n_sample_done > 400)
    running.scale(plan(3))
    running.until(lambda now: now.train.n_sample_done > 600)
    kill(running.pods["worker-1"])
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    counts = trained(tmp_path)
    assert counts.keys() == everything().keys(), "no row is left out"
    assert (end.train.done, end.train.n_sample_done) == (30, 1200)
    assert end.train.returned > 0


@pytest.mark.release
@pytest.mark.parametrize("seed", [1, 2])
def test_parameters_of_a_checkpoint_have_seen_each_row_once_whatever_is_killed(job, tmp_path, seed):
    chance = random.Random(seed)
    running = job(foreign(WITH_CHECKPOINTS, tmp_path, "0.04"), plan=plan(1))
    for mark in (100, 250, 400, 550):  # reports are a second old, so the last rows must take some seconds
        # progress falls back to the last checkpoint with each death
        running.until(lambda now, mark=mark: now.train.n_sample_done > mark + chance.randrange(60))
        kill(running.pods[next(node.id for node in running.now.nodes if node.id.startswith("worker"))])
        running.until(lambda now: now.nodes and now.running is None)
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    seen = Counter(map(tuple, json.loads((tmp_path / "seen.json").read_text())))
    assert seen == everything()
    assert end.train.n_sample_done == 1200
    assert len(list((tmp_path / "checkpoints").glob("*.dlnb"))) == 2
    assert not list((tmp_path / "checkpoints").glob("*.tmp"))


@pytest.mark.release
def test_another_run_in_the_same_working_folder_begins_anew(tmp_path):
    for name in ("first", "second"):
        running = ForeignJob(
            tmp_path / name,
            foreign(OWN_FOLDER, tmp_path, "0", name),
            plan=plan(1),
            batch_size=10,
            shard_batches=4,
            n_epoch=2,
        )
        running.driver.start()
        try:
            end = running.until_end()
        finally:
            running.close()
        assert end.phase is JobPhase.SUCCEEDED, end.message
        assert (tmp_path / f"{name}.found").read_text() == "None"
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


@pytest.mark.release
@pytest.mark.parametrize("kind", [("sampler",), ("dataset", "0"), ("dataset", "2")], ids="-".join)
def test_loaders_of_torch_account_for_each_row(job, tmp_path, kind):
    running = job(foreign(TORCH, tmp_path, "0.001", *kind, n_sample=600), n_epoch=1)
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED, f"{end.message} {running.driver.logs(None, 30)}"
    assert trained(tmp_path) == everything(1)
    assert (end.train.n_sample_done, end.train.refused) == (600, 0)


@pytest.mark.more
def test_a_loader_whose_training_says_nothing_is_told(job, tmp_path):
    program = HEAD + (
        "sampler = client.ShardSampler(600)\nfor _ in client.passes():\n    for row in sampler: pass\n"
    )
    running = job(foreign(program, tmp_path, "0", n_sample=600), n_epoch=1, plan=plan(1))
    words = "600 rows were drawn and are not done; call done(n_row) after each step"
    until(lambda: any(words in line.text for line in running.driver.logs("worker-0", 100)))


@pytest.mark.release
def test_processes_in_step_share_the_rows_and_begin_anew_together(job, tmp_path):
    running = job(foreign(IN_STEP, tmp_path, "0.01"))
    running.until(lambda now: now.train.n_sample_done > 200)
    kill(running.pods["worker-1"])
    running.until(lambda now: "worker-2" in [node.id for node in now.nodes])
    before = trained(tmp_path)
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED, f"{end.message} {running.driver.logs(None, 30)}"
    assert before.total() >= 200
    assert not everything() - (trained(tmp_path) - before), "without a checkpoint all rows are trained again"
    assert end.train.n_sample_done == 1200


def test_programs_are_told_to_stop_and_save_what_they_have(job, tmp_path):
    running = job(foreign(POLITE, tmp_path, "0"))
    sizes = [tmp_path / f"worker-{n}.sizes" for n in range(2)]
    until(lambda: all(path.exists() for path in sizes))
    running.driver.choose(BatchChoice((("worker-1", 96),), "ada"))
    until(lambda: [path.read_text() for path in sizes] == ["10", "96"])
    running.driver.stop("ada", "enough")
    end = running.until_end()
    assert (end.phase, end.message) == (JobPhase.STOPPED, "stopped by ada: enough")
    assert (tmp_path / "saved").exists()
    assert any("have 60 s to save their work" in line for line in end.story)


@pytest.mark.more
def test_programs_save_what_they_have_when_the_budget_of_their_job_is_spent(job, tmp_path):
    prices = PriceTable(cpu_hour=3600.0, gib_hour=0.0)
    running = job(foreign(POLITE, tmp_path, "0"), prices=prices, budget_total=1e6)
    until((tmp_path / "worker-0.sizes").exists)
    limit = running.now.budget.spent + 1.0
    running.driver.decide(Decision(Verdict.BUDGET, "ada", 0.0, budget_total=limit))
    end = running.until_end()
    assert end.phase is JobPhase.STOPPED
    assert end.message.startswith("stopped by budget_total: ")
    assert end.budget.spent >= limit
    assert (tmp_path / "saved").exists()


def test_the_end_of_a_job_frees_the_memory_of_its_checkpoints(job, tmp_path):
    running = job(foreign(WITH_CHECKPOINTS, tmp_path, "0.01"), plan=plan(1))
    until(lambda: buffers_of(running.memory))
    running.driver.stop("ada")
    running.until_end()
    assert not [path for path in SHM.iterdir() if path.name.startswith(running.memory)]


class Masters:
    """A job whose master is a process: killed and begun again, while its pods run on."""

    def __init__(self, folder, spec):
        self.folder, self.process = folder, None
        (folder / "spec.json").write_bytes(to_json(spec))

    def begin(self):
        program = Path(__file__).with_name("external_master_program.py")
        paths = (str(ROOT), str(ROOT / "tests"))
        self.process = subprocess.Popen(
            (sys.executable, str(program), str(self.folder)),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        until(lambda: (self.folder / "end.json").exists() or self.process.poll() is not None)
        return from_json((self.folder / "end.json").read_bytes(), JobSnapshot)

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.kill_pods("*")
        free_memory("foreign", self.folder / "run")

    def kill_pods(self, names):
        for pid in self.folder.glob(f"pods/{names}/pid"):
            if not (pid.parent / "code").exists():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(pid.read_text()), signal.SIGKILL)


@pytest.fixture
def masters(tmp_path):
    made = []

    def make(spec):
        made.append(Masters(tmp_path, spec))
        made[0].begin()
        return made[0]

    yield make
    for each in made:
        each.close()


def spec_of(program, tmp_path, step_s, n_worker):
    return JobSpec(
        "foreign",
        plan=plan(n_worker),
        foreign=foreign(program, tmp_path, step_s),
        mode=Mode.MANUAL,
        batch_size=10,
        shard_batches=4,
        n_epoch=2,
    )


@pytest.mark.release
def test_a_master_that_is_killed_goes_on_with_exact_rows(masters, tmp_path):
    running = masters(spec_of(PROGRAM, tmp_path, "0.01", 2))
    for mark in (100, 400, 700):
        until(lambda mark=mark: trained(tmp_path).total() > mark)
        running.kill()
        running.begin()
    end = running.end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert trained(tmp_path) == everything(), "no program died, so no row is trained twice"
    assert end.train.n_sample_done == 1200
    assert end.train.returned == 0


@pytest.mark.more
def test_programs_and_masters_that_are_killed_leave_each_row_in_the_parameters_once(masters, tmp_path):
    running = masters(spec_of(WITH_CHECKPOINTS, tmp_path, "0.01", 1))
    for mark in (150, 500):
        until(lambda mark=mark: trained(tmp_path).total() > mark)
        running.kill()
        running.kill_pods("worker-*")
        running.begin()
    end = running.end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    seen = Counter(map(tuple, json.loads((tmp_path / "seen.json").read_text())))
    assert seen == everything()
    assert end.train.n_sample_done == 1200
