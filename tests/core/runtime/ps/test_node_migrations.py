"""Parameters that go from real PS to real PS, over real sockets, while a real worker trains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.runtime.node_world import FEATURES, SPEC, Gate, World, shard
from support.runtime.single_process import train_single
from support.waiting import LIMIT_S

from dlrover_nb.core.master.own.servers.bucket_owners import assign_buckets
from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.runtime.ps import chunk_sender, migration_source
from dlrover_nb.core.runtime.ps import migration as ps_migration
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import (
    Granted,
    Loaded,
    MoveCancel,
    Moved,
    MoveEnd,
    MoveOut,
    MoveTarget,
    Pause,
    Paused,
    ShardAsked,
    ShardFinished,
    Train,
)

EXACT = replace(SPEC, overlap=False)
SHARDS = [shard(n) for n in (4, 0, 2, 3)]


class Movers(World):
    """A world that knows which PS own what, and moves it on."""

    def __init__(self, spec, listen="ipc"):
        super().__init__(spec, listen)
        self.endpoints, self.members, self.owner = {}, [], ()

    def begin(self, n_ps):
        train = self.start_ps(n_ps)
        self.members = [f"ps{i}" for i in range(n_ps)]
        self.endpoints = dict(zip(self.members, train.endpoints, strict=True))
        self.owner = train.bucket_owner
        return train

    def join(self, name):
        self.endpoints[name] = self.start(name, Role.PS).endpoint

    def move_out(self, members):
        """Let rows go to `members`; return what ends the move."""
        self.epoch += 1
        owner = assign_buckets(self.owner, len(members))
        sources = set()
        for source in self.members:
            buckets = {}
            for bucket, (was, will) in enumerate(zip(self.owner, owner, strict=True)):
                if self.members[was] == source != members[will]:
                    buckets.setdefault(members[will], []).append(bucket)
            if buckets:
                sources.add(source)
                targets = [MoveTarget(self.endpoints[to], tuple(which)) for to, which in buckets.items()]
                self.send(source, MoveOut(self.epoch, tuple(targets)))
        for source in sources:
            while not self.receive(Moved, source)[0].is_ready:
                pass
        return owner

    def switch(self, members, owner):
        endpoints = tuple(self.endpoints[name] for name in members)
        for name in dict.fromkeys([*self.members, *members]):
            index = members.index(name) if name in members else -1
            sources = tuple(other for other in self.members if other != name)
            self.send(name, MoveEnd(self.epoch, index, endpoints, owner, sources))
        for name in members:
            assert self.receive(Loaded, name)[0].ps_epoch == self.epoch
        for name in set(self.members) - set(members):
            self.end(name)
        self.members, self.owner = members, owner
        return Train(self.epoch, endpoints, owner)


def train_over_moves(world, ways, losses_at):
    """Train four shards, with one move in the midst of each of the later ones; return the losses."""
    gates = [Gate(at) for at in losses_at]
    losses = []

    def on_loss(loss):
        losses.append(loss)
        for gate in gates:
            gate(loss)

    train = world.begin(ways[0][0])
    world.start("w0", Role.WORKER, on_loss)
    world.send("w0", train)
    world.receive(ShardAsked)
    for each, way, gate in zip(SHARDS, [None, *ways[1]], [None, *gates], strict=True):
        world.send("w0", Granted(each))
        if way is not None:
            for name in way:
                if name not in world.endpoints:
                    world.join(name)
            owner = world.move_out(way)
            gate.reached()
            world.send("w0", Pause(world.epoch - 1, world.epoch))
            gate.open()
            world.receive(Paused)
            world.send("w0", world.switch(way, owner))
        world.receive(ShardFinished)
    return losses


@pytest.mark.more
@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize(
    ("n_ps", "ways"),
    [
        (1, [["ps0", "ps1"], ["ps0", "ps1", "ps2"], ["ps0"]]),
        (2, [["ps2", "ps3", "ps4"], ["ps5"], ["ps5", "ps6"]]),
    ],
)
def test_a_run_over_moves_is_the_run_without_them(optimizer, n_ps, ways):
    spec = replace(EXACT, model=replace(EXACT.model, optimizer=optimizer))
    single = train_single(spec, FEATURES, shards=SHARDS)
    with Movers(spec) as world:
        losses = train_over_moves(world, ([n_ps], ways), (13, 24, 35))
        assert not world.errors
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)


def test_a_move_over_tcp_in_small_chunks_is_whole_and_sealed(monkeypatch):
    posted, post = [], chunk_sender._Way._post
    monkeypatch.setattr(
        chunk_sender._Way, "_post", lambda way, frames: posted.append(way.link.is_sealed) or post(way, frames)
    )
    monkeypatch.setattr(
        migration_source, "REPEAT_AFTER_S", LIMIT_S
    )  # what is late on a busy machine is not lost
    small = ps_migration.Sizes(chunk_bytes=2000, ready_bytes=8000)
    monkeypatch.setattr(ps_migration, "Sizes", lambda: small)
    single = train_single(EXACT, FEATURES, shards=SHARDS)
    with Movers(EXACT, "tcp://127.0.0.1") as world:
        ways = [["ps0", "ps1"], ["ps0"], ["ps2", "ps3"]]
        losses = train_over_moves(world, ([1], ways), (13, 24, 35))
        assert not world.errors
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)
    assert sum(posted) > len(posted) / 2, "all but the first chunks of each connection"


def test_a_move_that_is_given_up_changes_nothing_and_the_next_one_works():
    single = train_single(EXACT, FEATURES, shards=SHARDS[:2])
    losses = []
    with Movers(EXACT) as world:
        train = world.begin(2)
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", train)
        world.receive(ShardAsked)
        world.send("w0", Granted(SHARDS[0]))
        world.receive(ShardFinished)
        world.join("ps2")
        world.move_out(["ps0", "ps1", "ps2"])
        for name in ("ps0", "ps1", "ps2"):
            world.send(name, MoveCancel(world.epoch))
        owner = world.move_out(["ps0"])
        world.send("w0", Pause(1, 1))
        world.receive(Paused)
        world.send("w0", world.switch(["ps0"], owner))
        world.send("w0", Granted(SHARDS[1]))
        world.receive(ShardFinished)
        ((path, sha256),) = world.save(["ps0"])
        assert not world.errors
        ids = ps_checkpoint.read(Path(path), sha256).ids
    assert len(np.unique(ids)) == len(ids) > 100
    np.testing.assert_allclose(losses, single.losses, rtol=1e-6)
