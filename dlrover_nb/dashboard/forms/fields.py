"""The fields of forms as values of a request; a missing or wrong one is named.

Where a request holds a value for each worker, each worker has a field of its own, ``batches:worker-0``: a
label for each number, and no text to be written in a form that the user must know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import NODEFAULT, UNSET
from msgspec.structs import fields

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.commands.arguments import number_type, plain_type
from dlrover_nb.core.commands.requests import SIZES, Replans
from dlrover_nb.core.commands.table import REQUESTS
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from msgspec.structs import FieldInfo

    from dlrover_nb.core.commands.requests import Request

    Form = Mapping[str, str]

ACTION_FIELDS = ("restart", "move", "backup", "size", "cores", "memory")
BATCHES, ACCUMULATE, RATES = "batches:", "accumulate:", "rates:"  # before a worker's name
OF_EVERY_FORM = ("csrf", "cluster", "job", "version", "run", "key", "back", "reason", "action")
_SIZE = ("size", "cores", "memory")
_LABELS = {
    "batches": "batch size of {node}",
    "sizes": "batch size of {node}",
    "accumulate": "mini-batches of {node}",
    "rates": "factor of {node}",
    "cores": "cores",
    "memory": "MiB",
}
_WORDS = {  # of fields of which one at least must be filled in
    "batches": "the batch size of each worker",
    "sizes": "the batch size of one worker at least",
    "rates": "the factor of one worker at least",
}
_FIELDS = {*OF_EVERY_FORM, *_SIZE, *(field.name for request in REQUESTS for field in fields(request))}


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


def values_of(form: Form, kind: type[Request]) -> dict[str, Any]:
    """Return the fields of a request that a form fills in, as values of their types.

    A field that may be left out is not given where the form has it empty or not at all. One that has no
    default must be there; it may be empty where it may be null, as a limit that is taken away. Of another
    plan all sizes must be there: an emptied field could mean the size that runs, or the one that was shown.

    Parameters
    ----------
    form
        Fields by the names of the request's; of a value for each worker or node, one field for each, named
        after it: ``batches:worker-0``. The size of a node is in ``size`` (its name), ``cores``, ``memory``.

    Raises
    ------
    InvalidValueError
        When a field is missing, is not what it should be, or is none of this product's forms: the page is
        of another version.
    """
    if unknown := form.keys() - _FIELDS - {name for name in form if ":" in name}:
        raise InvalidValueError(
            f"a form must have the fields of its page, got {shown(min(unknown))}; load the page again"
        )
    form = _with_size(form)
    whole_plan = SIZES if issubclass(kind, Replans) else ()
    return {
        field.name: value
        for field in fields(kind)
        if field.name != "why" and (value := _value(form, field, whole_plan)) is not UNSET
    }


def _value(form: Form, field: FieldInfo, of_whole_plan: Sequence[str]) -> Any:  # noqa: ANN401 - of the field's type
    """Return the value of one field; `UNSET`: it is not given."""
    type_, is_nullable = plain_type(field)
    name, is_needed = field.name, field.default is NODEFAULT or field.name in of_whole_plan
    if type_ is dict:
        of_node = _of_nodes(form, name, is_needed=is_needed)
        return {node: _number(form, key, field) for node, key in of_node.items()} if of_node else UNSET
    if is_nullable and field.default is NODEFAULT and name in form and not form[name].strip():
        return None
    if not is_needed and not form.get(name, "").strip():
        return UNSET
    if type_ is bool:
        return True
    return _number(form, name, field) if type_ in {int, float} else needed(form, name)


def _number(form: Form, key: str, field: FieldInfo) -> float:
    what = field.name if key == field.name else _LABELS[field.name].format(node=key.partition(":")[2])
    return whole(form, key, what) if number_type(field) is int else number(form, key, what)


def action_fields(form: Form) -> tuple[tuple[str, str], ...]:
    """Return those fields of a form that say which action is ordered, and why."""
    return tuple((name, value) for name, value in form.items() if name == "reason" or _is_of_action(name))


def _is_of_action(name: str) -> bool:
    return name in ACTION_FIELDS or name.startswith((BATCHES, ACCUMULATE, RATES))


def _with_size(form: Form) -> Form:
    """Return a form whose size of one node is in fields of that node."""
    if not any(form.get(name, "").strip() for name in _SIZE):
        return form
    node = needed(form, "size", "the node that gets another size")
    sizes = {f"{name}:{node}": form[name] for name in ("cores", "memory") if form.get(name, "").strip()}
    if not sizes:
        raise InvalidValueError(
            f"cores or MiB of {shown(node)} must be given, got neither; fill in one or both"
        )
    return {**{name: value for name, value in form.items() if name not in _SIZE}, **sizes}


def _of_nodes(form: Form, name: str, *, is_needed: bool) -> dict[str, str]:
    """Return the field of each node whose field is filled in; empty: the form has none, or none must be."""
    fields_of = {key.partition(":")[2]: key for key in form if key.startswith(f"{name}:")}
    given = {node: key for node, key in fields_of.items() if form[key].strip()}
    if (fields_of or is_needed) and not given and name in _WORDS:
        raise InvalidValueError(f"{_WORDS[name]} must be given, got nothing; fill in a number")
    return given
