"""Forms as HTML: every field escaped, every form with its token and its key."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from dlrover_nb.dashboard.forms.act import MOST_REASON, PLAN_FIELDS
from dlrover_nb.widgets.blocks import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.dashboard.page import Visit

_SIZES = ("workers", "PS", "cores per worker", "cores per PS", "MiB per worker", "MiB per PS")


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


def sizes_fields(plan: ResourcePlan) -> str:
    """Return the fields of a plan's sizes, filled with it."""
    given = (
        (f"{plan.worker.count}", "1", "1"),
        (f"{plan.ps.count}", "1", "1"),
        (f"{plan.worker.cpu:g}", "0.01", "0.01"),
        (f"{plan.ps.cpu:g}", "0.01", "0.01"),
        (f"{plan.worker.memory_mib}", "64", "1"),
        (f"{plan.ps.memory_mib}", "64", "1"),
    )
    labels = "".join(
        f'<label>{title} <input type="number" name="{name}" value="{value}" min="{least}" step="{step}" '
        "required></label>"
        for name, title, (value, least, step) in zip(PLAN_FIELDS, _SIZES, given, strict=True)
    )
    return f'<div class="job-sizes">{labels}</div>'
