"""The connected user's rights in a namespace, and the Role to ask for where rights are missing.

One review returns all rules of the namespace. It is final where the API server says
that it is complete. Otherwise (an authorizer that decides without rules), and for rights of cluster scope,
each right is reviewed by itself. Nothing is tried out. A cluster that allows no such reviews gives no answer
until a request is refused; that error then contains the Role.
"""

from __future__ import annotations

import os
from base64 import b64decode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.client.api import Forbidden, Inadmissible, NotThere
from dlrover_nb.core.backends.kubernetes.client.contexts import kubernetes_address
from dlrover_nb.core.disk.paths import HISTORY_VAR
from dlrover_nb.core.manifests.kinds import (
    ACCESS_REVIEW,
    NAMESPACE,
    QUOTA,
    RULES_REVIEW,
    SECRET,
    SELF_REVIEWS,
)
from dlrover_nb.core.manifests.objects import HISTORY_SECRET
from dlrover_nb.core.manifests.role_rules import (
    CALLS,
    SEE_NODES,
    SHIPPED,
    SHIPPED_WORDS,
    USER,
    Right,
    role_text,
    shipped_role,
)
from dlrover_nb.core.structs.cluster.cluster_access import Allowed, ClusterAccess
from dlrover_nb.core.structs.decisions.people import AccessRole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.backends.kubernetes.client.api import Api


@dataclass(frozen=True, slots=True)
class Checked:
    """A right, and those of its verbs that are missing."""

    right: Right
    missing: tuple[str, ...]

    @property
    def wanted(self) -> Right:
        """The right to ask for: to what is missing alone."""
        return replace(self.right, verbs=self.missing)


@dataclass(frozen=True, slots=True)
class Access:
    """A user's rights in a namespace.

    Parameters
    ----------
    user
        The user's name in the cluster; empty when unknown.
    checked
        All rights that are of use, granted ones too; none where the cluster does not report them.
    """

    user: str
    namespace: str
    checked: tuple[Checked, ...]

    @property
    def missing(self) -> tuple[Right, ...]:
        """The rights without which jobs cannot be run here."""
        return tuple(c.wanted for c in self.checked if c.missing and not c.right.optional)

    def ask(self) -> str:
        """Return the Role and its binding to ask an administrator for, as YAML; empty: nothing is needed.

        It contains the missing rights alone.
        """
        return role_text(self.missing, self.user, self.namespace) if self.missing else ""


def check_access(api: Api, rights: Iterable[Right] = (*USER, SEE_NODES)) -> Access:
    """Check which of these rights the user has in the namespace; two requests where rules cover all.

    Raises
    ------
    ApiError
        When the API server does not answer.
    """
    rules, is_all = _rules(api)
    try:
        checked = tuple(_check(api, right, rules, is_all=is_all) for right in rights)
    except Forbidden as error:
        return Access(error.user, api.namespace, ())
    return Access(_who(api), api.namespace, checked)


def _rules(api: Api) -> tuple[Sequence[dict[str, Any]], bool]:
    """Return the user's rules, and whether they are complete."""
    try:
        status = api.create(RULES_REVIEW, {"spec": {"namespace": api.namespace}}).get("status", {})
    except (Forbidden, NotThere):
        return (), False
    return status.get("resourceRules") or (), not status.get("incomplete")


def _check(api: Api, right: Right, rules: Sequence[dict[str, Any]], *, is_all: bool) -> Checked:
    if right.cluster:  # rules of the namespace hold in it alone
        return Checked(right, tuple(verb for verb in right.verbs if not _allowed(api, right, verb)))
    missing = tuple(verb for verb in right.verbs if not covered(right, verb, rules))
    if not is_all:
        missing = tuple(verb for verb in missing if not _allowed(api, right, verb))
    return Checked(right, missing)


def covered(right: Right, verb: str, rules: Iterable[dict[str, Any]]) -> bool:
    """Whether one of the rules gives a verb of a right; a rule for named objects gives it to those alone."""
    _, slash, subresource = right.resource.partition("/")
    resources = {"*", right.resource, *([f"*/{subresource}"] if slash else ())}
    return any(
        {"*", verb} & set(rule.get("verbs") or ())
        and {"*", right.group} & set(rule.get("apiGroups") or ())
        and resources & set(rule.get("resources") or ())
        and not rule.get("resourceNames")
        for rule in rules
    )


