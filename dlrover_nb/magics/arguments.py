"""The only parser: from words to the call of a verb, for `%dlrover` and the command line.

Each verb has one argparse parser of its own, built from its record, so no code behind the parser gets a
Namespace. IPython's `MagicArgumentParser` is not used, since the command line must not import IPython.
Mistakes are `InvalidValueError` here and become a `UsageError`, or exit code 2, at the edge.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.parser import HelpFormatter, Parser
from dlrover_nb.magics.verb import MAGIC, Verb, argument
from dlrover_nb.magics.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.api.views.job_views import TextView
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Argument, Call

HELP_WIDTH = 100


class Grammar:
    """The lines that a front end understands: its verbs, and `help`, which explains them.

    Parameters
    ----------
    command
        What the user types before a verb.
    verbs
        The verbs by name, in the order of the help.
    common
        Arguments that every verb takes.
    """

    def __init__(self, command: str, verbs: Mapping[str, Verb], common: tuple[Argument, ...] = ()) -> None:
        about = (argument("verb", metavar="VERB", nargs="?", help="one verb"),)
        every = {**verbs, "help": Verb("help", "explain all verbs, or one", self._help, about, "submit")}
        self.command = command
        self.verbs = {
            name: replace(verb, arguments=(*verb.arguments, *common)) for name, verb in every.items()
        }

    def parse_line(self, line: str) -> Call:
        """Parse the line of a magic; a trailing ``;`` (hide the output) is no part of it.

        Raises
        ------
        InvalidValueError
            For an unknown verb or flag (with the nearest known one), a wrong value, or an unclosed quote.
        """
        line = line.strip()
        if "\0" in line or any("\ud800" <= character <= "\udfff" for character in line):
            raise InvalidValueError(f"expected text, got {line!r}; remove the character that is not text")
        try:
            words = shlex.split(line.removesuffix(";"))
        except ValueError as error:
            raise InvalidValueError(f"unclosed quote in: {line}; close it, or put a \\ before it") from error
        return self.parse(words)

    def parse(self, words: Sequence[str]) -> Call:
        """Parse words; no words ask for help. Raises as `parse_line` does."""
        if not words or words[0] in {"-h", "--help"}:
            return self.verbs["help"].call({"verb": None})
        name, *rest = words
        if name not in self.verbs:
            raise InvalidValueError(f"{self._unknown(name)}; see {self.command} help")
        if "-h" in rest or "--help" in rest:
            return self.verbs["help"].call({"verb": name})
        parser = self.parser_of(name)
        parsed, unknown = parser.parse_known_intermixed_args(rest)
        if unknown:
            _refuse(unknown[0], parser)
        return self.verbs[name].call(vars(parsed))

    def parser_of(self, name: str) -> Parser:
        """Return a new parser of one verb: argparse changes its parsers while they parse."""
        verb = self.verbs[name]
        parser = Parser(
            prog=f"{self.command} {name}",
            description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
            epilog=f"example: {self.command} {name} {verb.example}".rstrip(),
            formatter_class=lambda prog: HelpFormatter(prog, verb.default_of, HELP_WIDTH),
            add_help=False,
            allow_abbrev=False,
        )
        for each in verb.arguments:
            each.add_to(parser)
        return parser

    def help_text(self, name: str | None = None) -> str:
        """Return the help of one verb, or the list of all."""
        if name is None:
            lines = [f"  {verb.name:10} {verb.summary}" for verb in self.verbs.values()]
            more = f"{self.command} help VERB explains one of them" + (
                ", as %dlrover VERB? does; %%dlrover submit takes a job in the cell, as YAML or Python."
                if self.command == MAGIC
                else "."
            )
            return "\n".join([f"{self.command} VERB ...", "", *lines, "", more])
        if name not in self.verbs:
            raise InvalidValueError(self._unknown(name))
        return self.parser_of(name).format_help().strip()

    def _help(self, _: Commands, *, verb: str | None) -> TextView:
        """Explain all verbs, or one."""
        from dlrover_nb.api.views.job_views import TextView  # noqa: PLC0415 - charts load with the first verb

        return TextView(f"Help: {verb}" if verb else "Help", self.help_text(verb))

    def _unknown(self, name: str) -> str:
        return f"unknown verb {name!r}; {did_you_mean(name, tuple(self.verbs))}"


def _refuse(word: str, parser: Parser) -> NoReturn:
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        parser.error(f"unexpected argument: {word!r}")
    if not parser.flags:
        parser.error(f"unknown flag {flag!r}; this verb has none")
    parser.error(f"unknown flag {flag!r}; {did_you_mean(flag, parser.flags)}")


GRAMMAR = Grammar(MAGIC, VERBS)
