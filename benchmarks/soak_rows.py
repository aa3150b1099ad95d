"""The rows and the model of a soak: its parameters count how often each row was trained.

The account of rows says which rows were trained; a second witness that does not depend on it says whether
that is so. Each group of `GROUP` rows has a category of its own, and the model gives one weight of it a
gradient of exactly 1 for each row, whatever the loss. With plain SGD at a rate that is a power of two, the
trained weight is minus the number of rows that were applied, times the rate: exact, through all checkpoints,
migrations and rollbacks.

The rows are a stream whose end is written to a file when the time is over, so that a job of any throughput
lasts as long as it should and still trains all of its rows. Another file asks for one broken row: the next
reader takes the file away and gives a number that makes the loss NaN. Both lie in the folder that
`FOLDER_VAR` names; nodes inherit the variable from their master.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dlrover_nb import trainable

FOLDER_VAR = "DLROVER_NB_SOAK"
END, SPOIL = "end", "spoil"  # files in that folder
PIECE = 1024  # rows that are made at once; shards begin at multiples of it
GROUP = 16
RATE = 2.0**-4
BROKEN = 1e30
WEIGHTS = np.array([2.0, -1.0])  # the labels follow from it


def piece(at: int) -> dict[str, Any]:
    """Return the rows [at, at + PIECE); `at` is a multiple of PIECE."""
    rng = np.random.default_rng([7, at])
    numbers, site = rng.normal(size=(PIECE, 2)), rng.integers(0, 4, PIECE)
    chance = 1 / (1 + np.exp(-numbers @ WEIGHTS - 2 * (site - 1.5)))
    return {
        "label": (rng.random(PIECE) < chance).astype(int),
        "group": np.repeat(np.arange(at // GROUP, (at + PIECE) // GROUP), GROUP).astype(str),
        "site": site.astype(str),
        "first": numbers[:, 0],
        "second": numbers[:, 1],
    }


class Stream:
    """Rows without a known end."""

    n_row = None

    def read(self, start: int, stop: int) -> dict[str, Any]:
        """Return rows [start, stop), fewer where the stream has ended."""
        folder = Path(os.environ[FOLDER_VAR])
        if (folder / END).exists():
            stop = max(start, min(stop, int((folder / END).read_text())))
        first = start // PIECE * PIECE
        pieces = [piece(at) for at in range(first, max(stop, first + 1), PIECE)]
        rows = {
            key: np.concatenate([each[key] for each in pieces])[start - first : stop - first]
            for key in pieces[0]
        }
        if stop > start and _taken(folder / SPOIL):
            rows["first"][(stop - start) // 2] = BROKEN
        return rows


def _taken(path: Path) -> bool:
    """Whether this reader is the one that took the file away."""
    try:
        path.rename(path.with_name(f"{path.name}.{time.monotonic_ns()}"))
    except OSError:
        return False
    return True


class _Counted(torch.autograd.Function):
    """Logits as they are; backwards, each row of the weight gets 1."""

    @staticmethod
    def forward(_context: Any, logits: torch.Tensor, _weight: torch.Tensor) -> torch.Tensor:
        return logits.clone()

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return gradient, torch.ones_like(gradient)


@trainable
class Net(nn.Module):
    """A small network on site and numbers; the group's weight counts."""

    def __init__(self, columns: Any) -> None:
        super().__init__()
        self.deep = nn.Sequential(nn.Linear(columns.row_width + columns.n_numeric, 16), nn.ReLU())
        self.out = nn.Linear(16, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        hidden = self.deep(torch.cat([embedded[:, 1], dense], 1))
        fragile = 0.0 * torch.exp(dense[:, 0] ** 2)  # NaN for a broken row
        return _Counted.apply(self.out(hidden).squeeze(1) + fragile, embedded[:, 0, -1])
