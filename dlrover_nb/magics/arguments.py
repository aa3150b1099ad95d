"""The only parser: from words to the call of a verb, for `%dlrover` and the command line.

Each verb has one argparse parser of its own, built from its record, so no code behind the parser gets a
Namespace. IPython's `MagicArgumentParser` is not used, since the command line must not import IPython.
Mistakes are `InvalidValueError` here and become a `UsageError`, or exit code 2, at the edge.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from dlrover_nb.core.basics.nearest import did_you_mean, nearest
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.parser import HelpFormatter, Parser
from dlrover_nb.magics.verb import MAGIC, Verb, argument
from dlrover_nb.magics.verbs import VERBS
from dlrover_nb.magics.verbs.spelling import BESIDE, OF_EVERY_VERB, WORDS, chosen, spelled_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dlrover_nb.api.views.job_views import TextView
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Argument, Call, Values
    from dlrover_nb.magics.verbs.spelling import Spelled

HELP_WIDTH = 100


class Grammar:
    """The lines that a front end understands: its words, the old names of its verbs, and `help`.

    Parameters
    ----------
    command
        What the user types before a verb.
    verbs
        What can be done, by the old names.
    common
        Arguments that every verb takes.

    Attributes
    ----------
    words
        The forms of each word, in the order of the help, see `spelling`.
    """

    def __init__(self, command: str, verbs: Mapping[str, Verb], common: tuple[Argument, ...] = ()) -> None:
        about = (argument("verb", metavar="VERB", nargs="?", help="one verb"),)
        every = {**verbs, "help": Verb("help", "explain all verbs, or one", self._help, about, "submit")}
        self.command = command
        self.verbs = {
            name: replace(verb, arguments=(*verb.arguments, *common)) for name, verb in every.items()
        }
        self.words = spelled_words(self.verbs)

    def parse_line(self, line: str, *, has_cell: bool = False) -> Call:
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
        return self.parse(words, has_cell=has_cell)

    def parse(self, words: Sequence[str], *, has_cell: bool = False) -> Call:
        """Parse words; no words ask for help. Raises as `parse_line` does."""
        if not words or words[0] in {"-h", "--help"}:
            return self.verbs["help"].call({"verb": None})
        name, *rest = words
        self._check(name)
        if "-h" in rest or "--help" in rest:
            return self.verbs["help"].call({"verb": name})
        if name in self.words:
            return self._parsed_word(name, rest, has_cell=has_cell)
        if name == "help" and rest:  # `help show --live` is about `show`
            forms = self.words.get(rest[0], ())
            rest = [each for each in rest if not any(each in form.choosing for form in forms)]
        call = self.verbs[name].call(_parsed(self.parser_of(name), rest))
        return replace(call, hint=self._hint(name, call.values))

    def _check_here(self, word: str, rest: Sequence[str]) -> None:
        """Refuse a form of a word that only the command line has: a job has its name by chance at most."""
        behind = {form.behind for form in WORDS[word] if form.behind and form.verb not in self.verbs}
        if rest and rest[0] in behind:
            typed = f"{word} {rest[0]}"
            raise InvalidValueError(
                f"`{typed}` works in a terminal, not here; type dlrover-nb {typed} there, "
                f"or !dlrover-nb {typed} in a cell"
            )

    def _parsed_word(self, word: str, rest: Sequence[str], *, has_cell: bool) -> Call:
        self._check_here(word, rest)
        *others, last = chosen(self.words[word], rest, has_cell=has_cell)
        rest = rest[1:] if last.is_behind(rest) else rest
        for each in others:
            call = each.verb.call(_parsed(self.parser(each.verb), rest))
            if call.values[each.form.needs] is not None:
                return call
        elsewhere = {
            name: form.start
            for form in reversed(self.words[word])
            for argument in form.verb.arguments
            for name in argument.names
        }
        return last.verb.call(_parsed(self.parser(last.verb), rest, elsewhere))

    def offered(self, name: str, rest: Sequence[str]) -> tuple[Parser, tuple[str, ...]]:
        """Return the parser of what words ask for so far, and what would ask for something else."""
        if name not in self.words:
            self._check(name)
            return self.parser_of(name), ()
        forms = self.words[name]
        form, *_ = chosen(forms, rest)
        if form is not forms[0] or form.is_behind(rest):
            return self.parser(form.verb), ()
        return self.parser(form.verb), tuple(each for other in forms[1:] for each in other.choosing)

    def parser_of(self, name: str) -> Parser:
        """Return a new parser of one verb by its old name."""
        return self.parser(replace(self.verbs[name], name=name))

    def parser(self, verb: Verb) -> Parser:
        """Return a new parser of one verb: argparse changes its parsers while they parse."""
        parser = Parser(
            prog=f"{self.command} {verb.name}",
            description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
            epilog=f"example: {self.command} {verb.name} {verb.example}".rstrip(),
            formatter_class=lambda prog: HelpFormatter(prog, verb.default_of, HELP_WIDTH),
            add_help=False,
            allow_abbrev=False,
            conflict_handler="resolve",
        )
        for each in verb.arguments:
            each.add_to(parser)
        return parser

    def help_text(self, name: str | None = None) -> str:
        """Return the help of one verb, or the list of all."""
        if name is None:
            lines = [
                f"  {word:8} {_summary(forms)}" for word, forms in self.words.items() if word not in BESIDE
            ]
            beside = [f"Without a job: {word} to {_summary(self.words[word])}." for word in BESIDE]
            more = f"{self.command} help VERB explains one of them" + (
                ", as %dlrover VERB? does; %%dlrover submit takes a job in the cell, as YAML or Python."
                if self.command == MAGIC
                else "."
            )
            return "\n".join([f"{self.command} VERB ...", "", *lines, "", *beside, more])
        self._check(name)
        if name in self.words:
            return self._help_of(self.words[name])
        if name == "help":
            return self.parser_of(name).format_help().strip()
        now = [each for each in self._forms() if each.form.verb == name]
        words = " or ".join(f"`{each.start}`" for each in now)
        return f"`{name}` is now {words}.\n\n{self._help_of(self.words[now[-1].word])}"

    def _help_of(self, forms: Sequence[Spelled]) -> str:
        """Return the help of a word: how each form is used, what each does and takes, and examples."""
        first, *more = verbs = [each.verb for each in forms]
        if not more:
            return self.parser(first).format_help().strip()
        takes = [each for verb in verbs for each in verb.arguments]
        shared = [each for i, each in enumerate(takes) if each in takes[:i] and each not in takes[i + 1 :]]
        own = [replace(v, arguments=tuple(each for each in v.arguments if each not in shared)) for v in verbs]
        usages = [self.parser(_of_itself(verb)).indented_usage() for verb in verbs]
        names = [each.start for each in forms]
        width = max(map(len, names))
        listed = [f"  {name:{width}}  {verb.summary}" for name, verb in zip(names, verbs, strict=True)]
        sections = [
            self.parser(verb).section(name, each.form.by)
            for verb, name, each in zip(own, names, forms, strict=True)
        ]
        sections.append(self.parser(replace(first, arguments=tuple(shared))).section("several of them"))
        examples = [f"  {self.command} {each.name} {each.example}".rstrip() for each in verbs]
        blocks = (
            ["usage:", *usages],
            listed,
            *([each] for each in sections if each),
            ["examples:", *examples],
        )
        return "\n\n".join("\n".join(lines) for lines in blocks)

    def _forms(self) -> Iterator[Spelled]:
        return (each for forms in self.words.values() for each in forms)

    def _hint(self, name: str, values: Values) -> str:
        """Return how a call of an old verb is spelled now; empty: as it was."""
        now = (each for each in self._forms() if each.form.verb == name and each.fits(values))
        return next((f"`{name}` is now `{each.now(values)}`." for each in now), "")

    def _check(self, name: str) -> None:
        """Refuse what is no verb, with the word that was probably meant."""
        if name in self.words or name in self.verbs:
            return
        word_of = {each.form.verb: each.word for each in self._forms()} | {each: each for each in self.words}
        near = dict.fromkeys(word_of[each] for each in nearest(name, word_of))
        meant = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(self.words)}"
        raise InvalidValueError(f"unknown verb {name!r}; {meant}; see {self.command} help")

    def _help(self, _: Commands, *, verb: str | None) -> TextView:
        """Explain all verbs, or one."""
        from dlrover_nb.api.views.job_views import TextView  # noqa: PLC0415 - charts load with the first verb

        return TextView(f"Help: {verb}" if verb else "Help", self.help_text(verb))


def _of_itself(verb: Verb) -> Verb:
    """Return a verb without the arguments that every verb takes."""
    return replace(verb, arguments=tuple(each for each in verb.arguments if each.name not in OF_EVERY_VERB))


def _summary(forms: Sequence[Spelled]) -> str:
    """Return what a word does, with a flag of each other form."""
    first, *more = forms
    leads = ", ".join(each.lead for each in more)
    return f"{first.verb.summary}; {leads}" if leads else first.verb.summary


def _parsed(
    parser: Parser, words: Sequence[str], elsewhere: Mapping[str, str] = MappingProxyType({})
) -> Values:
    """Return what was parsed; `elsewhere` are the forms to which flags belong that this one has not."""
    parsed, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        _refuse(unknown[0], parser, elsewhere)
    return vars(parsed)


def _refuse(word: str, parser: Parser, elsewhere: Mapping[str, str]) -> NoReturn:
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        parser.error(f"unexpected argument: {word!r}")
    if flag in elsewhere:
        parser.error(f"{flag} belongs to `{elsewhere[flag]}`")
    if not parser.flags:
        parser.error(f"unknown flag {flag!r}; this verb has none")
    parser.error(f"unknown flag {flag!r}; {did_you_mean(flag, dict.fromkeys((*parser.flags, *elsewhere)))}")


GRAMMAR = Grammar(MAGIC, VERBS)
