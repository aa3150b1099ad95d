from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.runtime.process.limits import (
    ControlGroupLimits,
    _sweep,
    _weigh,
    quota_us,
    thread_count,
    thread_variables,
    was_out_of_memory,
    weight,
)


@given(cpu=st.floats(0.01, 64))
def test_the_quota_is_the_share_of_the_period_within_what_the_kernel_takes(cpu):
    quota, period = quota_us(cpu)
    assert quota >= 1_000
    assert 20_000 <= period <= 1_000_000
    assert quota / period == pytest.approx(cpu, rel=0.01)


def test_threads_are_whole_cores():
    assert [thread_count(cpu) for cpu in (0.1, 1, 1.9, 2, 7.5)] == [1, 1, 1, 2, 7]


def test_libraries_get_as_many_threads_as_the_plan_has_whole_cores():
    assert thread_variables(2.5)["OMP_NUM_THREADS"] == "2"
    assert thread_variables(0.25)["OPENBLAS_NUM_THREADS"] == "1"


def test_where_groups_cannot_be_made_the_share_is_advisory(tmp_path):
    limit = ControlGroupLimits("job-w0", root=tmp_path / "none")
    assert limit.apply(0.5, 512) == (False, False)
    limit.release()


SPIN = textwrap.dedent("""
    import os, sys, time
    from dlrover_nb.core.runtime.process.limits import ControlGroupLimits, _own_groups
    limit = ControlGroupLimits("test")
    before = _own_groups()
    if not limit.apply(0.2, 512).cpu:
        print("advisory"); sys.exit()
    group = next(iter(limit._before))
    start = time.monotonic(), time.process_time()
    while time.monotonic() - start[0] < 1.0:
        pass
    used = (time.process_time() - start[1]) / (time.monotonic() - start[0])
    limit.release()
    assert _own_groups() == before
    print(used, group.exists())
""")


def spin():
    done = subprocess.run([sys.executable, "-c", SPIN], capture_output=True, text=True, check=True)
    if done.stdout.strip() == "advisory":
        pytest.skip("this process may not make control groups")
    used, left_over = done.stdout.split()
    return float(used), left_over


def test_a_process_gets_no_more_than_its_share_and_its_group_goes_with_it():
    used, left_over = spin()
    assert used < 0.3
    assert left_over == "False"


GROW = textwrap.dedent("""
    from dlrover_nb.core.runtime.process.limits import ControlGroupLimits
    limit = ControlGroupLimits("grow")
    def read(name):
        return [int((group / name).read_text()) for group in limit._before if (group / name).exists()]
    for cpu, memory_mib in ((0.2, 1024), (0.5, 2048), (0.1, 900)):
        told = limit.apply(cpu, memory_mib)
        if not all(told):
            print("advisory"); raise SystemExit
        print(*read("cpu.cfs_quota_us"), *read("memory.limit_in_bytes"))
    held = bytearray(300 << 20)
    print(limit.apply(0.1, 200), *read("memory.limit_in_bytes"))
    limit.release()
    print(len(limit._before))
""")


def test_limits_can_be_changed_while_a_process_runs_and_stay_where_they_cannot():
    done = subprocess.run([sys.executable, "-c", GROW], capture_output=True, text=True, check=True)
    if done.stdout.strip() == "advisory":
        pytest.skip("this process may not make control groups")
    *changed, refused, left = done.stdout.splitlines()
    quotas, limits = zip(*(map(int, line.split()) for line in changed), strict=True)
    assert quotas == (4000, 10_000, 2000)
    assert limits[1] - limits[0] == 1024 << 20
    assert limits[2] - limits[0] == -124 << 20
    assert refused == f"Enforced(cpu=True, memory=False) {limits[2]}"
    assert left == "0"


WAIT = textwrap.dedent("""
    import sys
    from dlrover_nb.core.runtime.process.limits import ControlGroupLimits
    limit = ControlGroupLimits("dead")
    print(limit.apply(0.5, 512).cpu and next(iter(limit._before)), flush=True)
    sys.stdin.read()
""")


