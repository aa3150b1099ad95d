"""What a process waited for processors."""

import subprocess
import sys
import textwrap
import time
from typing import NamedTuple

import pytest

from dlrover_nb.core.runtime.process.cpu_waits import CpuWaits, Starvation

SPIN = textwrap.dedent("""
    import os, subprocess, sys, time
    from dlrover_nb.core.runtime.process.cpu_waits import CpuWaits
    from dlrover_nb.core.runtime.process.limits import ControlGroupLimits
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    other = None
    limit = ControlGroupLimits("waits")
    if sys.argv[1] == "neighbor":
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    elif not limit.apply(0.2, 512).cpu:
        print("advisory"); sys.exit()
    waits, throttled_s, starved_s = CpuWaits(), 0.0, 0.0
    for _ in range(int(sys.argv[2])):
        start_s = time.process_time()
        while time.process_time() - start_s < 0.4:
            pass
        wait = waits.take()
        if wait is None:
            break
        throttled_s, starved_s = throttled_s + wait.throttled_s, starved_s + wait.starved_s
        if throttled_s > 0.2:
            break
    if other is not None:
        other.kill(); other.wait()
    limit.release()
    print("unknown" if wait is None else f"{throttled_s} {starved_s}")
""")


def waited(beside, n_try=1):
    """Return the waits of .4 s of work, or of several times that, until enough of them have been counted."""
    command = [sys.executable, "-c", SPIN, beside, str(n_try)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if done.stdout.strip() in {"unknown", "advisory"}:
        pytest.skip(f"the waits of this machine are {done.stdout.strip()}")
    return map(float, done.stdout.split())


def test_a_neighbor_on_the_same_processor_starves():
    throttled_s, starved_s = waited("neighbor")
    assert throttled_s == 0
    assert starved_s > 0.2  # .4 s of work beside another that wants as much


def test_a_quota_throttles():
    throttled_s, _ = waited("quota", n_try=20)  # where others leave it less than that, the quota does nothing
    assert throttled_s > 0.2  # .4 s of work at .2 cores, less what others took meanwhile


def test_where_the_kernel_tells_nothing_nothing_is_known(tmp_path):
    assert CpuWaits(tasks=tmp_path / "none").take() is None
    assert CpuWaits(root=tmp_path, tasks=tmp_path).take() is None


def test_the_thread_that_waited_longest_counts(tmp_path):
    def tell(**waited_s):
        for thread, seconds in waited_s.items():
            (tmp_path / thread).mkdir(exist_ok=True)
            (tmp_path / thread / "schedstat").write_text(f"7 {round(seconds * 1e9)} 3\n")

    tell(main=5.0, other=1.0)
    starvation = Starvation(tmp_path)
    assert starvation.longest_s == 0.0
    tell(main=7.5, other=2.0, new=0.25)
    assert starvation.longest_s == pytest.approx(2.5)
    assert Starvation(tmp_path / "none").longest_s == 0.0


class Times(NamedTuple):
    user: float = 0.0
    idle: float = 0.0
    steal: float = 0.0


def test_what_other_guests_of_the_processors_take_is_lost_to_others():
    """Half of the processor time of a virtual machine was stolen: so was as much as the process had."""
    times = iter([Times(), Times(user=0.2, idle=1.0, steal=0.2)])
    waits, start_s = CpuWaits(cpu_times=lambda: next(times)), time.process_time()
    while time.process_time() < start_s + 0.1:
        pass
    wait = waits.take()
    if wait is None:
        pytest.skip("the waits of this machine are unknown")
    assert wait.host_s == pytest.approx(0.4)
    assert wait.starved_s >= 0.09  # of its .1 s and more on the processor
