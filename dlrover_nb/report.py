"""Report training progress to dlrover-nb from any program: `dlrover_nb.client.steps` under its first name."""

from __future__ import annotations

from dlrover_nb.client.steps import step

__all__ = ["step"]
