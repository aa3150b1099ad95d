"""All parameters in one worker of an all-reduce job: its device computes what the CPU does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.runtime.node_world import FEATURES, SPEC, shard

from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.allreduce.job import with_workers
from dlrover_nb.core.runtime.allreduce.replica import Replica
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork
from dlrover_nb.core.structs.job.spec_choices import Device, Sync

LAYOUT = BucketLayout(np.array(even_bucket_owner(1), np.int64), 1)
SECOND = torch.device("cpu", 0)  # as a device with a memory of its own, and computed


def batches(n):
    of = shard(0)
    work = ShardWork(of, ShardReader(SPEC.data, FEATURES).read(of.start, of.stop), seed=1)
    return [work.take(32, LAYOUT) for _ in range(n)]


def test_a_replica_on_a_device_trains_the_same_parameters():
    here, there = Replica(SPEC, FEATURES), Replica(SPEC, FEATURES, device=SECOND)
    assert not here.learner.is_on_gpu
    for batch in batches(3):
        for replica in (here, there):
            assert not replica.learn(batch)
            replica.apply(32, [replica.packed()])
            replica.clear()
    for one, two in zip(here.store.export().dense, there.store.export().dense, strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(here.learner.values, there.learner.values)
    assert bytes(here.dump().numpy()) == bytes(there.dump().numpy())


def test_a_batch_of_a_replica_is_computed_where_it_is_told_to():
    replica = Replica(SPEC, FEATURES, device=torch.device("meta"))  # which has no numbers
    (batch,) = batches(1)
    with pytest.raises(NotImplementedError, match="copy out of meta tensor"):
        replica.learn(batch)


def test_an_allreduce_job_may_insist_on_a_gpu_and_programs_of_others_choose_their_own(error_words):
    spec = replace(SPEC, sync=Sync.ALLREDUCE, device=Device.CUDA)
    job = with_workers(spec, FEATURES, python="python")
    assert job.device is Device.CUDA
    with error_words(InvalidValueError):
        replace(job, sync=Sync.ASP)
