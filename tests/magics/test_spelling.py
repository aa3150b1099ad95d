"""Fifteen words for all that there is to do; old names do the same and say how they are spelled now."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from support.cases import for_each

from dlrover_nb import cli
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.magics.arguments import GRAMMAR, Grammar
from dlrover_nb.magics.verbs.spelling import BESIDE, WORDS

if TYPE_CHECKING:
    from support.jobs.cluster_double import MemoryCluster

GRAMMARS = (GRAMMAR, cli.GRAMMAR)
SPELLINGS = [  # old, new, and the new name that the old one tells
    ("attach ctr", "connect --attach ctr", "connect --attach"),
    ("shutdown --force", "connect --end --force", "connect --end"),
    ("dash ctr", "jobs --live ctr", "jobs --live"),
    ("status ctr", "show ctr", "show"),
    ("status", "show", "show"),
    ("watch ctr", "show ctr --live", "show --live"),
    ("stragglers ctr --solution lb-bsp", "show ctr --nodes --solution lb-bsp", "show --nodes"),
    ("stragglers", "show --stragglers", "show --nodes"),
    ("mitigate ctr", "show --mitigations ctr", "show --mitigations"),
    ("shards ctr", "show --rows ctr", "show --rows"),
    ("logs ctr worker-0 -n 5", "show ctr --logs worker-0 -n 5", "show --logs"),
    ("logs worker-0", "show --logs worker-0", "show --logs"),
    ("cluster --hours 6 --record", "show --machines --record --hours 6", "show --machines"),
    ("wait ctr --for proposal --timeout 9", "show ctr --wait --for proposal --timeout 9", "show --wait"),
    ("plans ctr", "plan ctr", "plan"),
    ("why ctr p1 --question 6", "plan ctr p1 --why --question 6", "plan --why"),
    ("why p1", "plan --why p1", "plan --why"),
    ("whatif ctr --ps 2", "plan ctr --if --ps 2", "plan --if"),
    ("accept", "apply", "apply"),
    ("accept ctr p2 --why 'it is faster'", "apply ctr p2 --why 'it is faster'", "apply"),
    ("accept m1", "apply m1", "apply"),
    ("override ctr --ps 2", "apply ctr --instead --ps 2", "apply --instead"),
    ("override p1 --worker-cpu=0.5", "apply p1 --worker-cpu=0.5", "apply"),
    ("override ctr p1 --workers 3 --why=--now", "apply ctr p1 --workers 3 --why=--now", "apply"),
    ("scale ctr --workers 3 --ps-memory 900", "apply ctr --workers 3 --ps-memory 900", "apply"),
    ("scale --workers 3 --why p1", "apply --workers 3 --why p1", "apply"),
    ("mitigate ctr --restart worker-1 --why slow", "apply ctr --restart worker-1 --why slow", "apply"),
    ("mitigate --cores ps-0=2 --memory ps-0=900", "apply --cores ps-0=2 --memory ps-0=900", "apply"),
    ("batches worker-0=256 worker-1=128", "apply --batch-sizes worker-0=256 worker-1=128", "apply --batch-sizes"),
    ("shards ctr --skip 7 --why bad", "apply ctr --skip-shard 7 --why bad", "apply --skip-shard"),
    ("shards --retry 0", "apply --retry-shard 0", "apply --retry-shard"),
    ("budget ctr 40", "pin ctr --budget 40", "pin --budget"),
    ("budget off", "pin --budget off", "pin --budget"),
    ("finish ctr --why done", "end ctr --why done", "end"),
    ("stop ctr --why done", "end ctr --now --why done", "end --now"),
    ("delete ctr --force", "end --delete ctr --force", "end --delete"),
    ("score --owner ada --days 7", "history --score --owner ada --days 7", "history --score"),
    ("audit verify --anchor abc", "history --audit verify --anchor abc", "history --audit"),
    ("audit --job ctr", "history --audit --job ctr", "history --audit"),
    ("report ctr -o r.html --force", "history ctr --report r.html --force", "history --report"),
    ("predict ctr a.csv -o b.csv", "history ctr --predict a.csv -o b.csv", "history --predict"),
    ("serve", "server", "server"),
    ("serve", "server serve", "server"),
    ("tokens add ada --days 3", "server tokens add ada --days 3", "server tokens"),
    ("users list", "server users list", "server users"),
    ("mcp", "server mcp", "server mcp"),
    ("brain once --interval 9", "server brain once --interval 9", "server brain"),
    ("demo --out x", "submit --demo --out x", "submit --demo"),
]  # fmt: skip

UNDER = [  # whose name is their flag
    name
    for name, verb in cli.GRAMMAR.verbs.items()
    if verb.under and name not in {form.verb for forms in WORDS.values() for form in forms}
]


def test_the_help_lists_at_most_fifteen_words() -> None:
    for grammar in GRAMMARS:
        listed = re.findall(r"^  (\w+) ", grammar.help_text(), re.MULTILINE)
        assert listed == [word for word in WORDS if word not in BESIDE]
        assert len(listed) <= 15
        assert all(f"Without a job: {word} " in grammar.help_text() for word in BESIDE)


def test_every_old_verb_is_spelled_otherwise_or_as_it_was() -> None:
    for grammar in GRAMMARS:
        spelled = {form.form.verb for forms in grammar.words.values() for form in forms}
        assert spelled | {"help"} == set(grammar.verbs)
    old = {line.split()[0] for line, *_ in SPELLINGS} | set(UNDER)
    assert old == set(cli.GRAMMAR.verbs) - set(WORDS) - {"help"}


@for_each("name", UNDER)
def test_a_verb_under_a_word_is_its_flag_there(name: str) -> None:
    verb = cli.GRAMMAR.verbs[name]
    before, now = (
        cli.GRAMMAR.parse(shlex.split(f"{start} {verb.example}"))
        for start in (name, f"{verb.under} --{name}")
    )
    assert now.verb.handler is before.verb.handler
    assert {**now.values} == {**before.values}
    assert (before.hint, now.hint) == (f"`{name}` is now `{verb.under} --{name}`.", "")


@for_each(("old", "new", "name"), SPELLINGS)
def test_the_new_spelling_makes_the_same_request(old: str, new: str, name: str) -> None:
    for grammar in GRAMMARS:
        if old.split(maxsplit=1)[0] not in grammar.verbs:
            continue
        before, now = (grammar.parse(shlex.split(line)) for line in (old, new))
        assert now.verb.handler is before.verb.handler
        assert {**now.values} == {**before.values}
        assert now.hint == ""
        assert before.hint == f"`{old.split(maxsplit=1)[0]}` is now `{name}`."


@for_each(("grammar", "name"), [(g, name) for g in GRAMMARS for name in ("", *g.words)])
def test_a_line_of_the_help_names_only_what_there_is(grammar: Grammar, name: str) -> None:
    text = grammar.help_text(name or None)
    listed = re.findall(r"^  (\w+) .*; ((?:[\w-]+(?:, )?)+)$", text, re.MULTILINE) if not name else []
    for word, leads in listed:
        for lead in leads.split(", "):
            form, *_ = [form for form in grammar.words[word] if lead in form.choosing]
            assert lead in form.verb.flags or lead == form.form.behind
    for start in re.findall(rf"{re.escape(grammar.command)} (.*)", text.partition("\nexample")[2]):
        assert grammar.parse(shlex.split(start)).hint == ""


@for_each(
    ("line", "message"),
    [
        ("show --live --logs", "--live and --logs do not go together"),
        ("show --lines 5", "--lines belongs to `show --logs`; see %dlrover help show"),
        ("show --rows --skip 7", "unknown flag '--skip'"),
        ("show --mitigations --restart worker-0", "unknown flag '--restart'"),
        ("apply --workers 3 --restart worker-0", "--restart and --workers do not go together"),
        ("apply --workers two", "--workers: must be a whole number, got 'two'; see %dlrover help apply"),
        ("apply --instead", "nothing to change; give at least one of --workers"),
        ("end ctr --force", "--force belongs to `end --delete`"),
        ("end --now --delete ctr", "--delete and --now do not go together"),
        ("end --delete", "the following arguments are required: JOB; see %dlrover help end"),
        ("plan --workers 3", "--workers belongs to `plan --if`"),
        ("apply --retry-shard 1 --skip-shard 2", "decide about one shard at a time"),
    ],
)
def test_what_does_not_go_together_is_refused(line: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=re.escape(message)):
        GRAMMAR.parse_line(line)


@for_each(
    ("line", "word"),
    [
        ("help show", "show"),
        ("help show --live", "show"),
        ("show --live -h", "show"),
        ("help apply --restart", "apply"),
    ],
)
def test_the_help_of_a_form_is_that_of_its_word(line: str, word: str) -> None:
    assert GRAMMAR.parse_line(line).values == {"verb": word}
    assert cli.GRAMMAR.parse(["help", "server", "tokens", "--json"]).as_json


def test_a_cell_of_plan_holds_goals() -> None:
    assert GRAMMAR.parse_line("plan ctr", has_cell=True).verb.takes_cell
    assert not GRAMMAR.parse_line("plan ctr").verb.takes_cell


@for_each(
    ("words", "is_terminal", "hint"),
    [
        (("status",), True, "`status` is now `show`.\n"),
        (("status",), False, ""),
        (("status", "--json"), True, ""),
        (("show",), True, ""),
    ],
)
def test_the_new_name_is_said_to_people_alone(
    run, memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch, words, is_terminal, hint
) -> None:
    memory.links.clear()
    memory.submit(JobSpec("ctr"))
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    code, out, err = run(*words)
    assert (code, err) == (0, hint)
    assert "is now" not in out


def test_a_notebook_says_the_new_name_once(shell, memory: MemoryCluster, capsys) -> None:
    shell.run_line_magic("dlrover", "connect ray")
    memory.submit(JobSpec("ctr"))
    for n_call, line in enumerate(
        ("%dlrover status", "%dlrover status", "s = %dlrover status", "%dlrover plans")
    ):
        shell.run_cell(line, store_history=True)
        expected = ("`status` is now `show`.\n", "", "", "`plans` is now `plan`.\n")[n_call]
        assert capsys.readouterr().err == expected
