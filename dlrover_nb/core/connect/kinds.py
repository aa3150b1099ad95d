"""Kinds of clusters: one table of names, options and connect functions.

A new kind is one entry, here or in another package: an entry point of the group
``dlrover_nb.clusters`` names a `Kind`. `connect` refuses an option of another kind by this table. The address
in one word, as in an environment variable, is parsed here.

A kind's module is imported when it is connected to: Ray takes a second to import, and the Kubernetes client
is an extra that may not be installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, NamedTuple, TypedDict
from urllib.parse import unquote

from dlrover_nb.core.backends.kubernetes.client.contexts import IN_CLUSTER, SCHEME, kubernetes_address
from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.connect.on_machine import local_jobs
from dlrover_nb.core.errors import InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.client.cluster import Cluster

GROUP = "dlrover_nb.clusters"


class Options(TypedDict, total=False):
    """Options of `connect` besides kind and address; None: not given.

    Parameters
    ----------
    cpus
        Cores that a Ray of our own, or a job of local processes, may use; all by default.
    machines, speed
        Of a simulated cluster: number of machines, and simulated seconds per real second.
    context, namespace
        Of Kubernetes: a context of the kubeconfig, and where jobs go; each the current one by default.
    """

    cpus: float | None
    machines: int | None
    speed: float | None
    context: str | None
    namespace: str | None


class Target(NamedTuple):
    """What `connect` takes: a kind's name, the address of an existing cluster, and options."""

    kind: str
    address: str | None
    options: Options

    @property
    def word(self) -> str:
        """The one word for it that `read_address` reads; `cpus` has no place in it."""
        if kind_of(self.kind).name == "kubernetes":
            context, namespace = self.options.get("context"), self.options.get("namespace")
            return kubernetes_address(context or IN_CLUSTER, namespace or "")
        return self.address or self.kind


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster of a kind to connect to.

    Parameters
    ----------
    address
        Of an existing cluster; None for this user's own.
    start
        Whether this user's own may be started.
    options
        Those of `Kind.options` that were given.
    """

    address: str | None
    start: bool
    options: Options


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of cluster.

    Parameters
    ----------
    name, aliases
        Names that `connect` accepts.
    title
        Its name in messages.
    options
        Accepted options: ``address``, or names of `Options`.
    connect
        Returns the cluster; it imports what it needs.
    is_shared
        Whether other processes find the same cluster; False for one inside this process.
    """

    name: str
    title: str
    options: tuple[str, ...]
    connect: Callable[[Place], Cluster]
    aliases: tuple[str, ...] = ()
    is_shared: bool = True


def _ray(place: Place) -> Cluster:
    if place.address is None and not place.start:
        return _local_ray()
    tell("Ray to load")
    from dlrover_nb.core.backends.ray.cluster import connect_ray  # noqa: PLC0415 - Ray takes a second to import

    return connect_ray(place.address, cpus=place.options.get("cpus"))


def _local_ray() -> Cluster:
    """Return this user's local head without starting one, or loading Ray."""
    from dlrover_nb.core.backends.ray.head import running_head  # noqa: PLC0415 - not every kind has it

    if (head := running_head()) is None:
        raise NotFoundError(
            f"no local Ray is running here, so it has no jobs; `connect ray` starts one{_others()}"
        )
    from dlrover_nb.core.backends.ray.local_ray import LocalRay  # noqa: PLC0415 - as above

    return LocalRay(head)


def _others() -> str:
    """Name the newest jobs of this machine without Ray, for a user who has forgotten to say so."""
    newest = local_jobs()
    if not newest:
        return ""
    names = f"job{'s' * (len(newest) > 1)} {', '.join(newest[:3])}"
    return (
        f"; {names} started without it: --cluster local goes there, and after `connect local` every call does"
    )


def _local(place: Place) -> Cluster:
    from dlrover_nb.core.backends.local.cluster import connect_local  # noqa: PLC0415 - it reads data

    return connect_local(place.options.get("cpus"))


def _kubernetes(place: Place) -> Cluster:
    from dlrover_nb.core.backends.kubernetes.cluster import connect_kubernetes  # noqa: PLC0415 - of an extra

    tell("Kubernetes to answer")
    return connect_kubernetes(place.options.get("context"), place.options.get("namespace"))


def _simulated(place: Place) -> Cluster:
    from dlrover_nb.core.backends.simulated.assumptions import simulate  # noqa: PLC0415 - it reads data

    machines, speed = place.options.get("machines"), place.options.get("speed")
    return simulate(machines=machines, speed=speed, at_s=SystemClock().now_s())


BUILT_IN = (
    Kind("ray", "Ray", ("address", "cpus"), _ray),
    Kind("kubernetes", "Kubernetes", ("context", "namespace"), _kubernetes, aliases=("k8s",)),
    Kind("local", "a cluster of local processes", ("cpus",), _local),
    Kind("sim", "a simulated cluster", ("machines", "speed"), _simulated, is_shared=False),
)


@cache
def kinds() -> Mapping[str, Kind]:
    """Return all kinds by their names; one of another package replaces none of these."""
    added = (point.load() for point in entry_points(group=GROUP))
    return {kind.name: kind for kind in (*added, *BUILT_IN)}


def kind_names() -> tuple[str, ...]:
    """Return the names of all kinds, the built-in ones first."""
    built_in = [kind.name for kind in BUILT_IN]
    return (*built_in, *(name for name in kinds() if name not in built_in))


def kind_of(name: str) -> Kind:
    """Return the kind of cluster for a word; `InvalidValueError` names the nearest one."""
    words = _by_word()
    if name in words:
        return words[name]
    hint = did_you_mean(name, words, otherwise=f"choose from {', '.join(kind_names())}")
    raise InvalidValueError(f"cannot connect to {shown(name)}; {hint}")


def check_options(kind: Kind, address: str | None, options: Mapping[str, object]) -> None:
    """Refuse an option that this kind of cluster does not take."""
    given = [name for name, value in ({"address": address} | dict(options)).items() if value is not None]
    alien = [name for name in given if name not in kind.options]
    if alien:
        takes = " and ".join(kind.options) or "none"
        raise InvalidValueError(f"{kind.title} takes no {' and no '.join(alien)}; it takes {takes}")


def read_address(text: str | None) -> Target:
    """Return the place that one word names.

    Parameters
    ----------
    text
        The name of a kind that other processes find too (``local``, ``kubernetes``);
        ``kubernetes://CONTEXT/NAMESPACE``, each of which may be left out (a slash in a context's name is
        written ``%2F``); anything else is the address of a Ray, and None the Ray of this machine.
    """
    named = _by_word().get((text or "").removesuffix(":"))
    if named is not None and named.is_shared:
        return _read_kubernetes(SCHEME) if named.name == "kubernetes" else Target(named.name, None, {})
    if text is None or not text.startswith(SCHEME):
        return Target("ray", text or None, {})
    return _read_kubernetes(text)


def _read_kubernetes(text: str) -> Target:
    context, _, namespace = text.removeprefix(SCHEME).partition("/")
    if "/" in namespace:
        raise InvalidValueError(
            f"expected {SCHEME}CONTEXT/NAMESPACE, got {text!r}; write a slash in a context's name as %2F"
        )
    options: Options = {"context": unquote(context) or None, "namespace": unquote(namespace) or None}
    return Target("kubernetes", None, options)


def _by_word() -> dict[str, Kind]:
    return {word: kind for kind in kinds().values() for word in (kind.name, *kind.aliases)}
