"""Foreign jobs from their first program to their end, with real processes in the place of pods."""

import sys
import time

import pytest
from support.driver.external_pods_double import ForeignJob, kill, lines_of, plan
from support.waiting import LIMIT_S

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.launch.pod_script import STORE
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.external import Counting, ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.training.shards import ShardAction, ShardChoice

# Reads TF_CONFIG as TensorFlow's TFConfigClusterResolver does, and trains until it is told to end.
TF_PROGRAM = """
import json, os, pathlib, sys, time
from dlrover_nb.report import step
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
own = config["cluster"][task["type"]][task["index"]]
print(json.dumps(config | {"own": own}), flush=True)
if task["type"] == "ps":
    time.sleep(600)
while not pathlib.Path(sys.argv[1]).exists():
    step(samples=16, loss=0.5)
    time.sleep(0.05)
"""
# Writes so many steps, those beyond the thirtieth once a file is there, if one is named.
LOG_PROGRAM = """
import os, sys, time
for n in range(int(sys.argv[1])):
    while n > 30 and len(sys.argv) > 2 and not os.path.exists(sys.argv[2]):
        time.sleep(0.05)
    print(f"rank {os.environ['RANK']} step {n} loss {1 / (n + 1):.3f}", flush=True)
    time.sleep(0.05)
"""
TORCH_PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for n in range(20):
    total = torch.ones(4)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"step {n} of {round(total[0].item())}", flush=True)
