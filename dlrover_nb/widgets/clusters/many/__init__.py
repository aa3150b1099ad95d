"""All jobs of a cluster in one live view: one chart with a line per job, one table, one job opened below."""

from dlrover_nb.widgets.clusters.many.view import ManyJobs

__all__ = ["ManyJobs"]
