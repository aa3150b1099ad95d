"""What two runs with one seed have in common: the table of `docs/explanation/synchronization.md`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.runtime.node_world import SPEC, World, shard

from dlrover_nb.core.structs.job.spec_choices import Optimizer, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import Pause, Paused

SHARDS = [shard(number) for number in range(3)]
WITH_PS = [Sync.ASP, Sync.SSP, Sync.BSP, Sync.GBA]


def spec_of(sync, **fields):
    return replace(SPEC, sync=sync, overlap=False, **fields)


def losses_of(spec, n_ps=1, shards=SHARDS):
    """Return the losses of one worker, which tell of each parameter that its batches read."""
    losses = []
    with World(spec) as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(n_ps))
        world.train("w0", shards)
        assert not world.errors
    return losses


@pytest.fixture(scope="module")
def plain_losses():
    return losses_of(spec_of(Sync.ASP))


@pytest.mark.parametrize("sync", WITH_PS)
@pytest.mark.parametrize("n_ps", [1, 3])
def test_one_worker_has_the_same_bits_in_each_run_and_kind_with_any_number_of_ps(sync, n_ps, plain_losses):
    losses = losses_of(spec_of(sync, global_batch=SPEC.batch_size), n_ps)
    assert len(losses) == len(SHARDS) * SPEC.shard_batches
    assert losses == plain_losses


@pytest.mark.more
@pytest.mark.parametrize("optimizer", list(Optimizer))
@pytest.mark.parametrize("rows", [100, 150, 1000])
def test_one_worker_has_the_same_bits_in_each_run_with_larger_global_batches(optimizer, rows, plain_losses):
    model = replace(SPEC.model, optimizer=optimizer)
    spec = spec_of(Sync.GBA, global_batch=rows, model=model)
    first = losses_of(spec)
    assert losses_of(spec, 2) == first
    assert first != plain_losses


@pytest.mark.parametrize("sync", WITH_PS)
def test_one_worker_has_the_same_bits_over_a_pause_and_a_move_to_other_ps(sync, plain_losses):
    """The move is by files; what moves while training goes on is the same to the bit (`test_node_migrations`)."""
    losses = []
    with World(spec_of(sync, global_batch=SPEC.batch_size)) as world:
        world.start("w0", Role.WORKER, losses.append)
        world.send("w0", world.start_ps(1))
        world.train("w0", SHARDS[:1])
        world.send("w0", Pause(world.epoch))
        world.receive(Paused, "w0")
        files = world.save(["ps0"])
        world.send("w0", world.start_ps(2, files, first=1))
        world.train("w0", SHARDS[1:])
        assert not world.errors
    assert losses == plain_losses


def test_another_seed_gives_other_bits(plain_losses):
    other = replace(SPEC.model, seed=SPEC.model.seed + 1)
    assert losses_of(spec_of(Sync.ASP, model=other), shards=SHARDS[:1]) != plain_losses[: SPEC.shard_batches]
    assert (
        losses_of(spec_of(Sync.ASP, seed=SPEC.seed + 1), shards=SHARDS[:1])
        != plain_losses[: SPEC.shard_batches]
    )
