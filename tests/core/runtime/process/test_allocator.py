from __future__ import annotations

import platform
import subprocess
import sys

import pytest

MEASURE = """
import resource
import numpy as np
from dlrover_nb.core.runtime.node.node import keep_freed
from dlrover_nb.core.structs.plan.resources import Role

if {keeps}:
    assert keep_freed(Role.PS)
n_byte = 8 << 20
for _ in range(3):
    np.ones(n_byte, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(n_byte, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def n_fault(*, keeps):
    environment = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", MEASURE.format(keeps=keeps)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_that_is_freed_and_taken_again_costs_no_page_faults():
    assert n_fault(keeps=True) < 20 < n_fault(keeps=False)
