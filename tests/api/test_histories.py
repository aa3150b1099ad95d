"""Histories of clicked items, trained by processes of this machine: a target's interest against their mean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from support.runtime.single_process import train_single

from dlrover_nb import connect, load_model
from dlrover_nb.core.data import make_features
from dlrover_nb.core.models.metrics import auc
from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from pathlib import Path

N, N_ITEM, N_TOPIC, LENGTH = 16_000, 20, 10, 20
N_EPOCH = 5


def clicks() -> pd.DataFrame:
    """Return rows whose item is mostly clicked if one of its topic stands among those clicked before."""
    rng = np.random.default_rng(0)
    lists = [rng.integers(0, N_ITEM, n).tolist() for n in rng.integers(0, LENGTH, N)]
    item = rng.integers(0, N_ITEM, N)
    known = np.array(
        [i % N_TOPIC in {j % N_TOPIC for j in each} for i, each in zip(item, lists, strict=True)]
    )
    clicked = (rng.random(N) < np.where(known, 0.9, 0.1)).astype(int)
    return pd.DataFrame({"item": item, "history": lists, "clicked": clicked})


@pytest.mark.more
def test_din_ranks_far_better_than_the_mean_of_a_history(own_home: Path) -> None:
    frame, cluster = clicks(), connect("local")
    try:
        job = cluster.submit(
            "histories",
            data=frame,
            label="clicked",
            sequences={"history": {"length": LENGTH, "embedding_of": "item"}},
            model={
                "name": "din",
                "embedding_dim": 8,
                "hidden": [32, 16],
                "optimizer": "adam",
                "learning_rate": 0.02,
            },
            mode="manual",
            workers=1,
            ps=2,
            batch_size=128,
            overlap=False,  # one worker without it is the same to the bit each time
            epochs=N_EPOCH,
        )
        ended = job.wait().snapshot
        n_train = N - N // 10
        assert (ended.phase, ended.train.n_sample_done) == (JobPhase.SUCCEEDED, N_EPOCH * n_train)
        trained = load_model("histories")
    finally:
        cluster.shutdown(force=True)
    held_out, spec = frame.iloc[n_train:], trained.spec
    quality = trained.evaluate().auc
    assert quality == pytest.approx(auc(trained.predict(held_out), held_out["clicked"].to_numpy()))
    spec = replace(spec, model=replace(spec.model, name="wide_deep"))
    bags = train_single(spec, make_features(spec.data, spec.model))
    assert quality > 0.85 > auc(bags.scores, bags.labels) + 0.03
