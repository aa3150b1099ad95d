"""A small LSTM that continues a loss curve: the rival of `core.deadline.remaining` in `stopping.py`.

The losses are read at even steps, as shares of their range, and the network learns the next step of the loss
from the last ones. Ahead it is fed with what it predicted itself. It learns steps, not losses: a curve that
falls leaves the range of the losses it was fitted to, and steps do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

N_GRID = 48  # even steps over the losses
N_HIDDEN = 12
N_EPOCH = 150
MOST_AHEAD = 400  # steps: behind them the curve is level
LEARNING_RATE = 0.02


class _Net(torch.nn.Module):
    """The next step of a curve from all before it, in units of the steps' standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(1, N_HIDDEN, batch_first=True)
        self.head = torch.nn.Linear(N_HIDDEN, 1)

    def forward(
        self, steps: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        hidden, state = self.lstm(steps, state)
        # a part of the step before: without training, the curve levels off by itself
        return steps * torch.sigmoid(self.head(hidden)), state


@dataclass(frozen=True, slots=True)
class Continued:
    """A curve as points at even steps, straight between them and level behind the last one."""

    iterations: tuple[float, ...]
    values: tuple[float, ...]

    def losses(self, iterations: Array) -> Array:
        """Return the loss at iterations of any order: the same shape."""
        return np.asarray(np.interp(iterations, self.iterations, self.values))


def fit_lstm(points: Array, *, seed: int) -> Continued | None:
    """Fit the network to a loss curve and continue it; None where the loss does not change.

    Parameters
    ----------
    points
        ndarray of shape (n_points, 2): iteration and loss, iterations rising.
    seed
        Of the first weights.
    """
    k, loss = points.T
    if np.ptp(loss) <= 0:
        return None
    grid = np.linspace(k[0], k[-1], N_GRID)
    curve = np.interp(grid, k, _smooth(loss))
    steps = np.diff(curve)
    scale = float(np.abs(steps).mean()) or 1.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        ahead = _ahead(torch.tensor(steps / scale, dtype=torch.float32)[None, :, None]) * scale
    width = float(grid[1] - grid[0])
    further = grid[-1] + width * np.arange(1, MOST_AHEAD + 1)
    return Continued((*grid.tolist(), *further.tolist()), (*curve.tolist(), *(curve[-1] + np.cumsum(ahead))))


def _smooth(loss: Array) -> Array:
    """Return means over a window of a twelfth of the points, with the ends as they are known."""
    half = max(len(loss) // 24, 1)
    return np.array([loss[max(i - half, 0) : i + half + 1].mean() for i in range(len(loss))])


def _ahead(steps: torch.Tensor) -> Array:
    net = _Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    for _ in range(N_EPOCH):
        optimizer.zero_grad()
        error = torch.nn.functional.smooth_l1_loss(net(steps[:, :-1])[0], steps[:, 1:])
        error.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()
    found: list[float] = []
    with torch.no_grad():
        out, state = net(steps)
        step = out[:, -1:]
        for _ in range(MOST_AHEAD):
            found.append(float(step))
            step, state = net(step, state)
    return np.asarray(found)
