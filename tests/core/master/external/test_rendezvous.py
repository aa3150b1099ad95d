import json
import subprocess

import pytest
from support.cases import for_each
from support.waiting import LIMIT_S, until

from dlrover_nb.core.master.external.launch.pod_script import program
from dlrover_nb.core.master.external.launch.rendezvous import Member, environment
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.plan.resources import Role

RUN = ExternalRole(("run",))
MEMBERS = (
    Member("worker-0", Role.WORKER, "10.0.0.1"),
    Member("worker-3", Role.WORKER, "10.0.0.2"),
    Member("ps-0", Role.PS, "fd00::3"),
)


def read(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def tf_config(node, **fields):
    spec = ExternalSpec(RUN, 1000, ps=RUN, **fields)
    return json.loads(read(environment(spec, MEMBERS, node, rendezvous_id="a-1"))["TF_CONFIG"])


def test_tensorflow_is_told_all_addresses_by_kind_and_its_own_task():
    chief = tf_config("worker-0")
    assert chief["cluster"] == {
        "chief": ["10.0.0.1:2222"],
        "worker": ["10.0.0.2:2222"],
        "ps": ["[fd00::3]:2222"],
    }
    assert chief["task"] == {"type": "chief", "index": 0}
    assert tf_config("worker-3")["task"] == {"type": "worker", "index": 0}
    assert tf_config("ps-0")["task"] == {"type": "ps", "index": 0}
    assert tf_config("ps-0")["cluster"] == chief["cluster"]


def test_without_a_chief_all_workers_are_workers():
    told = tf_config("worker-3", chief=False, port=4000)
    assert told["cluster"]["worker"] == ["10.0.0.1:4000", "10.0.0.2:4000"]
    assert "chief" not in told["cluster"]
    assert told["task"] == {"type": "worker", "index": 1}


def test_torch_workers_meet_at_the_store_under_the_name_of_their_meeting():
    spec = ExternalSpec(RUN, 1000, framework=Framework.TORCH, n_process=2)
    told = read(environment(spec, MEMBERS, "worker-3", rendezvous_id="a-7"))
    assert told["PET_RDZV_ENDPOINT"] == "[fd00::3]:2222"
    assert (told["PET_RDZV_ID"], told["PET_NNODES"], told["PET_NPROC_PER_NODE"]) == ("a-7", "2", "2")
    assert (told["MASTER_ADDR"], told["RANK"], told["WORLD_SIZE"]) == ("10.0.0.1", "1", "2")


def test_the_store_is_never_told_anything_new():
    spec = ExternalSpec(RUN, 1000, framework=Framework.TORCH)
    assert environment(spec, MEMBERS, "ps-0", rendezvous_id="a-1") == environment(
        spec, (*MEMBERS, Member("worker-4", Role.WORKER, "10.0.0.9")), "ps-0", rendezvous_id="a-2"
    )


@pytest.fixture
def pod(tmp_path):
    """Run the lines around a command as a pod does, with files in the place of its volume."""
    running = []

    def start(*command, path="/usr/bin:/bin"):
        spec = ExternalSpec(ExternalRole(command), 1000, ps=RUN)
        cluster = tmp_path / "cluster"
        process = subprocess.Popen(
            program(spec, Role.WORKER),
            cwd=tmp_path,
            env={"PATH": path, "DLROVER_NB_CLUSTER": str(cluster)},
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return cluster, process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def tell(cluster, text):
    new = cluster.with_suffix(".new")
    new.write_text(text)
    new.replace(cluster)


def test_a_program_runs_with_what_it_is_told_and_its_end_is_the_pods(pod):
    cluster, process = pod("sh", "-c", 'echo "$RANK"; exit 0')
    tell(cluster, "RANK=b  c")
    assert process.wait(LIMIT_S) == 0
    assert process.stdout.read() == "b  c\n"


def test_whatever_the_variables_hold_is_data(pod, tmp_path):
    hostile = "$(touch x) `touch x` ; touch x # ' \" \\ * ~ ${HOME} é"
    cluster, process = pod("sh", "-c", 'printf "%s|%s|%s" "$TF_CONFIG" "$LD_X" "$PATH"; ls')
    tell(cluster, f"TF_CONFIG={hostile}\nLD_X=1\nPATH=/evil\ntouch x\n$(touch x)\n")
    assert process.wait(LIMIT_S) == 0
    assert process.stdout.read().splitlines() == [f"{hostile}||/usr/bin:/bin" + "cluster"]
    assert not (tmp_path / "x").exists()


def test_a_program_begins_anew_when_it_is_told_something_else(pod):
    cluster, process = pod("sh", "-c", 'echo "$RANK"; [ "$RANK" = 2 ] || exec sleep 60')
    tell(cluster, "RANK=1")
    assert process.stdout.readline() == "1\n"
    tell(cluster, "RANK=2")
    assert process.wait(LIMIT_S) == 0
    assert process.stdout.read() == "2\n"


def test_a_program_that_is_told_nothing_any_more_is_ended_and_waits(pod):
    cluster, process = pod("sh", "-c", 'sleep 60 & trap "kill $!; echo ended; exit 1" TERM; echo up; wait')
    tell(cluster, "RANK=1")
    assert process.stdout.readline() == "up\n"
    tell(cluster, "")
    assert process.stdout.readline() == "ended\n"
    tell(cluster, "RANK=1")
    assert process.stdout.readline() == "up\n"


@pytest.mark.more
def test_a_program_goes_on_while_its_variables_cannot_be_read(pod, tmp_path):
    tools, reads, fails = tmp_path / "bin", tmp_path / "reads", tmp_path / "fails"
    tools.mkdir()
    (tools / "cat").write_text(f'#!/bin/sh\necho >> {reads}\n[ ! -e {fails} ] && exec /bin/cat "$@"\n')
    (tools / "cat").chmod(0o755)
    cluster, process = pod("sh", "-c", 'echo "$RANK"; exec sleep 60', path=f"{tools}:/usr/bin:/bin")
    tell(cluster, "RANK=1")
    assert process.stdout.readline() == "1\n"
    fails.touch()
    n_read = len(reads.read_text())
    until(lambda: len(reads.read_text()) >= n_read + 3, what="reads that fail")
    fails.unlink()
    tell(cluster, "RANK=2")
    assert process.stdout.readline() == "2\n"


def test_a_program_that_failed_begins_anew_with_the_next_meeting(pod):
    cluster, process = pod("sh", "-c", 'echo "$RANK"; [ "$RANK" = 2 ]')
    tell(cluster, "RANK=1")
    assert process.stdout.readline() == "1\n"
    tell(cluster, "RANK=2")
    assert process.wait(LIMIT_S) == 0


def test_a_program_that_was_killed_ends_its_pod_at_once_as_killed(pod):
    cluster, process = pod("sh", "-c", "kill -9 $$")
    tell(cluster, "RANK=1")
    assert process.wait(LIMIT_S) == 137


def test_a_pod_that_is_asked_to_end_asks_its_program(pod):
    cluster, process = pod("sh", "-c", 'sleep 60 & trap "kill $!; echo saved; exit 0" TERM; echo up; wait')
    tell(cluster, "RANK=1")
    assert process.stdout.readline() == "up\n"
    process.terminate()
    assert process.wait(LIMIT_S) == 143
    assert process.stdout.read() == "saved\n"


@for_each("host", ["10.0.0.1", "::1", "127.0.0.1:4001", "[::1]:4001"])
def test_an_address_with_a_port_of_its_own_takes_no_other(host):
    spec = ExternalSpec(RUN, 10, framework=Framework.TORCH, port=2222)
    members = [Member("worker-0", Role.WORKER, host), Member("ps-0", Role.PS, host)]
    told = read(environment(spec, members, "worker-0", rendezvous_id="a-1"))
    has_own = host.endswith(":4001")
    assert told["MASTER_PORT"] == ("4001" if has_own else "2223")
    assert told["PET_RDZV_ENDPOINT"].endswith(":4001" if has_own else ":2222")
    assert told["MASTER_ADDR"] == told["PET_LOCAL_ADDR"]
    assert not told["MASTER_ADDR"].endswith("4001")
