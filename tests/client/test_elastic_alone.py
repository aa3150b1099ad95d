"""A program of `Elastic` without a job: what one torch process does, and mistakes of programs."""

import pytest
import torch
from torch.nn.functional import mse_loss

from dlrover_nb.client.elastic import Elastic

FEATURES = torch.linspace(-1, 1, 60).reshape(20, 3)
LABELS = FEATURES.sum(1, keepdim=True)


def parts():
    """Return a model and its optimizer, the same each time."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


@pytest.mark.more
def test_it_trains_as_torch_does():
    model, optimizer = parts()
    job = Elastic(model, optimizer, n_row=20, batch_size=8, shuffle=False)
    for rows in job.batches():
        job.step(mse_loss(model(FEATURES[rows]), LABELS[rows]))
    assert job.is_complete
    other, optimizer = parts()
    for rows in torch.arange(20).split(8):
        optimizer.zero_grad()
        mse_loss(other(FEATURES[rows]), LABELS[rows]).backward()
        optimizer.step()
    torch.testing.assert_close(model.state_dict(), other.state_dict())


@pytest.mark.more
def test_a_hook_of_the_optimizer_clips_the_mean_gradient():
    model, optimizer = parts()
    norms = []

    def clip(*_):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        norms.append(torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item())

    optimizer.register_step_pre_hook(clip)
    job = Elastic(model, optimizer, n_row=20, batch_size=8)
    for rows in job.batches():
        job.step(mse_loss(model(FEATURES[rows]), LABELS[rows]))
    assert norms == pytest.approx([0.01] * 3, rel=1e-3)


def test_rows_that_the_program_trains_by_itself_are_refused(error_words):
    model, optimizer = parts()
    job = Elastic(model, optimizer, n_row=20, batch_size=8)
    with error_words(RuntimeError):
        for rows in job.batches():
            mse_loss(model(FEATURES[rows]), LABELS[rows]).backward()
            optimizer.step()


def test_gradients_that_the_program_clears_are_refused():
    model, optimizer = parts()
    job = Elastic(model, optimizer, n_row=20, batch_size=8)
    with pytest.raises(RuntimeError, match=r"leave out optimizer\.zero_grad"):  # noqa: PT012
        for rows in job.batches():
            optimizer.zero_grad()
            job.step(mse_loss(model(FEATURES[rows]), LABELS[rows]))


def test_rows_may_be_skipped_by_a_loss_of_nothing():
    model, optimizer = parts()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    job = Elastic(model, optimizer, n_row=20, batch_size=8)
    for rows in job.batches():
        job.step(0 * mse_loss(model(FEATURES[rows]), LABELS[rows]))
    assert job.is_complete
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (torch.nn.Linear(3, 1).double(), r"got weight with torch\.float64 on cpu; use model\.float\(\)"),
        (torch.nn.Linear(3, 1).requires_grad_(requires_grad=False), "has no parameters to train"),
    ],
)
def test_parameters_that_cannot_be_summed_are_said(model, message):
    with pytest.raises(ValueError, match=message):
        Elastic(model, torch.optim.SGD(model.parameters(), 0.1), n_row=20)
