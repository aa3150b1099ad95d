"""The policy lab: the same jobs under several policies, schedulers and straggler solutions, side by side.

`lab_file` says what is compared, `workload` makes the jobs (of a description, a trace or the history),
`truths` how fast they really are, `cluster_run` runs one contender, and `results` compares. Policies, the
gate of auto mode, admission and solutions are those that jobs use.
"""

from dlrover_nb.core.lab.lab import run_lab
from dlrover_nb.core.lab.lab_file import Contender, LabFile, LabWorld, Workload, contender_of, read_lab
from dlrover_nb.core.lab.results import MEASURES, Figure, JobResult, LabResult, RunResult, Score
from dlrover_nb.core.lab.workload import LabJob, PastRun

__all__ = [
    "MEASURES",
    "Contender",
    "Figure",
    "JobResult",
    "LabFile",
    "LabJob",
    "LabResult",
    "LabWorld",
    "PastRun",
    "RunResult",
    "Score",
    "Workload",
    "contender_of",
    "read_lab",
    "run_lab",
]
