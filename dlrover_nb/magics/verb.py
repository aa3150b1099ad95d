"""A verb: what it takes, what it does, and how its help reads; and one call of it.

A verb is one record, so that a new one is written in one place. The handler is a function of the commands
(the session of the notebook or the command line) and of the values that were parsed, by keyword: its
signature names and types its arguments. One frozen record per verb between parser and handler was rejected:
it repeated that signature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError

if TYPE_CHECKING:
    from dlrover_nb.magics.parser import Parser

MAGIC = "%dlrover"
CLUSTER_OF_CALL = "cluster_of_call"  # name of the argument that every verb of a shell takes besides its own
Values = Mapping[str, object]  # the arguments of a call, by name


class DetachedError(DlroverError):
    """A wait was interrupted; the job goes on."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a verb: its names (a flag's begin with a dash) and its options for argparse."""

    names: tuple[str, ...]
    options: Mapping[str, object]

    @property
    def name(self) -> str:
        """The name of its value in a call."""
        long = next((each for each in self.names if each.startswith("--")), self.names[0])
        return str(self.options.get("dest") or long.lstrip("-").replace("-", "_"))

    def add_to(self, parser: Parser) -> None:
        """Add the argument to a parser."""
        parser.add_argument(*self.names, **self.options)  # type: ignore[arg-type]  # as argparse takes them


def argument(*names: str, **options: object) -> Argument:
    """Return an argument; names and options as ``add_argument`` of argparse takes them."""
    return Argument(names, options)


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb.

    Parameters
    ----------
    name, summary
        As shown in the help.
    handler
        Runs it: takes the `Commands`, and the values of a call by keyword; returns what there is to show.
    arguments
        What it takes.
    example
        Words after the verb, for its help.
    interpret
        Turns what was parsed into what the handler takes, where several arguments belong together: each
        function takes the values of the one before, and raises `InvalidValueError` for what does not fit.
    takes_cell
        Whether it takes the body of a cell, as ``cell``.
    exits_by_phase
        Whether the command line's exit code reports if the returned job has failed.
    default_of
        Returns for the help what a flag's missing value stands for, by the flag's name in a call; None where
        there is nothing to say.
    prints
        Whether the handler itself prints as it goes: it takes ``as_json``, and returns the last snapshot.
    under
        Word under which users type it, with its name as the flag, unless a row of `verbs.spelling.WORDS`
        says otherwise: ``show`` for ``show --logs``.
    """

    name: str
    summary: str
    handler: Callable[..., object]
    arguments: tuple[Argument, ...] = ()
    example: str = ""
    interpret: tuple[Callable[[Values], Values], ...] = ()
    takes_cell: bool = False
    exits_by_phase: bool = False
    default_of: Callable[[str], object] = lambda _: None
    prints: bool = False
    under: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """All its long flags."""
        return tuple(name for each in self.arguments for name in each.names if name.startswith("--"))

    def call(self, parsed: Values) -> Call:
        """Return the call that parsed arguments ask for."""
        values, as_json = {**parsed}, bool(parsed.get("json"))
        values.pop("json", None)
        cluster = values.pop(CLUSTER_OF_CALL, None)
        for function in self.interpret:
            values = {**function(values)}
        if self.prints:
            values["as_json"] = as_json
        return Call(self, values, as_json, None if cluster is None else str(cluster))


@dataclass(frozen=True, slots=True)
class Call:
    """A line that was parsed: a verb, the values that its handler takes, and whether to print JSON.

    `cluster` names where this call alone goes, in the form of `read_address`; None: where the session goes.
    `hint` says how an old verb is spelled now; empty: it was spelled so.
    """

    verb: Verb
    values: Values
    as_json: bool = False
    cluster: str | None = None
    hint: str = ""
