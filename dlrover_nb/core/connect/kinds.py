"""Which cluster is meant: its kind, where it is, and the options that only that kind takes.

This is the one list of them: `connect` refuses an option of another kind by it, and the address in one word,
as an environment variable holds it, is read here.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import unquote

from dlrover_nb.core.backends.kubernetes.contexts import SCHEME
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = ("ray", "kubernetes", "sim")
_ALSO = {"k8s": "kubernetes"}
_TAKES = {"ray": ("address", "cpus"), "kubernetes": ("context", "namespace"), "sim": ("machines", "speed")}
_CALLED = {"ray": "Ray", "kubernetes": "Kubernetes", "sim": "a simulated cluster"}


class Options(TypedDict, total=False):
    """What `connect` takes beside kind and address; None is the same as nothing.

    Parameters
    ----------
    cpus
        Cores that a Ray of our own offers; all by default.
    machines, speed
        Of a simulated cluster: how many, and how many of its seconds pass in a real one.
    context, namespace
        Of Kubernetes: a context of the kubeconfig, and where jobs go; each the current one by default.
    """

    cpus: float | None
    machines: int | None
    speed: float | None
    context: str | None
    namespace: str | None


def kind_of(name: str) -> str:
    """Return the kind of cluster that a word means; `InvalidValueError` names the nearest one."""
    kind = _ALSO.get(name, name)
    if kind in KINDS:
        return kind
    near = difflib.get_close_matches(name, (*KINDS, *_ALSO), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KINDS)}"
    raise InvalidValueError(f"cannot connect to {name!r}; {hint}")


def check_options(kind: str, address: str | None, options: Mapping[str, object]) -> None:
    """Refuse what this kind of cluster does not take."""
    given = [name for name, value in ({"address": address} | dict(options)).items() if value is not None]
    alien = [name for name in given if name not in _TAKES[kind]]
    if alien:
        takes = " and ".join(_TAKES[kind])
        raise InvalidValueError(f"{_CALLED[kind]} takes no {' and no '.join(alien)}; it takes {takes}")


def read_address(text: str | None) -> tuple[str, str | None, Options]:
    """Return kind, address and options that one word names.

    Parameters
    ----------
    text
        ``kubernetes://CONTEXT/NAMESPACE``, each of which may be left out (a slash in a context's name is
        written ``%2F``), or ``kubernetes`` alone; anything else is the address of a Ray, and None the Ray of
        this machine.
    """
    if text in {"kubernetes", "kubernetes:"}:
        text = SCHEME
    if text is None or not text.startswith(SCHEME):
        return "ray", text or None, {}
    context, _, namespace = text.removeprefix(SCHEME).partition("/")
    if "/" in namespace:
        raise InvalidValueError(
            f"expected {SCHEME}CONTEXT/NAMESPACE, got {text!r}; write a slash in a context's name as %2F"
        )
    return "kubernetes", None, {"context": unquote(context) or None, "namespace": unquote(namespace) or None}
