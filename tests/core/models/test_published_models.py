"""DCN v2, xDeepFM and DIN against the formulas of their papers, written out; and that each model learns."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.runtime.single_process import train_single, training_shards

from dlrover_nb.core.data import make_features
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.built_in import MODELS, histories_of
from dlrover_nb.core.models.dcn_v2 import DcnV2
from dlrover_nb.core.models.din import Din
from dlrover_nb.core.models.metrics import auc, log_loss
from dlrover_nb.core.models.xdeepfm import Cin, XDeepFm
from dlrover_nb.core.structs.data.features import SequenceInput
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec

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


def test_din_weighs_each_item_of_a_history_by_the_target():
    history = SequenceInput("clicked", 2, 4, target=1)
    module = Din(ModelSpec(embedding_dim=DIM, attention=(7, 3)), N_FIELD, N_NUMBER, history)
    embedded, dense = inputs()
    is_item = torch.arange(4) < torch.tensor([0, 1, 4, 2, 3])[:, None]
    items = torch.randn(BATCH, 4, DIM + 1) * is_item[:, :, None]
    want = []
    for i in range(BATCH):
        target, interest = embedded[i, 1, :DIM], torch.zeros(DIM)
        for key in items[i, is_item[i], :DIM]:  # v = sum of a(e_j, v_A) e_j, eq. 3 of Zhou et al. 2018
            seen = torch.cat([target, key, target - key, target * key])
            for layer in module.unit:
                seen = layer(seen)
            interest = interest + seen * key
        fields = embedded[i, :, :DIM].clone()
        fields[2] = interest
        want.append(module.deep(torch.cat([fields.flatten(), dense[i]])) + embedded[i, :, DIM].sum())
    got = module(embedded, dense, {"clicked": (items, is_item)})
    torch.testing.assert_close(got, torch.cat(want))


def test_scores_of_din_do_not_depend_on_what_stands_behind_a_list_or_beside_it():
    history = SequenceInput("clicked", 0, 4, target=1)
    module = Din(ModelSpec(embedding_dim=DIM), N_FIELD, N_NUMBER, history)
    embedded, dense = inputs()
    is_item = torch.arange(4) < torch.tensor([0, 1, 4, 2, 3])[:, None]
    items = torch.randn(BATCH, 4, DIM + 1)
    want = module(embedded, dense, {"clicked": (items, is_item)})
    other = torch.where(is_item[:, :, None], items, torch.randn(BATCH, 4, DIM + 1))
    torch.testing.assert_close(module(embedded, dense, {"clicked": (other, is_item)}), want)
    for i in range(BATCH):
        row = slice(i, i + 1)
        alone = module(embedded[row], dense[row], {"clicked": (items[row], is_item[row])})
        torch.testing.assert_close(alone, want[row])


@for_each(
    "sequences",
    [
        (),
        (SequenceInput("h", 1, 5),),
        (SequenceInput("h", 1, 5, target=0), SequenceInput("i", 2, 5, target=0)),
    ],
)
def test_din_needs_one_history_with_a_target(sequences, error_words):
    with error_words(InvalidValueError):
        histories_of("din", sequences)
    assert histories_of("dcn_v2", sequences) == ()


@pytest.mark.release_variants("xdeepfm")
@pytest.mark.more
@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"din"}))
def test_each_model_learns_the_census_rows(name):
    spec = JobSpec(
        "learn", model=ModelSpec(name=name, embedding_dim=8, hidden=(32, 16), cin=(8, 8)), batch_size=128
    )
    features = make_features(DataSpec(), spec.model)
    run = train_single(spec, features, shards=islice(training_shards(spec, features), 12))
    base = float(run.labels.mean())
    assert auc(run.scores, run.labels) > 0.86
    assert log_loss(run.scores, run.labels) < 0.8 * log_loss(np.full_like(run.scores, base), run.labels)
