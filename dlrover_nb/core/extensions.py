"""What other installed packages add, by entry points.

A package of one's own names what it adds in its metadata, in the group of that extension point:

    [project.entry-points."dlrover_nb.policies"]
    night-shift = "my_package.policies:night_shift"

It is looked for where it is asked for, never while a module is imported, and only what is asked for by name
is imported: a broken package breaks no job that does not use it. Rejected: a register() function, which is
called in the process of the notebook and not in the pod where the job's master runs.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import DlroverError, InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Groups whose names stand in job files, which more than one room reads.
DATA_SOURCES = "dlrover_nb.data_sources"
OPTIMIZERS = "dlrover_nb.optimizers"
ACTIONS = "dlrover_nb.actions"
STRAGGLER_RULES = "dlrover_nb.straggler_rules"
STRAGGLER_SOLUTIONS = "dlrover_nb.straggler_solutions"
# Groups of the brain, whose names stand on its command line.
BRAIN_METHODS = "dlrover_nb.brain_methods"
QUEUE_ORDERS = "dlrover_nb.queue_orders"
WEIGHTS = "dlrover_nb.weights"

P = ParamSpec("P")
R = TypeVar("R")


def names(group: str) -> tuple[str, ...]:
    """Return the names that installed packages add in a group; nothing is imported."""
    return tuple(_points(group))


def load(group: str) -> dict[str, object]:
    """Import all that installed packages add in a group, and return it by name.

    Raises
    ------
    InvalidValueError
        When two packages add the same name, or one cannot be imported.
    """
    return {name: _import(group, point) for name, point in _points(group).items()}


def find(group: str, name: str, own: Mapping[str, object]) -> object:
    """Return what a name stands for: one of our own, or what an installed package adds in the group.

    Raises
    ------
    InvalidValueError
        When there is no such name, with the nearest one; when two packages, or one and we, have the same
        name, or the package cannot be imported.
    """
    points = _points(group)
    both = sorted(points.keys() & own.keys())
    if both:
        raise InvalidValueError(
            f"{group} must have other names than our own, got {both[0]} by {points[both[0]].value}; "
            "rename it there"
        )
    if name in own:
        return own[name]
    if name in points:
        return _import(group, points[name])
    names = sorted([*own, *points])
    hint = did_you_mean(name, names, otherwise="install the package that adds it")
    raise InvalidValueError(f"{group} has {', '.join(names)}, got {shown(name)}; {hint}")


def find_function(group: str, name: str, own: Mapping[str, Callable[P, R]]) -> Callable[P, R]:
    """Return a function by its name: ours as it is, a package's so that its errors name it.

    Of our own names no files are read.

    Raises
    ------
    InvalidValueError
        As `find` does, and when the package adds something else than a function.
    """
    if name in own:
        return own[name]
    added = find(group, name, own)
    if not callable(added):
        raise InvalidValueError(f"{name} of {group} must be a function, got {type(added).__name__}")
    function = cast("Callable[P, R]", added)  # another package's function is not checked

    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except DlroverError:
            raise
        except Exception as error:
            raise InvalidValueError(
                f"{name} of {group} failed with {type(error).__name__}: {error}; repair its package"
            ) from error

    return called


def _points(group: str) -> dict[str, EntryPoint]:
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = points.setdefault(point.name, point)
        if other.value != point.value:
            raise InvalidValueError(
                f"{group} must have each name once, got {point.name} by {other.value} and {point.value}; "
                "uninstall one of the packages"
            )
    return points


def _import(group: str, point: EntryPoint) -> object:
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.module
        raise InvalidValueError(
            f"{point.name} of {group} must be importable as {point.value}, "
            f"got {type(error).__name__}: {error}; repair or uninstall {package}"
        ) from error
