"""What pages offer beside themselves: files to download, and parts that are fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.dashboard.handlers.decision_exports import ExportHandler
from dlrover_nb.dashboard.handlers.moment_part import MomentHandler

if TYPE_CHECKING:
    from dlrover_nb.dashboard.frame.base_handler import PersonHandler

FILES: tuple[tuple[str, type[PersonHandler]], ...] = (
    (r"/decisions\.(jsonl|csv)", ExportHandler),
    (r"/history/at", MomentHandler),
)
