"""A PS is killed and its host's memory is gone: real processes, each with shared memory of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from support.runtime.node_world import World, shard
from support.waiting import until

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM_VAR
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.checkpoints import CopySource, PartSource
from dlrover_nb.core.structs.wire.copy_messages import CopyKept, KeepCopy
from dlrover_nb.core.structs.wire.messages import Copied, Hello, Load, Loaded, Save, Saved, Stop
from dlrover_nb.core.structs.wire.pod_contract import MACHINE_VAR


def at(place, shm):
    """The environment of a process on a machine of its own."""
    shm.mkdir(exist_ok=True)
    return os.environ | {SHM_VAR: str(shm), MACHINE_VAR: place}


@contextmanager
def hosts(world, tmp_path):
    """Start node processes; they end with the test."""
    with ExitStack() as stack:

        def start(node, role=Role.PS):
            path = world.folder / f"{node}.json"
            path.write_bytes(to_json(replace(world.config(node, role), memory_mib=4096)))
            command = [sys.executable, "-m", "dlrover_nb.core.runtime.node", str(path)]
            process = stack.enter_context(subprocess.Popen(command, env=at(node, tmp_path / node)))
            stack.callback(process.kill)
            return process, world.receive(Hello, node)[0]

        yield start


def saved(world, node, number, file):
    """Save a part; return its copy in memory and the checksum of its file."""
    world.send(node, Save(number, file))
    copied, written = world.receive(Copied, node)[0], world.receive(Saved, node)[0]
    assert not written.error
    return copied.memory, written.sha256


@pytest.mark.release_variants("worker")
@pytest.mark.more
@pytest.mark.parametrize("keeper_role", Role)
def test_a_killed_ps_without_memory_or_file_comes_back_from_its_peer_with_the_same_bits(
    tmp_path, keeper_role
):
    with World(listen="tcp://127.0.0.1") as world, hosts(world, tmp_path) as start:
        victim, hello = start("ps0")
        _, peer = start("peer", keeper_role)
        assert (peer.machine, hello.machine) == ("peer", "ps0")
        worker = "peer" if keeper_role is Role.WORKER else "w"
        if worker == "w":
            world.start(worker, Role.WORKER)
        world.send(worker, world.load(["ps0"], (hello.endpoint,)))
        world.train(worker, [shard(0), shard(1)])
        memory, sha256 = saved(world, "ps0", 1, str(world.folder / "1.part"))
        world.send("peer", KeepCopy("ps0", hello.copies, memory))
        told = world.receive(CopyKept, "peer")[0]
        assert (told.error, told.copy.sha256) == ("", sha256)  # bit for bit what the file holds

        victim.kill()
        victim.wait()
        shutil.rmtree(tmp_path / "ps0")
        (world.folder / "1.part").unlink()

        start("ps1")
        source = CopySource(peer.copies, told.copy.memory, told.copy.sha256)
        part = PartSource("", "", memory, (source,))
        world.send("ps1", Load(9, 0, 1, even_bucket_owner(1), (part,)))
        loaded = world.receive(Loaded, "ps1")[0]
        assert (loaded.error, loaded.n_from_memory, loaded.n_from_peers) == ("", 0, 1)
        assert saved(world, "ps1", 2, str(world.folder / "2.part"))[1] == sha256
        for name in ("ps1", "peer"):
            world.send(name, Stop())
        until(lambda: not list((tmp_path / "peer").iterdir()), what="an orderly end frees the copies")
