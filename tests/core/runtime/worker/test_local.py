"""Training in one process, with every optimizer and both kinds of embedding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.runtime.node_world import SPEC, shard
from support.runtime.single_process import train_single

from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.job.spec_choices import Embedding, Optimizer

RATES = {Optimizer.SGD: 0.5, Optimizer.ADAGRAD: 0.05, Optimizer.ADAM: 0.005}
SHARDS = [shard(n) for n in range(6)]


@pytest.mark.more
@pytest.mark.parametrize("optimizer", Optimizer)
@pytest.mark.parametrize("embedding", Embedding)
def test_every_optimizer_learns_with_both_kinds_of_embedding(optimizer, embedding):
    model = replace(SPEC.model, optimizer=optimizer, embedding=embedding, learning_rate=RATES[optimizer])
    spec = replace(SPEC, model=model)
    run = train_single(spec, make_features(spec.data, model), shards=SHARDS)
    first, last = np.mean(run.losses[:5]), np.mean(run.losses[-5:])
    assert last < first - 0.05
