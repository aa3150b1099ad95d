"""What each role may do: one literal table, for every entry.

On Kubernetes the API server decides besides, as the person who is signed in; this table is asked first, so
that a refusal says which role is missing, and holds on clusters that know no roles of their own.
"""

from __future__ import annotations

from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.people import AccessRole, Person

# The role that an action needs, for a job of another person and for one's own.
RIGHTS: dict[Action, tuple[AccessRole, AccessRole]] = {
    #                     another's      one's own
    Action.VIEW: (AccessRole.VIEWER, AccessRole.VIEWER),
    Action.PROPOSE: (AccessRole.VIEWER, AccessRole.VIEWER),
    Action.ACCEPT: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.REJECT: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.OVERRIDE: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.SCALE: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.UNDO: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.MODE: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.PIN: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.BUDGET: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.MITIGATE: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.RETRY_SHARD: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.SKIP_SHARD: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.BATCHES: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.SUBMIT: (AccessRole.OPERATOR, AccessRole.OPERATOR),
    Action.FINISH: (AccessRole.ADMIN, AccessRole.OPERATOR),
    Action.STOP: (AccessRole.ADMIN, AccessRole.OPERATOR),
    Action.DELETE: (AccessRole.ADMIN, AccessRole.OPERATOR),
}


def why_not(person: Person, action: Action, *, owner: str = "", namespace: str = "") -> str:
    """Return why a person may not do something; empty: they may.

    Parameters
    ----------
    owner
        Of the job; empty: not known, and so the job of another.
    namespace
        Of the job; empty on clusters without namespaces.
    """
    of_others, of_own = RIGHTS[action]
    is_own = bool(owner) and owner == person.name
    needed, role = of_own if is_own else of_others, person.role_in(namespace)
    if role is not None and role.rank >= needed.rank:
        return ""
    has = f"you are {role}" if role else "you have no role"
    where = f" in namespace {namespace}" if namespace else ""
    whose = f" a job of {owner}" if owner and not is_own and of_own is not of_others else ""
    return f"{action}{whose} needs the role {needed}, but {has}{where}; ask an administrator for it"
