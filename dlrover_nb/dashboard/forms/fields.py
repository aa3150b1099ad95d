"""The fields of forms as values: a missing or wrong one is told by the words of its label.

An action against stragglers has a field for each word of `ActionRequest`. Where a word holds a value for each
worker, each worker has a field of its own, ``batches:worker-0``: a label for each number, and no text to be
written in a form that the user must know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.client.action_request import ActionRequest
from dlrover_nb.core.errors import InvalidValueError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    Form = Mapping[str, str]

ACTION_FIELDS = ("restart", "move", "backup", "size", "cores", "memory")
BATCHES, RATES = "batches:", "rates:"  # before a worker's name
_WORDS = {BATCHES: "the batch size of each worker", RATES: "the factor of one worker at least"}


def needed(form: Form, field: str, what: str = "") -> str:
    """Return the text of a field; `what` it is called in errors, where not by its name.

    Raises
    ------
    InvalidValueError
        When it is not there or empty.
    """
    if not (value := form.get(field, "").strip()):
        raise InvalidValueError(
            f"{what or field} must be given, got nothing; load the page again and send it once more"
        )
    return value


def whole(form: Form, field: str, what: str = "") -> int:
    """Return a field as a whole number; `InvalidValueError` where it is none."""
    text = needed(form, field, what)
    try:
        return int(text)
    except ValueError as error:
        raise InvalidValueError(
            f"{what or field} must be a whole number, got {shown(text)}; correct it"
        ) from error


def number(form: Form, field: str, what: str = "") -> float:
    """Return a field as a number; `InvalidValueError` where it is none."""
    text = needed(form, field, what)
    try:
        return float(text)
    except ValueError as error:
        raise InvalidValueError(f"{what or field} must be a number, got {shown(text)}; correct it") from error


def action_request(form: Form) -> ActionRequest:
    """Return what a form asks for against stragglers.

    Parameters
    ----------
    form
        Its fields: `ACTION_FIELDS`, and one for each worker after `BATCHES` and `RATES`. An empty one is not
        given: a worker without a factor keeps its own, and a node without cores or memory keeps those.

    Raises
    ------
    InvalidValueError
        When a field is not what it should be, or a node gets a size and neither cores nor memory are given.
    """
    cores, memory = _size(form)
    sizes, factors = _of_workers(form, BATCHES), _of_workers(form, RATES)
    return ActionRequest(
        restart=form.get("restart") or None,
        move=form.get("move") or None,
        backup=whole(form, "backup") if form.get("backup") else None,
        batches={name: whole(form, field, f"batch size of {name}") for name, field in sizes.items()} or None,
        rates={name: number(form, field, f"factor of {name}") for name, field in factors.items()} or None,
        cores=cores,
        memory=memory,
    )


def action_fields(form: Form) -> tuple[tuple[str, str], ...]:
    """Return those fields of a form that say which action is ordered, and why."""
    return tuple((name, value) for name, value in form.items() if name == "reason" or _is_of_action(name))


def _is_of_action(name: str) -> bool:
    return name in ACTION_FIELDS or name.startswith((BATCHES, RATES))


def _size(form: Form) -> tuple[dict[str, float] | None, dict[str, int] | None]:
    """Return cores and memory by the node that gets them."""
    if not any(form.get(name, "").strip() for name in ("size", "cores", "memory")):
        return None, None
    node = needed(form, "size", "the node that gets another size")
    has_cores, has_memory = (bool(form.get(name, "").strip()) for name in ("cores", "memory"))
    if not (has_cores or has_memory):
        raise InvalidValueError(
            f"cores or MiB of {shown(node)} must be given, got neither; fill in one or both"
        )
    return (
        {node: number(form, "cores")} if has_cores else None,
        {node: whole(form, "memory", "MiB")} if has_memory else None,
    )


def _of_workers(form: Form, before: str) -> dict[str, str]:
    """Return the field of each worker whose field is filled in; empty: the form has no such fields."""
    fields = {name.removeprefix(before): name for name in form if name.startswith(before)}
    given = {worker: field for worker, field in fields.items() if form[field].strip()}
    if fields and not given:
        raise InvalidValueError(f"{_WORDS[before]} must be given, got nothing; fill in a number")
    return given
