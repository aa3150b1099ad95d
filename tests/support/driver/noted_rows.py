"""Rows that carry their number, and a model that notes on disk which of them it trained.

The model can also be slow, until a file exists, and keep memory of every batch, as a leak does: what a test
waits for decides when its job ends, and not the speed of the machine.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dlrover_nb import trainable
from dlrover_nb.core.rundir.job_file import read_job

N_ROW, HOLDOUT = 20_000, 0.1
N_TRAIN = round(N_ROW * (1 - HOLDOUT))


class Numbered:
    """Rows that carry their number, in a column that the model sees."""

    n_row = N_ROW

    def read(self, start: int, stop: int) -> dict[str, Any]:
        row = np.arange(start, stop)
        site = row * 7919 % 13
        return {
            "label": (site % 2 == row % 3 % 2).astype(int),
            "row": row.astype(float),
            "site": site.astype(str),
        }


BRAKE_S = 2.0


def noting_model(
    notes: str, *, gate: str = "", slow_s: float = 0.0, leak_byte: int = 0, brake: str = ""
) -> Any:
    """Return a model whose every training step on a node appends the first dense input of its rows to a file.

    Parameters
    ----------
    notes
        The file; empty: none.
    gate, slow_s
        How much longer a step takes until the file `gate` exists.
    leak_byte
        What each step takes of memory until then, and never frees.
    brake
        A file; while it exists, a step takes `BRAKE_S` longer, not `slow_s`: memory hardly grows while a node of another size
        starts, which takes as long as it takes.
    """
    here = os.getpid()  # where a submit tries the model on invented rows

    @trainable(loss=nn.functional.binary_cross_entropy_with_logits)
    class Noting(nn.Module):
        def __init__(self, columns: Any) -> None:
            super().__init__()
            self.out = nn.Linear(columns.n_categorical * columns.row_width + columns.n_numeric, 1)
            self.kept: list[Any] = []

        def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
            if torch.is_grad_enabled() and os.getpid() != here:
                self.train_for_real(dense)
            out: torch.Tensor = self.out(torch.cat([embedded.flatten(1), dense], 1))
            return out.squeeze(1)

        def train_for_real(self, dense: torch.Tensor) -> None:
            if notes:
                file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.write(file, dense[:, 0].detach().numpy().astype(np.float64).tobytes())
                os.close(file)
            if Path(gate).exists():
                return
            if leak_byte:
                self.kept.append(np.ones(leak_byte, np.uint8))
            if slow_s:
                time.sleep(BRAKE_S if brake and Path(brake).exists() else slow_s)

    return Noting


def rows_in(notes: Path, folder: Path) -> Counter[int]:
    """Return how often each row was trained, by what the model noted and the scale of its job."""
    (column,) = read_job(folder).features.numeric
    seen = np.fromfile(notes) * column.std + column.mean
    return Counter(np.rint(np.expm1(seen)).astype(int).tolist())
