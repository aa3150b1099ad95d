"""A process that waits for one worker's bell as a PS does, and says how long its requests waited for it.

Arguments: the process of the worker, and number and inode of the descriptors that it asks and is answered by.
It serves until its standard input ends.
"""

from __future__ import annotations

import os
import select
import sys
from types import SimpleNamespace

import numpy as np

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.runtime.exchange.push_pull import BellName, DescriptorName
from dlrover_nb.core.runtime.exchange.slab.bell import open_bell
from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Bell, Outcome, ring
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.ps.rung import RungRequests
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.plan.resources import Role

N_DENSE = 16


def main(pid: int, ask: int, ask_inode: int, answers: int, answers_inode: int) -> None:
    store = ParameterStore(ModelSpec(embedding_dim=4, hidden=(2,)), 100, N_DENSE)
    store.init_dense(np.zeros(N_DENSE, np.float32))
    slab = np.zeros(4096, np.uint8)
    at = slab.ctypes.data + -slab.ctypes.data % 64
    pipes = open_bell(BellName(pid, DescriptorName(ask, ask_inode), DescriptorName(answers, answers_inode)))
    bell = Bell(at, 2048, *pipes, step=-1, is_open=True)
    accounting = TimeAccounting(SystemClock())
    rung = RungRequests(SimpleNamespace(bells={b"w0": bell}), accounting, None)
    ended = sys.stdin.fileno()
    while not select.select([ended], [], [], 0)[0]:
        rung.wait(store, 1, [ended], 60.0)
        if bell.pending:  # without a compiled kernel
            bell.answer = Answer(1, bell.request.step)
            bell.pending = Outcome.ANSWERED
            ring(bell)
            accounting.count()
    sample = accounting.take("ps-0", Role.PS)
    sys.stdout.write(f"{sample.split.other_s * sample.n_iter!r}\n")
    for each in pipes:
        os.close(each)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
