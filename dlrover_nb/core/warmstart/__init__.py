"""Start a new job with the final plans of similar jobs (DLRover-RM section 4.3, Algorithm 1)."""

from dlrover_nb.core.warmstart.rounding import into_space
from dlrover_nb.core.warmstart.similarity import Similarity, similarity
from dlrover_nb.core.warmstart.start_plan import WarmStart, WarmStartSettings, accuracy, warm_start

__all__ = [
    "Similarity",
    "WarmStart",
    "WarmStartSettings",
    "accuracy",
    "into_space",
    "similarity",
    "warm_start",
]