def test_the_group_of_a_killed_process_is_swept_by_the_next():
    command = [sys.executable, "-c", WAIT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
        group = Path(killed.stdout.readline().strip())
        was_there = group.is_dir()  # until it is killed: then another node of this machine may sweep it
        killed.kill()
    if group.name == "False":
        pytest.skip("this process may not make control groups")
    assert was_there
    spin()
    assert not group.is_dir()


def test_a_group_that_a_living_process_has_just_made_is_not_swept(tmp_path):
    for name in (f"job-w0-{os.getpid()}", "job-w1-999999999", "not-ours"):
        (tmp_path / name).mkdir()
    _sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"job-w0-{os.getpid()}", "not-ours"}


GREEDY = textwrap.dedent("""
    from dlrover_nb.core.runtime.process.limits import ControlGroupLimits
    if not ControlGroupLimits("greedy").apply(1.0, 64).memory:
        raise SystemExit(3)
    kept = [bytearray(16 << 20) for _ in range(40)]
""")


def test_a_process_that_takes_too_much_memory_is_ended_by_the_kernel_and_that_is_told_once():
    done = subprocess.run([sys.executable, "-c", GREEDY], check=False)
    if done.returncode == 3:
        pytest.skip("this process may not make control groups")
    assert done.returncode == -9
    assert not was_out_of_memory("another")
    assert was_out_of_memory("greedy")
    assert not was_out_of_memory("greedy")


@given(cpu=st.floats(0.01, 128), is_v2=st.booleans())
def test_a_node_weighs_its_cores_within_what_the_kernel_takes(cpu, is_v2):
    one, least, most = (100, 1, 10_000) if is_v2 else (1024, 2, 262_144)
    assert weight(cpu, is_v2=is_v2) == pytest.approx(min(max(cpu * one, least), most), abs=0.5)


@given(cpus=st.lists(st.floats(0.1, 8), max_size=6), is_v2=st.booleans())
def test_the_nodes_of_a_host_weigh_together_what_they_would_as_processes(tmp_path_factory, cpus, is_v2):
    parent, name = tmp_path_factory.mktemp("nodes"), "cpu.weight" if is_v2 else "cpu.shares"
    one = 100 if is_v2 else 1024
    (parent / name).write_text(str(one))
    for i, cpu in enumerate(cpus):
        (parent / f"node-{i}").mkdir()
        (parent / f"node-{i}" / name).write_text(str(weight(cpu, is_v2=is_v2)))
    _weigh(parent, is_v2=is_v2)
    together = int((parent / name).read_text())
    assert together == pytest.approx(one * max(sum(max(cpu, 1.0) for cpu in cpus), 1.0), abs=len(cpus) + 1)


WEIGH = textwrap.dedent("""
    import contextlib, os, sys
    from dlrover_nb.core.runtime.process.limits import ControlGroupLimits
    def weigh():
        limit, seen = ControlGroupLimits("weigh"), []
        if not limit.apply(0.5, 512).cpu:
            print("advisory"); sys.exit()
        group = limit._entered["cpu"]
        name = "cpu.weight" if (group / "cpu.weight").exists() else "cpu.shares"
        def see_others():
            others = (each for each in group.parent.iterdir() if each.is_dir() and each != group)
            seen.append({each.name: (each / name).read_text() for each in others})
        def read(of):
            see_others()
            weight = (of / name).read_text().strip()
            see_others()
            return weight
        small, of_one = read(group), read(group.parent)
        limit.apply(3.0, 512)
        large, of_large = read(group), read(group.parent)
        limit.release()
        of_none = read(group.parent)
        return (small, of_one), (large, of_large), (0, of_none), seen
    for _ in range(1000):  # until no other node of this machine, whose weight counts too, comes or goes meanwhile
        with contextlib.suppress(OSError):
            *weights, seen = weigh()
            if seen == seen[:1] * len(seen):
                break
    for each in weights:
        print(*each)
""")


def test_the_kernel_divides_processors_by_the_weight_of_nodes_that_enter_grow_and_leave():
    done = subprocess.run([sys.executable, "-c", WEIGH], capture_output=True, text=True, check=True)
    if done.stdout.strip() == "advisory":
        pytest.skip("this process may not make control groups")
    (small, of_one), (large, of_large), (_, of_none) = (line.split() for line in done.stdout.splitlines())
    assert int(large) == 6 * int(small)
    assert int(of_large) - int(of_one) == 4 * int(small)
    assert int(of_none) < int(of_large)
