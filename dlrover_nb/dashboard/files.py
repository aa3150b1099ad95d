"""What pages offer beside themselves: files to download, and parts that are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.dashboard.decision_exports import ExportHandler
from dlrover_nb.dashboard.moments import MomentHandler

if TYPE_CHECKING:
    from dlrover_nb.dashboard.handlers import PersonHandler

FILES: tuple[tuple[str, type[PersonHandler]], ...] = (
    (r"/decisions\.(jsonl|csv)", ExportHandler),
    (r"/history/at", MomentHandler),
)
