"""Records of jobs, kept after their end."""

from dlrover_nb.core.history.rows import Record
from dlrover_nb.core.history.scores import Score, Scoreboard, scoreboard
from dlrover_nb.core.history.series import THINNING, Thinning
from dlrover_nb.core.history.store import HistoryStore, JobRun

__all__ = ["THINNING", "HistoryStore", "JobRun", "Record", "Score", "Scoreboard", "Thinning", "scoreboard"]
