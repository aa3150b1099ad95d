"""The only parser: a line of words to a request, for `%dlrover` and for the command line alike.

Each verb has one argparse parser of its own, built from the table in `magics.verbs`; a request is a frozen
record, so nothing behind the parser sees a Namespace. IPython's `MagicArgumentParser` is not used, since the
command line must not import IPython; mistakes are `InvalidValueError` here and become a `UsageError`, or exit
code 2, at the edge.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, NoReturn

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.requests import Help
from dlrover_nb.magics.verbs import VERBS
from dlrover_nb.magics.words import Parser, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.magics.requests import Request

HELP_WIDTH = 100
MAGIC = "%dlrover"
CLI = "dlrover-nb"


def parse_line(line: str) -> Request:
    """Parse the line of a magic; a trailing ``;`` (hide the output) is no part of it.

    Raises
    ------
    InvalidValueError
        For an unknown verb or flag (with the nearest known one), a wrong value, or an unclosed quote.
    """
    line = line.strip()
    if "\0" in line or any("\ud800" <= character <= "\udfff" for character in line):
        raise InvalidValueError(f"expected text, got {line!r}; take out the character that is none")
    try:
        words = shlex.split(line.removesuffix(";"))
    except ValueError as error:
        raise InvalidValueError(f"unclosed quote in: {line}; close it, or put a \\ before it") from error
    return parse(words)


def parse(words: Sequence[str], *, command: str = MAGIC) -> Request:
    """Parse words into a request; no words ask for help. Raises as `parse_line` does."""
    if not words or words[0] in {"-h", "--help"}:
        return Help(None)
    name, *rest = words
    known = verbs(command)
    if name not in known:
        raise InvalidValueError(f"unknown verb {name!r}; {did_you_mean(name, known)}; see {command} help")
    if "-h" in rest or "--help" in rest:
        return Help(name)
    parser = parser_of(name, command)
    parsed, unknown = parser.parse_known_intermixed_args(rest)
    if unknown:
        _refuse(unknown[0], parser)
    return VERBS[name].build(parsed)


def _refuse(word: str, parser: Parser) -> NoReturn:
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        parser.error(f"one word too many: {word!r}")
    if not parser.flags:
        parser.error(f"unknown flag {flag!r}; there are none here")
    parser.error(f"unknown flag {flag!r}; {did_you_mean(flag, parser.flags)}")


def verbs(command: str = MAGIC) -> tuple[str, ...]:
    """Return the verbs that a command knows."""
    return tuple(name for name, verb in VERBS.items() if command == CLI or not verb.cli_only)


def parser_of(name: str, command: str = MAGIC) -> Parser:
    """Return a new parser of one verb: argparse changes its parsers while they parse."""
    verb = VERBS[name]
    parser = Parser(
        prog=f"{command} {name}",
        description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
        epilog=f"example: {command} {name} {verb.example}".rstrip(),
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=30, width=HELP_WIDTH),
        add_help=False,
        allow_abbrev=False,
    )
    for argument in verb.arguments:
        argument.add_to(parser)
    return parser


def help_text(name: str | None = None, *, command: str = MAGIC) -> str:
    """Return the help of one verb, or the list of all."""
    if name is None:
        lines = [f"  {verb:10} {VERBS[verb].summary}" for verb in verbs(command)]
        more = f"{command} help VERB explains one of them" + (
            "; %%dlrover submit takes a job in the cell, as YAML or Python." if command == MAGIC else "."
        )
        return "\n".join([f"{command} VERB ...", "", *lines, "", more])
    known = verbs(command)
    if name not in known:
        raise InvalidValueError(f"unknown verb {name!r}; {did_you_mean(name, known)}")
    return parser_of(name, command).format_help().strip()