def _allowed(api: Api, right: Right, verb: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": verb, "group": right.group, "resource": resource, "subresource": subresource}
    if not right.cluster:
        attributes["namespace"] = api.namespace
    answer = api.create(ACCESS_REVIEW, {"spec": {"resourceAttributes": attributes}})
    return bool(answer.get("status", {}).get("allowed"))


def user_of(api: Api) -> str:
    """Return who the user is: the name in the cluster, or else that in the kubeconfig."""
    return _who(api) or api.user


def _who(api: Api) -> str:
    """Return the user's name in the cluster; empty when unknown.

    Servers since 1.26 may have a review for that. Older ones name the user when they refuse a request.
    """
    for kind in SELF_REVIEWS:
        try:
            return str(api.create(kind, {})["status"]["userInfo"]["username"])
        except Forbidden as error:
            return error.user
        except (NotThere, Inadmissible, KeyError):
            continue
    return ""


def role_of_user(api: Api) -> AccessRole | None:
    """Return the user's role towards jobs of the namespace, by their rights to masters; None: they see none.

    Raises
    ------
    ApiError
        When the API server does not answer, or does not let this client act as the user.
    """
    role = None
    for right, stronger in zip(CALLS, AccessRole, strict=True):
        if not all(_allowed(api, right, verb) for verb in right.verbs):
            break
        role = stronger
    return role


def standing(api: Api) -> ClusterAccess:
    """Return the lines shown on connecting: the place, its quota, and the user's rights.

    Raises
    ------
    ApiError
        When the API server does not answer.
    """
    access = check_access(api)
    facts = [
        ("context", api.context),
        ("namespace", api.namespace + _absent(api)),
        ("in a shell", f"DLROVER_NB_ADDRESS={kubernetes_address(api.context, api.namespace)}"),
        ("API server", f"{api.host}, {api.version()}"),
        ("you are", access.user or f"{api.user} in the kubeconfig"),
        *quota_facts(_quotas(api, access)),
        ("history", _history(api)),
    ]
    facts.append(_role_of(access))
    allowed = (Allowed(c.right.why, c.right.resource, c.missing, c.right.optional) for c in access.checked)
    return ClusterAccess(tuple(facts), tuple(allowed), access.ask())


def history_url(api: Api) -> str | None:
    """Return the URL of the history's database that a namespace names; None: none, or it may not be read."""
    try:
        data = api.get(SECRET, HISTORY_SECRET).get("data") or {}
    except (NotThere, Forbidden):
        return None
    return b64decode(data.get(HISTORY_VAR, "")).decode() or None


def _history(api: Api) -> str:
    """Say where jobs keep what later jobs learn from, and what is lost where that is nowhere."""
    here = "this session too" if os.environ.get(HISTORY_VAR) else f"set {HISTORY_VAR} to read it here"
    try:
        api.get(SECRET, HISTORY_SECRET)
    except NotThere:
        return (
            "none is shared: what a job learns is lost with its master's folder. Name a database once: "
            f"kubectl create secret generic {HISTORY_SECRET} -n {api.namespace} "
            f"--from-literal={HISTORY_VAR}=postgresql://..."
        )
    except Forbidden:
        return f"that of the Secret {HISTORY_SECRET}, where there is one (you may not read it)"
    return f"masters use the database that the Secret {HISTORY_SECRET} names; {here}"


def _role_of(access: Access) -> tuple[str, str]:
    """Return which of the shipped roles the user's rights amount to."""
    if not access.checked:
        return "your rights", "this cluster does not list them; a refused request names the missing right"
    have = {
        (c.right.group, c.right.resource, verb)
        for c in access.checked
        for verb in c.right.verbs
        if verb not in c.missing
    }
    role = shipped_role(have)
    weakest = next(iter(SHIPPED))
    return "your role", f"{role}, to {SHIPPED_WORDS[role]}" if role else f"none: fewer rights than {weakest}"


def _absent(api: Api) -> str:
    """Report that the namespace does not exist; nothing for users who may not read namespaces."""
    try:
        api.get(NAMESPACE, api.namespace)
    except NotThere:
        return (
            f", which does not exist; create it (kubectl create namespace {api.namespace}) or choose another"
        )
    except Forbidden:
        return ""
    return ""


def _quotas(api: Api, access: Access) -> Sequence[dict[str, Any]]:
    may = [c for c in access.checked if c.right.resource == QUOTA.plural and not c.missing]
    return api.list(QUOTA).items if may else ()


def quota_facts(quotas: Iterable[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return one line per quota: the amounts used of its limits."""
    facts = []
    for quota in quotas:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        parts = [f"{key} {used.get(key, '0')} of {hard}" for key, hard in (status.get("hard") or {}).items()]
        if parts:
            facts.append((f"quota {quota['metadata']['name']}", ", ".join(parts)))
    return tuple(facts)
