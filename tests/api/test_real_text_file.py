"""A CSV file and the DataFrame it was written from, trained by processes of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from dlrover_nb import connect, load_model
from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.more
def test_a_csv_file_is_trained_whole_and_its_model_scores_the_file_as_the_data_frame(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    user, n = rng.integers(0, 40, 3000), 3000
    clicked = (rng.random(n) < np.where(user % 2, 0.9, 0.1)).astype(int)
    frame = pd.DataFrame({"clicked": clicked, "user_id": user, "price": rng.normal(size=n)})
    monkeypatch.chdir(tmp_path)
    frame.to_csv("clicks.csv", index=False)
    cluster = connect("local")
    try:
        job = cluster.submit(
            data={"path": "clicks.csv", "label": "clicked", "categorical": ["user_id"], "numeric": ["price"]},
            model={"hidden": [8], "embedding_dim": 4},
            mode="manual",
            workers=2,
            batch_size=100,
            epochs=8,
            learning_rate=0.2,
        )
        assert (job.name, job.schema and job.schema.warnings) == ("clicks", ())
        ended = job.wait().snapshot
        assert (ended.phase, ended.train.n_sample_done) == (JobPhase.SUCCEEDED, 8 * 2700), ended.message
        model = load_model("clicks")
        scores = model.predict(frame)
        assert np.array_equal(scores, model.predict("clicks.csv"))
        assert scores[user % 2 == 1].mean() > scores[user % 2 == 0].mean() + 0.2
    finally:
        cluster.shutdown(force=True)
