"""How verbs are spelled: a few words, each of which does one thing or several, chosen by flags.

What is done stands in the verbs beside this module, one for each thing; their names were once what users
typed, and go on working. A verb whose name is its flag says itself under which word it stands (`Verb.under`),
behind the forms of that word in `WORDS`, which need more or come first. Parsing, help, completion, the page
of the documentation, and how an old name is spelled now are made from both.

A form of a word takes the arguments of its verb, so no flag is declared twice. It is chosen by a flag that
only chooses (``--live``), that the verb has anyway (``--goal``), or that stands for another argument of the
verb (``--report`` for ``--output``). The form without such a flag stands first.

Rejected: one parser for each word with the flags of all its forms. It could not say that ``--lines`` belongs
to ``--logs``, and would start what a wrong mixture of flags happens to fit.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.commands.node_actions import WORDS as ACTIONS
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.verb import CLUSTER_OF_CALL, Argument, Verb, argument
from dlrover_nb.magics.verbs.command_verbs import SIZE_FLAGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.magics.verb import Values

OF_EVERY_VERB = ("json", CLUSTER_OF_CALL)  # names of the arguments that a shell adds


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One thing that a word does.

    Parameters
    ----------
    verb
        Name of the verb that does it, which is its old name too.
    behind
        Word that stands right behind and chooses it; the first form of a word needs it not.
    by, own
        Flags that choose it, any of them: those that only choose, and those that the verb has.
    renamed
        Flags that stand for arguments of the verb, by their names; they choose it too.
    only
        Names of the arguments that it takes; None: all of its verb.
    needs
        Name of an argument without which the next form that fits is meant, unless a flag of `by` is given.
    summary, example
        For the help; empty: those of the verb, with the first flag of `by` behind the job's name.
    """

    verb: str
    behind: str = ""
    by: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] | None = None
    needs: str = ""
    summary: str = ""
    example: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags that choose it."""
        return (*self.by, *self.renamed.values(), *self.own)


def _plain(verb: str, *by: str) -> Form:
    return Form(verb=verb, by=by)


_ACTION_FLAGS = tuple(f"--{word}" for word in ACTIONS)
WORDS: Mapping[str, tuple[Form, ...]] = {
    "connect": (
        _plain("connect"),
        Form(verb="attach", by=("--attach",), example="--attach quick-start"),
        _plain("shutdown", "--end"),
    ),
    "submit": (_plain("submit"),),
    "jobs": (_plain("jobs"), Form(verb="dash", by=("--live",), example="--live quick-start")),
    "show": (
        _plain("status"),
        _plain("watch", "--live"),
        _plain("stragglers", "--nodes", "--stragglers"),
        Form(
            verb="mitigate", by=("--mitigations",), only=("job",),
            summary="show what waits and what was done against stragglers",
            example="quick-start --mitigations",
        ),
        Form(
            verb="shards", by=("--rows",), only=("job",),
            summary="show the state of all rows", example="quick-start --rows",
        ),
        _plain("cluster", "--machines"),
    ),
    "plan": (
        _plain("plans"),
        _plain("why", "--why"),
        _plain("whatif", "--if"),
        Form(verb="plan", own=("--goal",)),
    ),
    "apply": (
        _plain("accept"),
        Form(
            verb="override", by=("--instead",), own=SIZE_FLAGS, needs="proposal",
            example="quick-start p1 --workers 3",
        ),
        Form(verb="scale", own=SIZE_FLAGS),
        Form(verb="mitigate", own=_ACTION_FLAGS, summary="order an action against stragglers"),
        _plain("batches", "--batch-sizes"),
        Form(
            verb="shards", renamed={"retry": "--retry-shard", "skip": "--skip-shard"},
            summary="decide about a shard in quarantine",
            example='quick-start --skip-shard 7 --why "damaged rows"',
        ),
    ),
    "reject": (_plain("reject"),),
    "undo": (_plain("undo"),),
    "pin": (
        _plain("pin"),
        Form(verb="budget", renamed={"budget_total": "--budget"}, example="quick-start --budget 40"),
    ),
    "mode": (_plain("mode"),),
    "end": (
        Form(verb="finish", summary="end a job with success: train no more rows, and evaluate the model"),
        _plain("stop", "--now"),
    ),
    "history": (
        _plain("history"),
        Form(verb="audit", by=("--audit",), example="--audit list --job quick-start --since 24h"),
        Form(verb="report", renamed={"output": "--report"}, example="quick-start --report report.html"),
        Form(
            verb="predict", renamed={"rows": "--predict"},
            example="quick-start --predict new.parquet -o scores.parquet",
        ),
    ),
    "export": (_plain("export"),),
    "import": (_plain("import"),),
    "server": (
        Form(verb="serve", behind="serve"),
        Form(verb="tokens", behind="tokens"),
        Form(verb="users", behind="users"),
        Form(verb="mcp", behind="mcp"),
        Form(verb="brain", behind="brain"),
    ),
    "lab": (_plain("lab"),),
    "rehearse": (_plain("rehearse"),),
}  # fmt: skip
BESIDE = (
    "lab",
    "rehearse",
)  # words that need no job and no cluster: the list of the help names them below the others


class _Chooses(argparse.Action):
    """A flag that only chooses a form, before it is parsed: nothing is stored."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:  # noqa: ANN401 - of argparse
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, *_: object) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Spelled:
    """A form of a word with the verb that it makes; `left_out`: arguments that it lacks, with defaults."""

    word: str
    form: Form
    verb: Verb
    left_out: Values
    is_first: bool

    @property
    def choosing(self) -> tuple[str, ...]:
        """What chooses it: flags, or the word behind."""
        return (*filter(None, [self.form.behind]), *self.form.flags)

    @property
    def lead(self) -> str:
        """What stands for it in a list of forms; empty: it needs nothing."""
        return "" if self.is_first else self.choosing[0]

    @property
    def start(self) -> str:
        """The word with it."""
        return f"{self.word} {self.lead}".rstrip()

    def now(self, values: Values) -> str:
        """Return how a call of its verb with these values begins now."""
        form = self.form
        if form.needs and values[form.needs] is not None:
            return self.word
        renamed = [flag for name, flag in form.renamed.items() if values[name] is not None]
        return " ".join((self.verb.name, *form.by[:1], *(*renamed, *form.renamed.values())[:1]))

    def is_behind(self, words: Sequence[str]) -> bool:
        """Whether its word stands right behind the verb."""
        return self.form.behind != "" and [*words[:1]] == [self.form.behind]

    def fits(self, values: Values) -> bool:
        """Whether it takes all that its verb was called with."""
        return all(values[name] == default for name, default in self.left_out.items())


