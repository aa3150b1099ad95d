"""The parts of a plan that a user names: other parts stay as they are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parts of a plan; None leaves a part as it is."""

    workers: int | None = None
    ps: int | None = None
    worker_cpu: float | None = None
    ps_cpu: float | None = None
    worker_memory_mib: int | None = None
    ps_memory_mib: int | None = None

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, float]:
        """The parts that were named."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def applied_to(self, plan: ResourcePlan) -> ResourcePlan:
        """Return `plan` with these parts."""
        return replace(
            plan,
            worker=_resized(plan.worker, self.workers, self.worker_cpu, self.worker_memory_mib),
            ps=_resized(plan.ps, self.ps, self.ps_cpu, self.ps_memory_mib),
        )

    def pinned(self, pins: Pins) -> Pins:
        """Return `pins` with these parts fixed as well."""
        return replace(pins, **self.given)  # type: ignore[arg-type]  # each has its field's type


PARTS = tuple(f.name for f in fields(Sizes))


def check_given(sizes: Sizes, names: Iterable[str] = PARTS) -> None:
    """Refuse sizes of which none is given; `names` are their names in the user's input."""
    if not sizes:
        raise InvalidValueError(f"nothing to change; give at least one of {', '.join(names)}")


def _resized(role: RolePlan, count: int | None, cpu: float | None, memory_mib: int | None) -> RolePlan:
    given = {"count": count, "cpu": cpu, "memory_mib": memory_mib}
    return replace(role, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # each has its field's type
