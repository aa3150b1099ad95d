"""DCN v2 and xDeepFM against the formulas of their papers, written out; and that each model learns."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.data import make_features
from dlrover_nb.core.models.dcn_v2 import DcnV2
from dlrover_nb.core.models.metrics import auc, log_loss
from dlrover_nb.core.models.table import MODELS
from dlrover_nb.core.models.xdeepfm import Cin, XDeepFm
from dlrover_nb.core.runtime.local import train_single, training_shards
from dlrover_nb.core.structs.job import DataSpec, JobSpec, ModelSpec

BATCH, N_FIELD, N_NUMBER, DIM = 5, 4, 3, 6


def compressed_interactions(fields, weights):
    """Equations 6 and 7 of Lian et al. 2018, one feature map and one element at a time."""
    x0 = hidden = fields.detach().numpy().astype(np.float64)
    pooled = []
    for weight in weights:
        w = weight.detach().numpy().astype(np.float64).reshape(len(weight), hidden.shape[1], x0.shape[1])
        maps = np.zeros((len(x0), len(w), x0.shape[2]))
        for h, i, j in np.ndindex(w.shape):
            maps[:, h] += w[h, i, j] * hidden[:, i] * x0[:, j]
        hidden = maps
        pooled.append(hidden.sum(2))
    return np.concatenate(pooled, 1)


@settings(deadline=None, max_examples=20)
@given(widths=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_the_fast_interactions_are_those_of_the_paper(widths, seed):
    torch.manual_seed(seed)
    cin, fields = Cin(N_FIELD, tuple(widths)), torch.randn(BATCH, N_FIELD, DIM)
    want = compressed_interactions(fields, cin.weights)
    np.testing.assert_allclose(cin(fields).detach().numpy(), want, rtol=1e-4, atol=1e-4)


def inputs():
    torch.manual_seed(1)
    return torch.randn(BATCH, N_FIELD, DIM + 1), torch.randn(BATCH, N_NUMBER)


def test_xdeepfm_adds_its_four_parts():
    module, (embedded, dense) = XDeepFm(ModelSpec(embedding_dim=DIM, cin=(3, 2)), N_FIELD, N_NUMBER), inputs()
    fields, x0 = embedded[:, :, :DIM], torch.cat([embedded[:, :, :DIM].flatten(1), dense], 1)
    want = module.deep(x0) + module.out(module.cin(fields))
    want = want.squeeze(1) + module.linear(dense) + embedded[:, :, DIM].sum(1)
    torch.testing.assert_close(module(embedded, dense), want)


def test_a_cross_layer_of_dcn_v2_is_that_of_the_paper():
    module, (embedded, dense) = (
        DcnV2(ModelSpec(embedding_dim=DIM, cross_layers=2), N_FIELD, N_NUMBER),
        inputs(),
    )
    x0 = torch.cat([embedded[:, :, :DIM].flatten(1), dense], 1)
    x = x0
    for layer in module.cross:  # x_{l+1} = x_0 * (W x_l + b) + x_l, eq. 1 of Wang et al. 2021
        x = x0 * (x @ layer.weight.T + layer.bias) + x
    want = (module.deep(x0) + module.out(x)).squeeze(1) + embedded[:, :, DIM].sum(1)
    torch.testing.assert_close(module(embedded, dense), want)


@pytest.mark.release_variants("xdeepfm")
@pytest.mark.more
@pytest.mark.parametrize("name", sorted(MODELS))
def test_each_model_learns_the_census_rows(name):
    spec = JobSpec(
        "learn", model=ModelSpec(name=name, embedding_dim=8, hidden=(32, 16), cin=(8, 8)), batch_size=128
    )
    features = make_features(DataSpec(), spec.model)
    run = train_single(spec, features, shards=islice(training_shards(spec, features), 12))
    base = float(run.labels.mean())
    assert auc(run.scores, run.labels) > 0.86
    assert log_loss(run.scores, run.labels) < 0.8 * log_loss(np.full_like(run.scores, base), run.labels)
