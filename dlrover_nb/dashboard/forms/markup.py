"""Forms as data: fields, each form with its token and its key, and buttons; `forms.html` writes them."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.commands.requests import SIZES
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.dashboard.page import Visit

    May = Callable[[Action], bool]

_COUNT, _CORES, _MIB = (1, 1), (CPU_STEP, CPU_STEP), (64, 1)  # the least value, and the step
_LIMITS = dict(zip(SIZES, (_COUNT, _COUNT, _CORES, _CORES, _MIB, _MIB), strict=True))
_TITLES = ("workers", "PS", "cores per worker", "cores per PS", "MiB per worker", "MiB per PS")


@dataclass(frozen=True, slots=True)
class ActForm:
    """The form of a command: its label, its hidden fields, and the action and the text of each button."""

    label: str
    fields: Mapping[str, str]
    buttons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SizeField:
    """The field of one size of a plan."""

    title: str
    name: str
    value: str
    least: float
    step: float


def seen_fields(
    visit: Visit, snapshot: JobSnapshot, *, back: str = "job", proposal: str = ""
) -> dict[str, str]:
    """Return what a form about a job says of what its person saw, with the token and a key of its own."""
    fields = {
        "csrf": visit.csrf,
        "cluster": visit.cluster,
        "job": snapshot.spec.name,
        "version": snapshot.version,
        "run": snapshot.run,
        "key": uuid.uuid4().hex,
        "back": back,
    }
    return fields | ({"proposal": proposal} if proposal else {})


def answer_form(
    visit: Visit, snapshot: JobSnapshot, name: str, may: May, labels: tuple[str, str]
) -> ActForm | None:
    """Return the form that accepts or rejects, with these labels; None: this person may not."""
    pressed = zip((Action.ACCEPT, Action.REJECT), labels, strict=True)
    buttons = tuple((str(action), label) for action, label in pressed if may(action))
    return (
        ActForm(f"Answer {name}", seen_fields(visit, snapshot, proposal=name), buttons) if buttons else None
    )


def size_values(plan: ResourcePlan) -> dict[str, str]:
    """Return the sizes of a plan as the fields of a form that asks for it."""
    sizes = asdict(Pins.of(plan))
    return {name: f"{size:g}" if isinstance(size, float) else f"{size}" for name, size in sizes.items()}


def size_fields(plan: ResourcePlan) -> tuple[SizeField, ...]:
    """Return the fields of a plan's sizes, filled with it."""
    values = size_values(plan).items()
    return tuple(
        SizeField(title, name, value, *_LIMITS[name])
        for title, (name, value) in zip(_TITLES, values, strict=True)
    )
