"""Verbs made from the table of commands: the fields of a request are the arguments of its verb.

A field without a default is a word, one with a default a flag. An id may be left out here: then the one that
was shown last is meant, so an `accept` without an id is refused, with the reason, when a better proposal has
replaced it since. Only where none was shown, the open one is meant.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from dlrover_nb.core.commands.arguments import description, extra, number_type, plain_type
from dlrover_nb.core.commands.requests import SIZES, Scale, Sized, check_given
from dlrover_nb.core.commands.table import DECISIONS, ROW_OF
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.magics.flags import JOB, WHY, job_or
from dlrover_nb.magics.parser import Pairs, money_or_off, number, one_of, whole
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec.structs import FieldInfo

    from dlrover_nb.api.views.job_views import DecisionView
    from dlrover_nb.core.commands.requests import Decides, Request
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Argument, Values

_IDS = {"ID": r"[pm]\d+", "PROPOSAL": r"p\d+", "DECISION": r"d\d+"}  # by metavar: how an id looks
_PARSERS: dict[type, Callable[[str], object]] = {
    int: whole, float: number, str: str, Mode: one_of("mode", Mode),
}  # fmt: skip


def argument_of(field: FieldInfo, dest: str = "") -> Argument:
    """Return a field as an argument, which argparse stores as `dest`; empty: under the field's name."""
    metavar, text = extra(field, "metavar"), description(field).rstrip(".")
    text = text[:1].lower() + text[1:]
    if metavar in _IDS:
        return argument(field.name, metavar=metavar, nargs="?", help=text)
    if field.default is NODEFAULT:
        return argument(field.name, metavar=metavar, type=_parser(field), help=text)
    flag = f"--{extra(field, 'flag') or field.name.replace('_', '-')}"
    options: dict[str, object] = {"help": text, "dest": dest or field.name}
    if plain_type(field)[0] is bool:
        return argument(flag, action="store_true", **options)
    return argument(flag, metavar=metavar, type=_parser(field), **options)


def _parser(field: FieldInfo) -> Callable[[str], object]:
    type_, is_nullable = plain_type(field)
    if type_ is dict:
        return Pairs(extra(field, "metavar"), description(field), _PARSERS[number_type(field)])
    if is_nullable and field.default is NODEFAULT:
        return money_or_off
    return _PARSERS[type_]


def arguments_of(request: type[Request]) -> tuple[FieldInfo, ...]:
    """Return the fields of a request that its verb takes, without the reason."""
    flat = (each for each in fields(request) if not issubclass(plain_type(each)[0], Struct))
    return tuple(each for each in flat if each.name != "why")


SIZE_FIELDS = tuple(field for field in fields(Scale) if field.name in SIZES)
SIZE_FLAGS = tuple(str(argument_of(field).names[0]) for field in SIZE_FIELDS)


def sizes_of(values: Values) -> Pins:
    """Return the parts of a plan among the values of a call; `InvalidValueError` where there is none."""
    sizes = Pins(**{name: values[name] for name in SIZES})  # type: ignore[arg-type]  # each has its flag's type
    if not values.get("clear"):
        check_given(sizes, SIZE_FLAGS)
    return sizes


def check_sizes(values: Values) -> Values:
    """Refuse a call that gives no size, before anything is asked of a cluster."""
    sizes_of(values)
    return values


def verb_of(request: type[Decides]) -> Verb:
    """Return the verb of a decision."""
    row = ROW_OF[request.action]
    taken = arguments_of(request)

    def ask(commands: Commands, *, job: str | None, **values: Any) -> DecisionView:  # noqa: ANN401 - by the table
        handle = commands.job(job)
        for field in taken:
            values[field.name] = _shown_id(commands, handle.name, field, values[field.name])
        return commands.decided(handle.ask(request(**values)))

    ids = [(field.name, _IDS[extra(field, "metavar")]) for field in taken if extra(field, "metavar") in _IDS]
    interpret = [job_or(name, re.compile(pattern)) for name, pattern in ids]
    if issubclass(request, Sized):
        interpret.append(check_sizes)
    arguments = (JOB, *map(argument_of, taken), WHY)
    return Verb(str(row.action), row.summary, ask, arguments, row.example, tuple(interpret), under="apply")


def _shown_id(commands: Commands, job: str, field: FieldInfo, value: object) -> object:
    """Return the value of a field; for an id that was left out, that of what was shown last, or empty."""
    match extra(field, "metavar"):
        case "ID":
            return commands.session.answered_for(job, value) or ""  # type: ignore[arg-type]  # a word or None
        case "PROPOSAL":
            return commands.session.proposal_for(job, value) or ""  # type: ignore[arg-type]  # as above
        case "DECISION":
            return value or ""
        case _:
            return value


COMMAND_VERBS = {request.action: verb_of(request) for request in DECISIONS}