dist.destroy_process_group()
"""
PYTHON = (sys.executable, "-c")


@pytest.fixture
def job(tmp_path):
    made = []

    def make(foreign, **changes):
        made.append(ForeignJob(tmp_path, foreign, **({"plan": plan()} | changes)))
        made[0].driver.start()
        return made[0]

    yield make
    for each in made:
        each.close()


def tensorflow(tmp_path):
    role = ExternalRole((*PYTHON, TF_PROGRAM, str(tmp_path / "end")))
    return ExternalSpec(role, 1_000_000, ps=role)


def until_told(running, *, n):
    """Wait until so many programs have written what they were told: a job trains before all of them have begun."""
    running.until(lambda _: len(lines_of(running)) >= n)
    return lines_of(running)


def is_training(n_worker):
    return lambda now: now.running == plan(n_worker) and len([n for n in now.nodes if n.last]) == n_worker


@pytest.mark.more
def test_a_tensorflow_job_trains_is_scaled_and_ends_with_its_chief(job, tmp_path):
    running = job(tensorflow(tmp_path))
    now = running.until(is_training(2))
    assert now.phase is JobPhase.TRAINING
    assert now.loss == 0.5
    configs = until_told(running, n=3)
    assert len({str(each["cluster"]) for each in configs}) == 1
    assert {(e["task"]["type"], e["task"]["index"]) for e in configs} == {
        ("chief", 0),
        ("worker", 0),
        ("ps", 0),
    }
    assert len({each["own"] for each in configs}) == 3

    pids = {node: process.pid for node, process in running.pods.items()}
    assert running.scale(plan(3)).id == "d1"
    now = running.until(lambda now: is_training(3)(now) and len(lines_of(running, "ps-0")) > 1)
    assert all(running.pods[node].pid == pid for node, pid in pids.items()), "pods that stay are kept"
    assert [len(each["cluster"]["worker"]) for each in lines_of(running, "ps-0")] == [1, 2]
    assert "d1 is applied" in " ".join(now.story)

    trained = now.train.n_sample_done
    running.until(lambda now: now.train.n_sample_done > trained > 0)
    (tmp_path / "end").touch()
    assert running.until_end().phase is JobPhase.SUCCEEDED
    assert all(process.poll() is not None for process in running.pods.values())
    assert not running.now.nodes


@pytest.mark.release
def test_an_accepted_proposal_changes_the_replicas_and_nothing_else(job, tmp_path):
    running = job(tensorflow(tmp_path), plan=plan(1), mode=Mode.SUGGEST, batch_size=16)
    now = running.until(lambda now: now.open_proposal)
    wanted = now.open_proposal.candidate.plan
    assert wanted != plan(1)
    assert (wanted.worker.cpu, wanted.ps.cpu) == (plan(1).worker.cpu, plan(1).ps.cpu)
    late = Decision(Verdict.ACCEPT, "ada", now.at_s - 18_000, proposal=now.open_proposal.id)
    assert running.driver.decide(late).at_s >= now.at_s, "a client's clock dates nothing"
    now = running.until(lambda now: now.running == wanted)
    assert [str(each.status) for each in now.proposals][:1] == ["applied"]


@pytest.mark.release
def test_a_worker_that_is_lost_is_replaced(job, tmp_path):
    running = job(tensorflow(tmp_path))
    running.until(is_training(2))
    kill(running.pods["worker-1"])
    now = running.until(lambda now: "worker-2" in [n.id for n in now.nodes] and is_training(2)(now))
    assert any("worker-1 was lost" in line for line in now.story)


@pytest.mark.release
def test_steps_are_read_from_what_programs_write(job, tmp_path):
    foreign = ExternalSpec(
        ExternalRole((*PYTHON, LOG_PROGRAM, "60", str(tmp_path / "seen"))),
        60 * 2 * 32,
        ps=ExternalRole(("sleep", "600")),
        framework=Framework.TORCH,
        step_log=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )
    running = job(foreign, batch_size=32)
    now = running.until(is_training(2))
    (tmp_path / "seen").touch()
    assert {n.last.role for n in now.nodes if n.last} == {"worker"}
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED
    assert end.train.n_sample_done == end.train.n_sample_total == 60 * 2 * 32, "each step is counted once"
    assert any("rank 1 step 59" in line.text for line in running.driver.logs(None, 1000))


@pytest.mark.release
def test_torchrun_finds_the_others_at_the_store(job, tmp_path):
    (tmp_path / "train.py").write_text(TORCH_PROGRAM)
    foreign = ExternalSpec(
        ExternalRole((sys.executable, "-m", "torch.distributed.run", str(tmp_path / "train.py"))),
        20 * 32,
        ps=ExternalRole((*PYTHON, STORE)),
        framework=Framework.TORCH,
        counting=Counting.JOB,
        step_log=r"step (?P<step>\d+) of 2",
    )
    running = job(foreign, batch_size=32)
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done == 20 * 32


@pytest.mark.release
@pytest.mark.filterwarnings("ignore:Exception in thread driver-foreign")  # which is how it is killed
@pytest.mark.parametrize("step_s", [-3600.0, 86_400.0])  # the wall clock is set meanwhile
def test_a_driver_that_comes_back_disturbs_no_program_and_counts_nothing_twice(
    job, tmp_path, monkeypatch, step_s
):
    began_s, wall_s = time.monotonic(), time.time
    running = job(tensorflow(tmp_path))
    running.until(is_training(2))
    running.scale(plan(1))
    running.until(lambda now: is_training(1)(now) and len(configs_alone(running)) == 2)
    before, configs = running.now, configs_alone(running)
    abandon(running.driver)
    monkeypatch.setattr(time, "time", lambda: wall_s() + step_s)
    running.driver = running.new_driver(again=True)
    running.driver.start()
    assert [d.id for d in running.now.decisions] == ["d1"]
    now = running.until(
        lambda now: is_training(1)(now) and now.train.n_sample_done > before.train.n_sample_done
    )
    assert "the master restarted and takes over 2 nodes" in " ".join(now.story)
    assert configs_alone(running) == configs, "no program began anew"
    (tmp_path / "end").touch()
    end = running.until_end()
    assert end.phase is JobPhase.SUCCEEDED
    assert before.at_s < end.ended_at_s <= end.started_at_s + time.monotonic() - began_s


def configs_alone(running):
    """Return what the two nodes that stay were told, once each knows that no other worker is left."""
    told = {node: lines_of(running, node) for node in ("worker-0", "ps-0")}
    return {node: lines for node, lines in told.items() if lines and not lines[-1]["cluster"].get("worker")}


def abandon(driver):
    """Let a driver stop where it is, as one that was killed: its files are closed, and nothing else is done."""
    driver._put_away, driver._turn = driver._held.close, sys.exit
    assert driver.join(LIMIT_S)


@pytest.mark.release
def test_a_program_that_cannot_run_ends_the_job_with_its_last_words(job):
    program = (*PYTHON, "import sys; sys.exit('no such data')")
    foreign = ExternalSpec(ExternalRole(program), 100, ps=ExternalRole(program))
    running = job(foreign, plan=plan(1))
    running.driver.snapshot()
    assert "no such data" in running.until(lambda now: "no such data" in now.message).message


def test_shards_are_not_ours_to_choose(job, tmp_path):
    with pytest.raises(InvalidValueError, match="runs its own programs"):
        job(tensorflow(tmp_path)).driver.choose(ShardChoice(1, ShardAction.SKIP, "ada"))
