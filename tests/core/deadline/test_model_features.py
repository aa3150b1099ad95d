"""Features of models: counts in closed form, what is not counted is named, the model is left as it was."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.deadline.features import ModelFeatures, measure_features
from dlrover_nb.core.errors import InvalidValueError

torch = pytest.importorskip("torch")
nn = torch.nn
SIZES = st.integers(1, 12)


@pytest.mark.more
@settings(deadline=None)  # the first call loads parts of torch
@given(SIZES, SIZES, SIZES)
def test_linear_layer_multiplies_and_adds_each_weight_once_a_sample(n_sample, n_in, n_out):
    found = measure_features(nn.Linear(n_in, n_out), torch.zeros(n_sample, n_in))
    assert found == ModelFeatures(n_sample, n_in * n_out + n_out, 2 * n_sample * n_in * n_out)
    assert found.flops_per_sample == 2 * n_in * n_out


@pytest.mark.more
@settings(deadline=None)  # the first call loads parts of torch
@given(SIZES, SIZES, SIZES)
def test_parts_of_a_sequence_add_up(n_in, n_hidden, n_out):
    first, second = nn.Linear(n_in, n_hidden), nn.Linear(n_hidden, n_out)
    whole = measure_features(nn.Sequential(first, nn.ReLU(), second), torch.zeros(3, n_in))
    parts = (
        measure_features(first, torch.zeros(3, n_in)),
        measure_features(second, torch.zeros(3, n_hidden)),
    )
    assert whole.flops == sum(each.flops for each in parts)
    assert whole.n_param == sum(each.n_param for each in parts)


def test_convolution_is_counted_per_place_of_its_output():
    found = measure_features(nn.Conv2d(2, 3, 3), torch.zeros(4, 2, 8, 8))
    assert found.flops == 2 * (4 * 6 * 6) * 3 * (2 * 3 * 3)


def test_transformer_layer_is_counted_with_its_products_of_attention():
    n, length, width, feed = 4, 6, 8, 16
    layer = nn.TransformerEncoderLayer(width, 2, feed, batch_first=True)
    projections = 2 * n * length * width * (3 * width + width)
    attention = 2 * 2 * n * length * length * width
    forward = 2 * 2 * n * length * width * feed
    norms = 2 * 2 * n * length * width
    found = measure_features(layer, torch.zeros(n, length, width))
    assert found.flops == projections + attention + forward + norms
    assert not found.uncounted


def test_recurrent_layer_is_counted_by_its_steps():
    n, length, n_in, n_hidden = 4, 7, 3, 5
    found = measure_features(nn.LSTM(n_in, n_hidden, batch_first=True), torch.zeros(n, length, n_in))
    assert found.flops == 2 * n * length * 4 * n_hidden * (n_in + n_hidden)


def test_products_in_the_code_of_a_model_are_counted():
    class Cross(nn.Module):
        def forward(self, x):
            return torch.bmm(x, x.transpose(1, 2))

    model = nn.Sequential(Cross(), nn.Linear(4, 1))
    assert measure_features(model, torch.zeros(2, 4, 5)).flops == 2 * 2 * 4 * 4 * 5 + 2 * 2 * 4 * 4


def test_embeddings_cost_parameters_alone():
    found = measure_features(
        nn.Sequential(nn.Embedding(1000, 8), nn.Linear(8, 2)), torch.zeros(3, dtype=torch.long)
    )
    assert found == ModelFeatures(3, 8000 + 18, 2 * 3 * 8 * 2)


def test_layer_whose_operations_are_not_seen_is_named():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.factor

    assert measure_features(nn.Sequential(Scale(), nn.Linear(4, 1)), torch.zeros(2, 4)).uncounted == (
        "Scale",
    )
    assert measure_features(Scale(), torch.zeros(2, 4)).flops is None


@settings(max_examples=20, deadline=None)
@given(st.booleans(), st.integers(1, 30))
def test_more_samples_cost_in_proportion_and_the_model_stays_as_it_was(is_training, n_sample):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 1))
    model.train(is_training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = measure_features(model, torch.ones(n_sample, 4))
    assert found.flops == n_sample * (2 * 4 * 6 + 2 * 6 + 2 * 6)
    assert [layer.training for layer in model.modules()] == [is_training] * 5
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


def test_batch_that_does_not_fit_is_refused_and_the_mode_is_restored():
    model = nn.Linear(4, 1)
    with pytest.raises(InvalidValueError, match="must accept the batch"):
        measure_features(model, torch.zeros(2, 5))
    assert model.training
    assert not model._forward_hooks
    with pytest.raises(InvalidValueError, match="one batch"):
        measure_features(model)


def test_without_torch_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from dlrover_nb.core.deadline.features import measure_features\n"
        "from dlrover_nb.core.errors import InvalidValueError\n"
        "try:\n    measure_features(None, None)\nexcept InvalidValueError as e:\n    print(e)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert 'pip install "dlrover-nb[torch]"' in told


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"n_param": 0}, {"flops": 0}])
def test_features_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidValueError, match="must be >= 1"):
        ModelFeatures(**({"batch_size": 1, "n_param": 1, "flops": 1} | wrong))
