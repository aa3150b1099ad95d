"""What follows where the cluster refuses to make a node: by its size, or by another rule.

Such a rule (a LimitRange, an admission policy) is no failure of the job, whose other nodes train on:

- of a change of plan, the change is refused with the cluster's words, and the plan before runs on;
- of the first plan, the job fails, and says which line of the job file to change;
- of a plan that ran, also on the way back to it, the rule is younger than the plan: the job goes on with the
  nodes that it has, and the node is asked for again, at most every 15 s, until the rule is lifted or another
  plan is chosen.

A node of a change that cannot begin for another reason, as its image is gone, ends the change alone too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.plan.capacity import NodeLimits
    from dlrover_nb.core.structs.plan.resources import Need, Role


def hopeless(
    state: JobState, node: Node, why: str, limits: NodeLimits | None, at_s: float, *, never_ran: bool
) -> None:
    """Handle a node, removed already, in whose place a new one would fail in the same way.

    Parameters
    ----------
    limits
        Of the cluster's rule, which may be none; None: no rule refused it.
    never_ran
        Whether nothing of it ever ran: then a plan that ran before does not need it.
    """
    cannot_go_on = f"{node.id} cannot go on: {why}"
    if state.has_way_back and never_ran:
        state.fail_plan(cannot_go_on if limits is None else of_change(node.id, node.need, why), at_s)
    elif limits is None:
        state.end(JobPhase.FAILED, cannot_go_on, at_s)
    elif state.applied is None:
        state.end(JobPhase.FAILED, of_first_plan(node.role, node.need, why, limits), at_s)
    else:
        state.last_step_s = at_s  # as of one that waits for room: no limit of time runs meanwhile
        state.restarts[node.role].refuse(at_s)
        if (text := of_running_plan(node.role, node.need, why)) != state.message:
            state.note(text, at_s)


def of_change(node: str, need: Need, why: str) -> str:
    """Return why a change was refused."""
    return f"the cluster refuses {node} of {need.words}: {why}"


def of_first_plan(role: Role, need: Need, why: str, limits: NodeLimits) -> str:
    """Return why a job cannot begin, with the lines of its job file to change."""
    broken = limits.broken(need[:2]) or ("cpu", "memory_mib")
    lines = " or ".join(f"plan.{role}.{name}" for name in broken)
    values = {"cpu": f"{need.cpu:g}", "memory_mib": f"{need.memory_mib}"}
    size = " and ".join(f"{name} {values[name]}" for name in broken)
    way_out = f"change {lines}" if limits else f"ask for the rule, or change {lines}"
    return f"the cluster refuses {role} nodes with {size}: {why}; {way_out} and submit again"


def of_running_plan(role: Role, need: Need, why: str) -> str:
    """Return why a node of a plan that ran is not replaced now."""
    return (
        f"the cluster now refuses {role} nodes of {need.words}: {why}; the job goes "
        "on with the nodes it has and keeps asking; you can also choose another plan"
    )
