"""Forms as HTML: every field escaped, every form with its token and its key."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING

from dlrover_nb.core.commands.requests import SIZES
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import CPU_STEP
from dlrover_nb.dashboard.forms.act import MOST_REASON
from dlrover_nb.widgets.blocks import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.dashboard.page import Visit

_COUNT, _CORES, _MIB = (
    f'min="{least}" step="{step}"' for least, step in ((1, 1), (CPU_STEP, CPU_STEP), (64, 1))
)
_LIMITS = dict(zip(SIZES, (_COUNT, _COUNT, _CORES, _CORES, _MIB, _MIB), strict=True))
_TITLES = ("workers", "PS", "cores per worker", "cores per PS", "MiB per worker", "MiB per PS")


def hidden(fields: Mapping[str, str]) -> str:
    """Return hidden fields."""
    return "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in fields.items()
    )


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


def act_form(label: str, fields: Mapping[str, str], content: str, *, root: str = "") -> str:
    """Return the form of a command; its buttons are in the content."""
    return (
        f'<form method="post" action="{escape(root)}/do" aria-label="{escape(label)}">'
        f"{hidden(fields)}{content}</form>"
    )


def reason_field(given: str = "") -> str:
    """Return the field for a reason; `given` is one that is there already."""
    value = f'value="{escape(given)}" ' if given else ""
    return (
        f'<label>Reason <input name="reason" {value}maxlength="{MOST_REASON}" placeholder="optional" '
        'autocomplete="off"></label>'
    )


def button(action: str, text: str) -> str:
    """Return a button that asks for an action."""
    return f'<button name="action" value="{escape(action)}">{escape(text)}</button>'


def size_values(plan: ResourcePlan) -> dict[str, str]:
    """Return the sizes of a plan as the fields of a form that asks for it."""
    sizes = asdict(Pins.of(plan))
    return {name: f"{size:g}" if isinstance(size, float) else f"{size}" for name, size in sizes.items()}


def sizes_fields(plan: ResourcePlan) -> str:
    """Return the fields of a plan's sizes, filled with it."""
    labels = "".join(
        f'<label>{title} <input type="number" name="{name}" value="{value}" {_LIMITS[name]} required></label>'
        for title, (name, value) in zip(_TITLES, size_values(plan).items(), strict=True)
    )
    return f'<div class="job-sizes">{labels}</div>'
