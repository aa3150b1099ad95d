"""The command service: who may, what was asked before, who must approve, and what is written down."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.commands.facts import CommandFacts
from dlrover_nb.core.commands.memory_audit import MemoryAudit
from dlrover_nb.core.commands.rights import why_not
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.commands.service import CommandService
from dlrover_nb.core.commands.table import COMMANDS, ROW_OF
from dlrover_nb.core.errors import (
    AwayError,
    BackendError,
    InvalidValueError,
    NotAllowedError,
    SecondPersonError,
    StaleDecisionError,
)
from dlrover_nb.core.history.audit.chain import faults
from dlrover_nb.core.history.stores.request_store import RequestStore
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Command, Entry, Stage, decide
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person, local_person

ADA = Asker(Person("ada", grants=(Grant(AccessRole.OPERATOR),)), Entry.DASHBOARD)
BOB = Asker(Person("bob", grants=(Grant(AccessRole.OPERATOR),)), Entry.APPROVE)
EVE = Asker(Person("eve", grants=(Grant(AccessRole.VIEWER),)), Entry.API)
ACCEPT = decide(Decision(Verdict.ACCEPT, "", 0.0, "p1", why="worth it"), "ads")
FACTS = CommandFacts(owner="ada", run="ads@1.000", cost_per_hour=12.0, version="d3")


class DeniedError(BackendError, NotAllowedError):
    """A refusal by a cluster that knows people."""


class Full(MemoryAudit):
    """An audit whose disk is full."""

    def append(self, _row):
        raise BackendError("no space left")

    def claim(self, _row):
        raise BackendError("no space left")


def made(audit, **options):
    return CommandService(lambda: audit, lambda: 100.0, **options)


def said(audit):
    return [(row.row.person, row.row.stage, row.row.answer) for row in audit.rows()]


@pytest.fixture
def audit():
    return MemoryAudit()


def test_a_command_leaves_a_row_before_and_a_row_after_it(audit):
    seen = []
    done = made(audit).run(
        ACCEPT, ADA, FACTS, lambda: seen.extend(said(audit)) or Decision(Verdict.ACCEPT, "ada", 1.0, id="d4")
    )
    assert seen == [("ada", Stage.ASKED, "")], "a crash while it is carried out must leave a trace"
    assert said(audit) == [("ada", Stage.ASKED, ""), ("ada", Stage.DONE, "d4")]
    assert done.id == "d4"
    assert {(row.row.why, row.row.subject, row.row.run, row.row.entry) for row in audit.rows()} == {
        ("worth it", "p1", "ads@1.000", Entry.DASHBOARD)
    }


def test_a_viewer_is_refused_and_the_refusal_is_written_down(audit, error_words):
    with error_words(NotAllowedError):
        made(audit).run(ACCEPT, EVE, FACTS, lambda: pytest.fail("it was carried out"))
    ((who, stage, why),) = said(audit)
    assert (who, stage) == ("eve", Stage.REFUSED)
    assert "operator" in why


@pytest.mark.parametrize(
    ("error", "stage"),
    [
        (StaleDecisionError("p1 is over"), Stage.REFUSED),
        (DeniedError("vic may not"), Stage.REFUSED),
        (AwayError("no answer"), Stage.FAILED),
        (KeyError("x"), Stage.FAILED),
    ],
)
def test_what_became_of_a_command_that_raised_is_written_down(audit, error, stage):
    def act():
        raise error

    with pytest.raises(type(error)):
        made(audit).run(ACCEPT, ADA, FACTS, act)
    assert [row.row.stage for row in audit.rows()] == [Stage.ASKED, stage]


def test_a_second_command_of_a_key_is_answered_as_the_first_one(audit):
    service, keyed, n_done = made(audit), replace(ACCEPT, key="k1"), []
    first = Decision(Verdict.ACCEPT, "ada", 1.0, id="d4")
    service.run(keyed, ADA, FACTS, lambda: n_done.append(1) or first)
    again = service.run(keyed, ADA, FACTS, lambda: n_done.append(1), again=lambda answer: answer)
    assert (again, n_done) == ("d4", [1])


def test_a_key_that_was_asked_and_never_answered_is_not_carried_out_again(audit, error_words):
    service, keyed = made(audit), replace(ACCEPT, key="k1")
    with pytest.raises(KeyError):
        service.run(keyed, ADA, FACTS, lambda: {}["killed"])
    with error_words(StaleDecisionError):
        service.run(keyed, ADA, FACTS, lambda: pytest.fail("twice"), again=lambda answer: answer)


def test_nobody_learns_the_answer_to_anothers_key(audit):
    service, keyed = made(audit), replace(ACCEPT, key="k1")
    service.run(keyed, ADA, FACTS, lambda: "d4")
    with pytest.raises(StaleDecisionError, match="another command already used"):
        service.run(keyed, BOB, FACTS, lambda: "d5", again=lambda answer: answer)


def test_of_many_at_once_with_one_key_one_is_carried_out(audit):
    service, keyed, done = made(audit), replace(ACCEPT, key="k1"), []

    def ask():
        with contextlib.suppress(StaleDecisionError):  # the first one is not done yet
            service.run(keyed, ADA, FACTS, lambda: done.append(1) or "d4", again=lambda answer: answer)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [1]
    assert faults(audit.rows(), audit.head()) == ()


def test_where_it_must_be_audited_nothing_is_done_that_cannot_be_written_down():
    with pytest.raises(BackendError, match="no space"):
        made(Full(), is_required=True).run(ACCEPT, ADA, FACTS, lambda: pytest.fail("it was carried out"))


def test_a_client_whose_disk_is_full_can_still_stop_its_job(caplog, words):
    assert made(Full()).run(Command(Action.STOP, "ads"), ADA, FACTS, lambda: "stopped") == "stopped"
    assert caplog.messages == words


def test_a_dear_plan_waits_for_somebody_else(audit, tmp_path, error_words):
    requests = RequestStore(f"sqlite:///{tmp_path / 'h.db'}")
    service = made(audit, requests=requests, rules=Rules(over_cost_per_hour=10.0))
    with error_words(SecondPersonError):
        service.run(ACCEPT, ADA, FACTS, lambda: pytest.fail("one person was enough"))
    with pytest.raises(NotAllowedError, match="asked by you"):
        service.approve("r1", ADA, FACTS, lambda _: pytest.fail("she approved herself"))
    with pytest.raises(NotAllowedError, match="you are viewer"):
        service.approve("r1", EVE, FACTS, lambda _: pytest.fail("a viewer approved"))
    asked = []
    service.approve("r1", BOB, FACTS, lambda command: asked.append(command) or "d4")
    assert asked[0].decision.seen == "d3", "what the first person saw must still stand"
    last = [*audit.rows()][-1].row
    assert (last.person, last.first, last.stage, last.answer) == ("bob", "ada", Stage.DONE, "d4")
    with error_words(StaleDecisionError):
        service.approve("r1", BOB, FACTS, lambda _: pytest.fail("twice"))
    assert requests.open(100.0) == ()
    requests.close()


def test_what_the_jobs_master_would_refuse_waits_for_nobody(audit, tmp_path):
    requests = RequestStore(f"sqlite:///{tmp_path / 'h.db'}")
    service = made(audit, requests=requests, rules=Rules(over_cost_per_hour=10.0))
    facts = replace(FACTS, refusal="the plan must fit")
    for ask in (
        lambda: service.run(ACCEPT, ADA, facts, lambda: pytest.fail("it was carried out")),
        lambda: service.propose(ACCEPT, ADA, facts),
    ):
        with pytest.raises(InvalidValueError, match="the plan must fit"):
            ask()
    assert requests.open(0.0) == ()
    assert [(each.row.stage, each.row.answer) for each in audit.rows()] == [
        (Stage.REFUSED, "the plan must fit")
    ] * 2
    cheap = replace(facts, cost_per_hour=1.0)
    assert service.run(ACCEPT, ADA, cheap, lambda: "d4") == "d4", "the master checks what does not wait"
    requests.close()


def test_a_request_that_waited_too_long_and_one_that_was_refused_are_not_carried_out(
    audit, tmp_path, error_words
):
    requests = RequestStore(f"sqlite:///{tmp_path / 'h.db'}")
    rules = Rules(actions=frozenset({Action.ACCEPT}), expires_s=0.0)
    service = made(audit, requests=requests, rules=rules)
    for _ in range(2):
        with pytest.raises(SecondPersonError):
            service.run(ACCEPT, ADA, FACTS, lambda: pytest.fail("one person was enough"))
    with error_words(NotAllowedError):
        service.approve("r1", BOB, FACTS, lambda _: pytest.fail("too late"))
    service.withdraw("r2", BOB, FACTS, "not today")
    with pytest.raises(StaleDecisionError, match="refused by bob"):
        service.approve("r2", BOB, FACTS, lambda _: pytest.fail("refused"))
    requests.close()


roles = st.sampled_from(AccessRole)


@given(roles, roles, st.sampled_from(Action), st.booleans())
def test_a_stronger_role_may_all_that_a_weaker_one_may(weaker, stronger, action, is_own):
    if weaker.rank > stronger.rank:
        weaker, stronger = stronger, weaker
    owner = "ada" if is_own else "bob"
    refusals = [
        why_not(Person("ada", grants=(Grant(role),)), action, owner=owner) for role in (weaker, stronger)
    ]
    assert refusals[0] or not refusals[1]


@given(st.sampled_from(Action), roles)
def test_a_role_holds_in_its_namespace_alone(action, role):
    person = Person("ada", grants=(Grant(role, "team-a"),))
    assert "no role in namespace team-b" in why_not(person, action, namespace="team-b")


def test_every_action_has_a_right_and_no_role_is_above_what_it_needs_for_ones_own():
    assert set(ROW_OF) == set(Action)
    assert all(own.rank <= others.rank for others, own in ((row.of_others, row.of_own) for row in COMMANDS))
    assert all(not why_not(local_person("ada"), action) for action in Action)