def spelled(word: str, form: Form, verb: Verb, *, is_first: bool) -> Spelled:
    """Return a form with the verb that it makes: as the one that does it, under this word."""
    by_name = {each.name: each for each in verb.arguments}
    takes = [n for n in by_name if form.only is None or n in (*form.only, *OF_EVERY_VERB)]
    arguments = [_renamed(by_name[name], form.renamed.get(name)) for name in takes]
    summary = form.summary or verb.summary
    if form.by:
        is_needed = not form.own
        arguments.insert(0, argument(*form.by, action=_Chooses, required=is_needed, help=summary))
    left_out = {name: by_name[name].options.get("default") for name in by_name if name not in takes}
    made = replace(
        verb,
        name=word if is_first else f"{word} {form.behind}".rstrip(),
        summary=summary,
        arguments=tuple(arguments),
        example=form.example or _behind_job(verb.example, *form.by[:1]),
        interpret=(lambda values: {**left_out, **values}, *verb.interpret),
    )
    return Spelled(word, form, made, left_out, is_first)


def _behind_job(example: str, *flag: str) -> str:
    """Return an example with the flag that chooses, behind the name of the job where there is one."""
    job, _, rest = example.partition(" ") if example and not example.startswith("-") else ("", "", example)
    return " ".join(filter(None, (job, *flag, rest)))


def _renamed(old: Argument, flag: str | None) -> Argument:
    """Return an argument under a flag, if it gets one; a word that is needed stays needed."""
    if flag is None:
        return old
    options = {**old.options, "dest": old.name}
    is_needed = {"required": True} if not old.names[0].startswith("-") else {}
    return argument(flag, **options, **is_needed)


def spelled_words(verbs: Mapping[str, Verb]) -> dict[str, tuple[Spelled, ...]]:
    """Return the forms of each word that there are where these verbs are."""
    return {
        word: tuple(
            spelled(word, form, verbs[form.verb], is_first=form is forms[0])
            for form in (*forms, *_under(word, verbs))
            if form.verb in verbs
        )
        for word, forms in WORDS.items()
    }


def _under(word: str, verbs: Mapping[str, Verb]) -> tuple[Form, ...]:
    """Return the forms whose flag is the name of their verb: of verbs that no row of `WORDS` names."""
    in_rows = {form.verb for forms in WORDS.values() for form in forms}
    return tuple(
        _plain(verb.name, f"--{verb.name}")
        for verb in verbs.values()
        if verb.under == word and verb.name not in in_rows
    )


def chosen(forms: Sequence[Spelled], words: Sequence[str], *, has_cell: bool = False) -> tuple[Spelled, ...]:
    """Return the forms that words may ask for, the first that fits; usually it is one.

    Raises
    ------
    InvalidValueError
        When flags do not go together.
    """
    if behind := [each for each in forms if each.is_behind(words)]:
        return (*behind,)
    flags = {each.partition("=")[0] for each in takewhile(lambda each: each != "--", words)}
    choosing = sorted(flags & {flag for each in forms for flag in each.form.flags})
    if not choosing:
        of_cell = [each for each in forms if has_cell and each.verb.takes_cell]
        return (*of_cell, *forms)[:1]
    fit = [each for each in forms if flags & {*each.form.flags} and {*choosing} <= {*each.verb.flags}]
    if not fit:
        raise InvalidValueError(f"{' and '.join(choosing)} do not go together; leave all but one out")
    sure = [each for each in fit if flags & {*each.form.by}]
    return (*(sure or fit),)
