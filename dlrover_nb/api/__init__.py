"""The Python API: a cluster, its jobs, and what their methods return.

The verbs of `%dlrover` and of the command line are these methods under the same names, so that a notebook
can go from one to the other; each returns an object that shows itself as text and as static HTML.
"""

from dlrover_nb.api.cluster import Cluster, connect
from dlrover_nb.api.job import Job

__all__ = ["Cluster", "Job", "connect"]
