"""What two runs with one seed have in common: the table of `docs/explanation/synchronization.md`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.runtime.node_world import FEATURES, SPEC, World, shard
from support.runtime.trained_parameters import parameters_in

from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer, Sync
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


DETERMINISTIC = replace(
    spec_of(Sync.BSP, batch_size=64, global_batch=4 * 64, gradient_clip_norm=0.05), deterministic=True
)
STEPS = Split(
    29 * 64 + 17, 64, 1, seed=SPEC.seed, step_shards=4
)  # the last step has two shards, one of them short


def trained(n_worker, n_ps, spec=DETERMINISTIC):
    """Return the parameters of a deterministic job."""
    workers, ledger = [f"w{i}" for i in range(n_worker)], ShardLedger(STEPS)
    with World(spec) as world:
        train = world.start_ps(n_ps)
        for worker in workers:
            world.start(worker, Role.WORKER)
            world.send(worker, train)
        world.train_steps(workers, ledger)
        files = world.save([f"ps{i}" for i in range(n_ps)], ledger.n_step)
        assert not world.errors
        return [each.tobytes() for each in parameters_in(files, spec, FEATURES)]


@pytest.fixture(scope="module")
def parameters_of_one():
    return trained(1, 1)


@pytest.mark.parametrize(("n_worker", "n_ps"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_a_deterministic_job_has_the_same_bits_with_any_number_of_workers_and_ps(
    n_worker, n_ps, parameters_of_one
):
    assert trained(n_worker, n_ps) == parameters_of_one


@pytest.mark.more
@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_so_it_has_with_each_optimizer_and_an_embedding_that_grows(optimizer):
    model = replace(SPEC.model, optimizer=optimizer, embedding=Embedding.HASH)
    spec = replace(DETERMINISTIC, model=model)
    assert trained(3, 2, spec) == trained(1, 1, spec)


def test_another_seed_gives_other_bits(plain_losses):
    other = replace(SPEC.model, seed=SPEC.model.seed + 1)
    assert losses_of(spec_of(Sync.ASP, model=other), shards=SHARDS[:1]) != plain_losses[: SPEC.shard_batches]
    assert (
        losses_of(spec_of(Sync.ASP, seed=SPEC.seed + 1), shards=SHARDS[:1])
        != plain_losses[: SPEC.shard_batches]
    )
