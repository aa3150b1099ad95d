"""Whether a person may do something, by the roles that `table.COMMANDS` names for it, for every entry.

On Kubernetes the API server decides besides, as the person who is signed in; this is asked first, so that a
refusal says which role is missing, and holds on clusters that know no roles of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.commands.table import ROW_OF

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.commands import Action
    from dlrover_nb.core.structs.decisions.people import Person


def why_not(person: Person, action: Action, *, owner: str = "", namespace: str = "") -> str:
    """Return why a person may not do something; empty: they may.

    Parameters
    ----------
    owner
        Of the job; empty: not known, and so the job of another.
    namespace
        Of the job; empty on clusters without namespaces.
    """
    row = ROW_OF[action]
    is_own = bool(owner) and owner == person.name
    needed, role = row.of_own if is_own else row.of_others, person.role_in(namespace)
    if role is not None and role.rank >= needed.rank:
        return ""
    has = f"you are {role}" if role else "you have no role"
    where = f" in namespace {namespace}" if namespace else ""
    whose = f" a job of {owner}" if owner and not is_own and row.of_own is not row.of_others else ""
    return f"{action}{whose} needs the role {needed}, but {has}{where}; ask an administrator for it"
