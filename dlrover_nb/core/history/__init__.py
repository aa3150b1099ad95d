"""What jobs did, kept beyond their lives."""

from dlrover_nb.core.history.store import HistoryStore, JobRun

__all__ = ["HistoryStore", "JobRun"]
