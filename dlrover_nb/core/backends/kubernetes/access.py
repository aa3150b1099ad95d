"""What who is connected may do in a namespace, and the Role to ask for where something is missing.

One review tells all rules that hold there. It is final where the API server says that it is complete;
otherwise (an authorizer that decides without rules), and for what is the cluster's and not the namespace's,
each right is reviewed by itself. Nothing is tried out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.api import ApiError, Forbidden, NotThere
from dlrover_nb.core.backends.kubernetes.kinds import ACCESS_REVIEW, QUOTA, RULES_REVIEW, SELF_REVIEW, Kind
from dlrover_nb.core.backends.kubernetes.rights import SEE_NODES, USER, Right, role_text
from dlrover_nb.core.structs.standing import Allowed, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.backends.kubernetes.api import Api


@dataclass(frozen=True, slots=True)
class Checked:
    """A right, and which of its verbs are missing."""

    right: Right
    missing: tuple[str, ...]

    @property
    def wanted(self) -> Right:
        """The right to ask for: to what is missing alone."""
        return replace(self.right, verbs=self.missing)


@dataclass(frozen=True, slots=True)
class Access:
    """What somebody may do in a namespace.

    Parameters
    ----------
    user
        As the cluster calls him; empty when nobody says.
    checked
        All rights that are of use, those that he has too.
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

        All that is needed, and not what is missing alone, so that one Role serves a team.
        """
        if not self.missing:
            return ""
        needed = [c.right for c in self.checked if not c.right.optional]
        return role_text(needed, self.user, self.namespace)


def check_access(api: Api, rights: Iterable[Right] = (*USER, SEE_NODES)) -> Access:
    """Find out which of these rights who asks has in the namespace; two requests where all is told by rules.

    Raises
    ------
    ApiError
        When the API server does not answer.
    """
    doc = {"spec": {"namespace": api.namespace}}
    told = api.create(RULES_REVIEW, doc).get("status", {})
    rules, is_all = told.get("resourceRules") or (), not told.get("incomplete")
    checked = tuple(_check(api, right, rules, is_all=is_all) for right in rights)
    return Access(_who(api, checked), api.namespace, checked)


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
    asked = {"verb": verb, "group": right.group, "resource": resource, "subresource": subresource}
    if not right.cluster:
        asked["namespace"] = api.namespace
    answer = api.create(ACCESS_REVIEW, {"spec": {"resourceAttributes": asked}})
    return bool(answer.get("status", {}).get("allowed"))


def _who(api: Api, checked: Iterable[Checked]) -> str:
    """Return how the cluster calls who asks.

    Servers since 1.28 say it; older ones only to whom they refuse something, so that something refused is
    asked for.
    """
    if api.has(SELF_REVIEW):
        try:
            return str(api.create(SELF_REVIEW, {})["status"]["userInfo"]["username"])
        except (ApiError, KeyError):
            return ""
    refused = (c.right for c in checked if "get" in c.missing and not c.right.group)
    for right in (right for right in refused if "/" not in right.resource):
        try:
            api.get(Kind("", right.resource, namespaced=not right.cluster), "dlrover-nb")
        except Forbidden as told:
            return told.user
        except NotThere:
            continue
    return ""


def standing(api: Api) -> Standing:
    """Return what a user is told when he connects: where he is, the quota there, and what he may do.

    Raises
    ------
    ApiError
        When the API server does not answer.
    """
    access = check_access(api)
    facts = [
        ("context", api.context),
        ("namespace", api.namespace),
        ("API server", f"{api.host}, {api.version()}"),
        ("you are", access.user or f"{api.user} in the kubeconfig"),
        *quota_facts(_quotas(api, access)),
    ]
    allowed = (Allowed(c.right.why, c.right.resource, c.missing, c.right.optional) for c in access.checked)
    return Standing(tuple(facts), tuple(allowed), access.ask())


def _quotas(api: Api, access: Access) -> Sequence[dict[str, Any]]:
    may = all(not c.missing for c in access.checked if c.right.resource == QUOTA.plural)
    return api.list(QUOTA).items if may else ()


def quota_facts(quotas: Iterable[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return what quotas leave, a line to each: what is used of what there may be."""
    facts = []
    for quota in quotas:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        parts = [f"{key} {used.get(key, '0')} of {hard}" for key, hard in (status.get("hard") or {}).items()]
        if parts:
            facts.append((f"quota {quota['metadata']['name']}", ", ".join(parts)))
    return tuple(facts)
