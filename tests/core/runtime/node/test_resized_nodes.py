"""Nodes that the master resizes: they answer what is enforced, and use it from then on."""

from __future__ import annotations

import pytest
import torch
from support.runtime.node_world import MEMORY_MIB, World

from dlrover_nb.core.runtime.node import node as module
from dlrover_nb.core.runtime.process.limits import Enforced
from dlrover_nb.core.runtime.ps.rung import RungRequests
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.resize_messages import Resize, Resized
from dlrover_nb.core.structs.wire.messages import Copied, Hello, Save, Saved


class NotedLimits:
    """In the place of control groups, which the tests' own process must not enter."""

    def __init__(self) -> None:
        self.applied: list[tuple[float, int]] = []
        self.threads: list[int] = []

    def apply(self, cpu: float, memory_mib: int) -> Enforced:
        self.applied.append((cpu, memory_mib))
        self.threads.append(torch.get_num_threads())
        return Enforced(cpu=True, memory=len(self.applied) != 3)

    def release(self) -> None:
        pass


def noted_threads(monkeypatch) -> list[int]:
    """Return how many threads PS were told to serve with, as they will be."""
    noted: list[int] = []

    def note(rung: RungRequests, name: str, value: object) -> None:
        if name == "n_thread":
            noted.append(value)
        object.__setattr__(rung, name, value)

    monkeypatch.setattr(RungRequests, "__setattr__", note)
    return noted


@pytest.mark.parametrize("role", Role)
def test_a_node_applies_another_size_and_tells_a_later_master_what_is_enforced(role, monkeypatch):
    limits, threads, served = NotedLimits(), torch.get_num_threads(), noted_threads(monkeypatch)
    monkeypatch.setattr(
        "support.runtime.node_world._serve_ps", lambda config, *_: module.run(config, limits=limits)
    )
    monkeypatch.setattr(
        "support.runtime.node_world._serve_worker", lambda config, *_: module.run(config, limits=limits)
    )
    try:
        with World() as world:
            assert world.start("n0", role).memory_enforced
            world.send("n0", Resize(3.0, 700))
            assert world.receive(Resized, "n0")[0] == Resized("n0", 3.0, 700, True, True)
            world.send("n0", Resize(1.0, 64, is_ahead=True))  # no answer, and no limit
            world.send("n0", Resize(1.0, 64))
            assert world.receive(Resized, "n0")[0] == Resized("n0", 1.0, 64, True, False)
            world.replace_master()
            hello = world.receive(Hello, "n0")[0]
            assert (hello.cpu_enforced, hello.memory_enforced) == (True, False)
    finally:
        torch.set_num_threads(threads)
    assert served == ([1, 2, 3, 1, 1] if role is Role.PS else [])  # the first until it knows its own
    assert limits.applied == [(2.0, MEMORY_MIB), (3.0, 700), (1.0, 64)]
    if role is Role.WORKER:
        assert limits.threads == [2, 3, 1]


def test_a_ps_keeps_copies_only_within_the_memory_that_it_has_now():
    with World() as world:
        world.start_ps(1)

        def has_copy(number: int) -> bool:
            world.send("ps0", Save(number, str(world.folder / f"{number}.ckpt")))
            memory = world.receive(Copied, "ps0")[0].memory
            assert not world.receive(Saved, "ps0")[0].error
            return memory is not None

        def gets(memory_mib: int) -> None:
            world.send("ps0", Resize(2.0, memory_mib))
            assert world.receive(Resized, "ps0")[0].memory_mib == memory_mib

        gets(1 << 20)  # enough beside whatever this process holds of other tests
        assert has_copy(1)
        world.send("ps0", Resize(2.0, 64, is_ahead=True))  # far less than this process takes
        assert not has_copy(2)
        gets(1 << 20)
        assert has_copy(3)
