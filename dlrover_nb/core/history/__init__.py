"""Records of jobs, kept after their end."""

from dlrover_nb.core.history.rows import Record
from dlrover_nb.core.history.runs.compaction import THINNING, Thinning
from dlrover_nb.core.history.runs.prediction_scores import Score, Scoreboard, scoreboard
from dlrover_nb.core.history.runs.run_history import HistoryStore, JobRun

__all__ = ["THINNING", "HistoryStore", "JobRun", "Record", "Score", "Scoreboard", "Thinning", "scoreboard"]
