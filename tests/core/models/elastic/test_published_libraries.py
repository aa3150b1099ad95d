"""Models of DeepCTR-Torch and FuxiCTR train with their tables on parameter servers what they train alone.

Neither library is a dependency; ``pip install --no-deps deepctr-torch==0.3.0 fuxictr==2.3.10`` with tqdm,
scikit-learn, polars, h5py and PyYAML installs what is needed here.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from suite.missing import missing
from support.runtime.elastic_runs import job_of, train_elastic, train_plain
from torch.nn import functional

import dlrover_nb
from dlrover_nb.core.errors import InvalidValueError

N_ROW, N_STEP, LENGTH = 3800, 100, 5


def library(name: str) -> Any:
    """Return a library, or skip where it is missing; what it prints and warns of is not ours."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            missing("libraries", f"{name} is not installed ({error}): make libraries")


def rows():
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.integers(0, 20 + i, N_ROW) for i in range(3)}
    lists = [rng.integers(1, 20, rng.integers(1, LENGTH + 1)).tolist() for _ in range(N_ROW)]
    table = pd.DataFrame(columns | {"x": rng.random(N_ROW).astype(np.float32)})
    table["hist_c0"], table["seq_length"] = lists, [len(each) for each in lists]
    table["label"] = ((table.c0 % 3 + table.c1 % 2 + table.x) > 1.4).astype(int)
    return table


def by_name(job, ids, numbers):
    """Return columns as floats [n, places]."""
    columns = job.features.categorical
    parts = ids.float().split([column.n_slot for column in columns], 1)
    named = {column.name: part for column, part in zip(columns, parts, strict=True)}
    return named | {each.name: numbers[:, i : i + 1] for i, each in enumerate(job.features.numeric)}


def deepctr_model(kind, penalty):
    inputs, models = library("deepctr_torch.inputs"), library("deepctr_torch.models")
    columns = [inputs.SparseFeat(f"c{i}", 20 + i, 8) for i in range(3)] + [inputs.DenseFeat("x", 1)]
    sequence = inputs.SparseFeat("hist_c0", 20, 8, embedding_name="c0")
    history = [inputs.VarLenSparseFeat(sequence, maxlen=LENGTH, length_name="seq_length")]
    settings = {"dnn_hidden_units": (32, 16), "l2_reg_embedding": penalty}
    if kind == "DIN":
        return models.DIN([*columns, *history], ["c0"], **settings)
    return getattr(models, kind)(columns, columns, l2_reg_linear=penalty, **settings)


def deepctr_loss(model, job):
    def loss(ids, numbers, labels):
        named = by_name(job, ids, numbers)
        matrix = torch.cat([named[name] for name in model.feature_index], 1)
        summed = functional.binary_cross_entropy(model(matrix).squeeze(-1), labels, reduction="sum")
        penalty = model.get_regularization_loss() + model.aux_loss
        return summed / len(labels), summed + penalty.squeeze()

    return loss


@pytest.mark.parametrize("penalty", [0.0, 1e-5])
@pytest.mark.parametrize("kind", ["WDL", "DCN", "DeepFM", "DIN"])
def test_models_of_deepctr_train_what_their_own_fit_does(kind, penalty, tmp_path):
    model = deepctr_model(kind, penalty)
    spec = job_of(rows(), tmp_path, optimizer="adagrad", learning_rate=0.01)
    run = train_elastic(dlrover_nb.elastic(model), spec, tmp_path)
    own = copy.deepcopy(model)
    losses = train_plain(own, run.job, deepctr_loss(own, run.job))
    assert len(losses) >= N_STEP
    assert np.ptp(losses) > 0.05
    np.testing.assert_allclose(run.losses, losses, atol=1e-5, rtol=0)


def test_a_penalty_of_whole_tables_is_said_to_be_of_a_batch(tmp_path):
    model = dlrover_nb.elastic(deepctr_model("WDL", 1e-5))
    run = train_elastic(model, job_of(rows(), tmp_path), tmp_path)
    assert any("for the rows of each batch alone" in text for text in run.job.schema.warnings)
    quiet = dlrover_nb.elastic(deepctr_model("WDL", 0.0))
    assert not quiet.warnings()


