"""Validates documents by a server-side dry run of each; nothing is created.

The server knows what no schema here does: its version, admission rules, quotas, and the user's rights. Cases
that it cannot judge are reported, but are no error of the document: a kind whose definition is not installed,
a missing namespace, an object that exists already. An older server silently drops unknown fields, so its
answer is compared with the document that was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Inadmissible,
    NotThere,
    OverQuota,
)
from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.manifests import kinds
from dlrover_nb.core.manifests.kinds import Doc, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dlrover_nb.core.backends.kubernetes.client.api import Api

KINDS: Mapping[tuple[str, str], Kind] = {
    (kind.api_version, kind.name): kind for kind in vars(kinds).values() if isinstance(kind, Kind)
}
_HARMLESS = {"spec/ttlSecondsAfterFinished"}  # before 1.21 behind a feature gate: ended jobs stay there


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """Result of the dry run of one document.

    Parameters
    ----------
    what
        Kind and name.
    is_wrong
        Whether the document is wrong: the server refuses it.
    words
        The server's message; empty: it would accept the document unchanged.
    """

    what: str
    is_wrong: bool = False
    words: str = ""


def judge(api: Api, documents: Iterable[Doc]) -> tuple[DryRunResult, ...]:
    """Dry-run the creation of each document on the server.

    Raises
    ------
    ApiError
        When it does not answer.
    """
    return tuple(_dry_run(api, document) for document in documents)


def _dry_run(api: Api, document: Doc) -> DryRunResult:
    name, kind_name = str(document["metadata"]["name"]), str(document["kind"])
    what = f"{kind_name} {name}"
    kind = KINDS.get((str(document["apiVersion"]), kind_name))
    if kind is None or not api.has(kind):
        return DryRunResult(
            what, words=f"{kind_name} is not installed on this cluster, so it cannot be checked"
        )
    place = document["metadata"].get("namespace")
    try:
        made = (api.within(place) if place else api).create(kind, document, dry_run=True)
    except ApiError as error:
        return _rejected(what, error, place or api.namespace)
    lost = sorted(_lost(document, made))
    words = f"the server does not know {and_list(lost, most=3)}, and drops it" if lost else ""
    return DryRunResult(what, is_wrong=not _HARMLESS.issuperset(lost), words=words)


def _rejected(what: str, error: ApiError, namespace: str) -> DryRunResult:
    match error:
        case Conflict():
            return DryRunResult(what, words="exists already under this name; it was not checked")
        case NotThere():
            return DryRunResult(what, words=f"there is no namespace {namespace} to check it in")
        case OverQuota() | Forbidden():
            return DryRunResult(what, words=str(error))
        case Inadmissible():
            return DryRunResult(what, is_wrong=True, words=str(error))
    raise error


def _lost(sent: Any, made: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - parts of documents
    """Yield the paths that were sent and are missing in the answer; empty values may be dropped."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            there = isinstance(made, dict) and key in made
            if there:
                yield from _lost(value, made[key], f"{path}/{key}" if path else str(key))
            elif value not in ("", None, {}, [], False, 0):
                yield f"{path}/{key}" if path else str(key)
    elif isinstance(sent, list) and isinstance(made, list):
        for i, (value, back) in enumerate(zip(sent, made, strict=False)):
            yield from _lost(value, back, f"{path}/{i}")
