"""The policy that a job names: one of the planner's, or one that an installed package adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dlrover_nb.core import extensions
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner.policies import POLICIES

if TYPE_CHECKING:
    from dlrover_nb.core.planner.policies.policy import Policy

GROUP = "dlrover_nb.policies"


def find_policy(name: str) -> Policy:
    """Return the policy of a name.

    Raises
    ------
    InvalidValueError
        When there is none, with the nearest name, or the package that adds it is broken.
    """
    policy = extensions.find(GROUP, name, POLICIES)
    if not callable(policy):
        raise InvalidValueError(
            f"policy {name} must be a function of (analysis, settings, context), got {type(policy).__name__}"
        )
    return cast("Policy", policy)  # another package's function is not checked