def test_a_regression_of_deepctr_is_refused():
    library("deepctr_torch.models")
    model = deepctr_model("WDL", 0.0)
    model.out.task = "regression"
    with pytest.raises(InvalidValueError, match="build it with task='binary'"):
        dlrover_nb.elastic(model)


def fuxictr_model(kind, penalty):
    features, layers = library("fuxictr.features"), library("fuxictr.pytorch.layers")
    models = library("fuxictr.pytorch.models")
    feature_map = features.FeatureMap("mine", "")
    feature_map.labels = ["label"]
    categorical = {f"c{i}": {"type": "categorical", "source": "", "vocab_size": 20 + i} for i in range(3)}
    history = {"type": "sequence", "source": "", "vocab_size": 20, "max_len": LENGTH, "padding_idx": 0}
    history |= (
        {"share_embedding": "c0"} if kind == "DIN" else {"feature_encoder": "layers.MaskedSumPooling()"}
    )
    numeric = {"x": {"type": "numeric", "source": ""}}
    feature_map.features = categorical | numeric | {"hist_c0": history}
    feature_map.num_fields = 5

    class Model(models.BaseModel):
        """A model of the library's layers, as its zoo writes them."""

        def __init__(self) -> None:
            super().__init__(
                feature_map,
                verbose=0,
                model_root="",
                metrics=["AUC"],
                embedding_regularizer=penalty,
                net_regularizer=penalty,
            )
            self.embedding_layer = layers.FeatureEmbedding(feature_map, 8)
            width = 8 * feature_map.num_fields
            self.linear = layers.LogisticRegression(feature_map) if kind == "WDL" else None
            self.crossed = layers.FactorizationMachine(feature_map) if kind == "DeepFM" else None
            self.cross = layers.CrossNet(width, 2) if kind == "DCN" else None
            self.attention = layers.DIN_Attention(8) if kind == "DIN" else None
            self.deep = layers.MLP_Block(width, output_dim=1, hidden_units=[32, 16])
            self.out = torch.nn.Linear(width, 1) if kind == "DCN" else None
            self.reset_parameters()

        def forward(self, inputs: Any) -> Any:
            batch = self.get_inputs(inputs)
            if self.attention is not None:
                each = self.embedding_layer.embedding_layer(batch)
                mask = (batch["hist_c0"] != 0).float()
                each["hist_c0"] = self.attention(each["c0"], each["hist_c0"], mask)
                embedded = self.embedding_layer.embedding_layer.dict2tensor(each)
            else:
                embedded = self.embedding_layer(batch)
            logit = self.deep(embedded.flatten(1))
            if self.linear is not None:
                logit = logit + self.linear(batch)
            if self.crossed is not None:
                logit = logit + self.crossed(batch, embedded)
            if self.cross is not None:
                logit = logit + self.out(self.cross(embedded.flatten(1)))
            return {"y_pred": self.output_activation(logit)}

    torch.manual_seed(0)
    return Model()


def fuxictr_loss(model, job):
    def loss(ids, numbers, labels):
        named = by_name(job, ids, numbers)
        lists = {c.name for c in job.features.categorical if c.sequence}
        batch = {name: value if name in lists else value.squeeze(1) for name, value in named.items()}
        predicted = model(batch)["y_pred"]
        mean = functional.binary_cross_entropy(predicted.squeeze(1), labels)
        return mean, mean + model.regularization_loss()

    return loss


@pytest.mark.parametrize("penalty", [None, 1e-5])
@pytest.mark.parametrize("kind", ["WDL", "DCN", "DeepFM", "DIN"])
def test_models_of_fuxictr_train_what_their_own_steps_do(kind, penalty, tmp_path):
    model = fuxictr_model(kind, penalty)
    spec = job_of(rows(), tmp_path, optimizer="adagrad", learning_rate=0.05)
    run = train_elastic(dlrover_nb.elastic(model), spec, tmp_path)
    own = copy.deepcopy(model)
    losses = train_plain(own, run.job, fuxictr_loss(own, run.job))
    assert len(losses) >= N_STEP
    assert np.ptp(losses) > 0.05
    np.testing.assert_allclose(run.losses, losses, atol=1e-5, rtol=0)
