"""When an error of a program has ended so many nodes that starting more is pointless.

`restarts` forgives every loss of a node that did some work while the job advanced, as those of a cluster
that is short of machines are. A program that raises each some thousand rows looks the same there and would
be restarted all night. What distinguishes it is the error: the same kind at the same place each time. So
errors are counted by themselves, over all nodes of a role, within a day, and over restarts of the master.

Only a program's own errors count. Nodes that were out of memory get more (`oom_recovery`); kills, evictions
and silent nodes are the cluster's and have the restart budget alone. One cause outside of the program may
end all nodes of a role at once, so a large role is allowed one error for each of its nodes, unless no restart
is allowed at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.moments import write_moment

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.failures import CountedError


def why_ended(spec: JobSpec, error: CountedError, n_planned: int) -> str:
    """Return why a job ends by this error; empty: it does not yet.

    Parameters
    ----------
    n_planned
        Nodes of its role in the plan.
    """
    limit = spec.max_restarts_per_error
    if error.n <= (max(limit, n_planned) if limit else 0):
        return ""
    return (
        f"the same error ended {error.role} nodes {error.n} times within a day, and max_restarts_per_error "
        f"is {limit}: {error.last}; on {_nodes(error)}; first at {write_moment(error.first_at_s)}, last at "
        f"{write_moment(error.last_at_s)}; repair the program or its data and submit the job again "
        f"(%dlrover show {spec.name} --logs {error.nodes[-1]} shows the last one)"
    )


def _nodes(error: CountedError) -> str:
    named = ", ".join(error.nodes)
    n_more = error.n - len(error.nodes)
    return f"{named} and {n_more} more" if n_more > 0 else named
