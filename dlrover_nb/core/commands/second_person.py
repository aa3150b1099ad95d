"""When a second person must approve: the rules, and whether one applies to a command.

The person who asked can never be the second one, whatever their role. A rule by cost looks at the plan that
would run: an expensive plan is expensive, however small the step to it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.commands import Entry

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.commands import Action, SecondRequest

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a team.

    Parameters
    ----------
    over_cost_per_hour
        A plan that costs more, in the currency of the job's prices, needs a second person; None: no such
        rule.
    actions
        Actions that always need one.
    expires_s
        For how long a request waits for one.
    """

    over_cost_per_hour: float | None = None
    actions: frozenset[Action] = frozenset()
    expires_s: float = DAY_S

    def needed(self, action: Action, cost_per_hour: float | None) -> str:
        """Return why a second person is needed, as half a sentence; empty: none is."""
        if action in self.actions:
            return f"{action} needs a second person"
        limit = self.over_cost_per_hour
        if limit is not None and cost_per_hour is not None and cost_per_hour > limit:
            return f"a plan of {cost_per_hour:,.2f} an hour is over {limit:,.2f} and needs a second person"
        return ""


NO_RULES = Rules()


def why_not_second(request: SecondRequest, person: str, at_s: float, rules: Rules = NO_RULES) -> str:
    """Return why a person may not be the second one of a request; empty: this rule lets them.

    What an agent proposed in a person's name may be approved by that person, as an agent is no person of its
    own, unless a rule wants a second person for the command anyway.
    """
    is_agents = request.entry is Entry.AGENT
    is_free = is_agents and not rules.needed(request.command.action, request.cost_per_hour)
    if person == request.first and not is_free:
        return f"{request.id} was asked by you, and a second person must approve it"
    if at_s >= request.expires_at_s:
        return f"{request.id} waited too long for a second person; send the request again"
    return ""
