import os
import subprocess
import sys
from dataclasses import replace

import pytest
from support.cases import for_each
from support.runtime.node_world import FEATURES, SPEC
from support.waiting import LIMIT_S

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError, WireError
from dlrover_nb.core.runtime.pod.pod import (
    MOST_LETTERS,
    await_value,
    node_config,
    read_pod_job,
    write_end_message,
)
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.batch_cost import BatchCost
from dlrover_nb.core.structs.wire.pod_contract import PodJob, state_folder

JOB = PodJob(
    SPEC, FEATURES, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32, capacity=Capacity((NodeShape(2.0, 512),))
)
TOLD = {
    "DLROVER_NB_NODE": "ps-1",
    "DLROVER_NB_ROLE": "ps",
    "DLROVER_NB_CPU": "0.25",
    "DLROVER_NB_MEMORY_MIB": "512",
    "DLROVER_NB_FOLDER": "/dlrover-nb/state/test-0a1b2c3d",
    "POD_IP": "10.1.2.3",
}
MASTER = "tcp://10.1.2.9:7070"


def test_what_pods_are_told_survives_its_secret():
    assert from_json(to_json(JOB), PodJob) == JOB


def test_no_secret_shows_in_what_pods_are_told():
    assert JOB.secret_key not in repr(JOB)
    assert JOB.access not in repr(JOB)


def test_a_node_is_what_its_pod_is_told():
    config = node_config(JOB, TOLD, master=MASTER)
    assert (config.node, config.role, config.cpu, config.memory_mib) == ("ps-1", Role.PS, 0.25, 512)
    assert (config.master, config.listen) == (MASTER, "tcp://10.1.2.3")
    assert config.master_file == "/dlrover-nb/pod/master"
    assert config.folder == state_folder("test", "0a1b2c3d")
    assert (config.public_key, config.secret_key) == (JOB.public_key, JOB.secret_key)


def test_a_pod_knows_what_earlier_jobs_measured_and_one_of_an_earlier_release_knows_nothing():
    costs = (BatchCost(0.01, 0.001, 300, "EPYC, 0.5 cores, 512 MiB", "ads", 1.79e9),)
    job = from_json(to_json(replace(JOB, batch_costs=costs)), PodJob)
    assert node_config(job, TOLD, master=MASTER).batch_costs == costs
    before = to_json(JOB).decode().replace(',"batch_costs":[]', "")
    assert "batch_costs" not in before
    assert from_json(before, PodJob) == JOB


def test_an_address_of_ipv6_stands_in_brackets():
    assert node_config(JOB, TOLD | {"POD_IP": "fd00::7"}, master=MASTER).listen == "tcp://[fd00::7]"


@for_each("name", sorted(TOLD))
def test_a_pod_that_was_told_too_little_says_what_is_missing(name):
    with pytest.raises(InvalidValueError, match=f"variable {name} must be set"):
        node_config(JOB, {n: v for n, v in TOLD.items() if n != name}, master=MASTER)


@pytest.mark.parametrize("name", ["DLROVER_NB_ROLE", "DLROVER_NB_CPU", "DLROVER_NB_MEMORY_MIB"])
def test_a_pod_that_was_told_nonsense_says_what(name):
    with pytest.raises(InvalidValueError, match=f"variable {name}, got 'a lot'"):
        node_config(JOB, TOLD | {name: "a lot"}, master=MASTER)


def test_a_pod_without_its_secret_says_what_to_mount(tmp_path, error_words):
    with error_words(NotFoundError):
        read_pod_job(tmp_path / "job.json")


def test_a_secret_that_is_none_of_ours_is_refused(tmp_path):
    (tmp_path / "job.json").write_text('{"spec": 1}')
    with pytest.raises(WireError, match="expected a PodJob"):
        read_pod_job(tmp_path / "job.json")


def test_a_pod_waits_for_what_it_is_not_told_yet():
    answers, slept = iter([None, None, MASTER]), []
    assert await_value(lambda: next(answers), "it", sleep=slept.append) == MASTER
    assert len(slept) == 2


def test_a_pod_that_is_never_told_ends(error_words):
    with error_words(BackendError):
        await_value(lambda: None, "where the job's master is", sleep=lambda _s: None)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotFoundError("no file\n  at all"), "no file at all"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (NotFoundError("x" * 9000), "x" * MOST_LETTERS),
    ],
)
def test_why_a_pod_failed_is_left_in_one_line(tmp_path, error, told):
    assert write_end_message(error, tmp_path / "end") == told
    assert (tmp_path / "end").read_text() == told


def test_there_is_nowhere_to_leave_it_outside_of_pods(tmp_path):
    assert write_end_message(NotFoundError("no"), tmp_path / "no" / "end") == "no"


def run_module(**variables):
    return subprocess.run(
        [sys.executable, "-m", "dlrover_nb.core.runtime.pod"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_outside_of_a_pod_the_program_ends_with_one_line():
    done = run_module()
    assert done.returncode == 1
    assert "mount the job's Secret there" in done.stderr
    assert "Traceback" not in done.stderr
