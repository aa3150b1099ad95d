"""Commands that wait for a person: asked once however often they are sent, and proposed without being done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlrover_nb.core.commands.facts import CommandFacts
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.commands.service import CommandService
from dlrover_nb.core.errors import BackendError, NotAllowedError, SecondPersonError, StaleDecisionError
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.history.stores.request_store import RequestStore
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Command, Entry, Stage
from dlrover_nb.core.structs.decisions.people import Person, local_person

STOP = Rules(actions=frozenset({Action.STOP}))
ADA, BOB = (Asker(local_person(name), Entry.API) for name in ("ada", "bob"))
FACTS = CommandFacts(version="d4")


@pytest.fixture
def stores(tmp_path):
    url = f"sqlite:///{tmp_path / 'history.db'}"
    audit, requests = AuditStore(url), RequestStore(url)
    yield audit, requests
    audit.close()
    requests.close()


def service(stores, rules=STOP):
    audit, requests = stores
    return CommandService(lambda: audit, lambda: 100.0, requests=requests, rules=rules, is_required=True)


def never():
    raise AssertionError("it must not be carried out")


def test_a_command_that_waits_is_kept_once_however_often_it_is_sent_with_its_key(stores):
    stop = Command(Action.STOP, "train", key="k1")
    told = set()
    for _ in range(3):
        with pytest.raises(SecondPersonError) as waits:
            service(stores).run(stop, ADA, FACTS, never)
        told.add(str(waits.value))
    assert len(told) == 1
    assert [request.id for request in stores[1].open(0.0)] == ["r1"]
    with pytest.raises(SecondPersonError, match="waits as r2"):
        service(stores).run(Command(Action.STOP, "train", key="k2"), ADA, FACTS, never)


def test_a_key_is_its_first_commands_also_where_that_waits(stores):
    with pytest.raises(SecondPersonError):
        service(stores).run(Command(Action.STOP, "train", key="k1"), ADA, FACTS, never)
    for command, asker in (
        (Command(Action.STOP, "train", key="k1"), BOB),
        (Command(Action.STOP, "other", key="k1"), ADA),
        (Command(Action.FINISH, "train", key="k1"), ADA),
    ):
        with pytest.raises(StaleDecisionError, match="another command already used"):
            service(stores).run(command, asker, FACTS, never)


def test_a_waiting_command_is_done_by_its_second_person_and_its_key_stays_taken(stores):
    stop = Command(Action.STOP, "train", key="k1")
    with pytest.raises(SecondPersonError):
        service(stores).run(stop, ADA, FACTS, never)
    assert service(stores).approve("r1", BOB, FACTS, lambda command: command.action) is Action.STOP
    with pytest.raises(SecondPersonError):
        service(stores).run(stop, ADA, FACTS, never)
    assert stores[1].open(0.0) == ()


def test_a_proposal_waits_for_a_person_also_where_no_rule_asks_for_one(stores):
    agent = Asker(local_person("ada"), Entry.AGENT)
    free = service(stores, Rules())
    request = free.propose(Command(Action.FINISH, "train", why="done"), agent, FACTS)
    assert (request.id, request.first, request.entry) == ("r1", "ada", Entry.AGENT)
    row = stores[0].newest(1)[0].row
    assert (row.action, row.stage, row.entry) == (Action.PROPOSE, Stage.WAITING, Entry.AGENT)
    assert free.why_not_approve(request, "ada") == ""
    assert service(stores, Rules(actions=frozenset({Action.FINISH}))).why_not_approve(request, "ada")
    assert free.approve("r1", ADA, FACTS, lambda command: command.action) is Action.FINISH


def test_a_command_about_an_earlier_job_of_the_name_is_refused_and_a_request_can_be_taken_back(
    stores, error_words
):
    first, second = (CommandFacts(version="d1", run=f"train@{at_s:.3f}") for at_s in (10, 20))
    stop, unknown = Command(Action.STOP, "train"), CommandFacts()  # of a job that does not answer
    with pytest.raises(SecondPersonError):
        service(stores).run(stop, ADA, first, never)
    for ask in (
        lambda: service(stores).approve("r1", BOB, second, never),
        lambda: service(stores, Rules()).run(replace(stop, run=first.run), ADA, second, never),
    ):
        with error_words(StaleDecisionError):
            ask()
        assert stores[0].newest(1)[0].row.stage is Stage.REFUSED
    for facts in (first, unknown):
        assert service(stores).request("r1", BOB, facts).command.run == first.run
    assert service(stores, Rules()).run(replace(stop, run=first.run), ADA, unknown, lambda: "done") == "done"
    service(stores).withdraw("r1", ADA, second)
    assert stores[1].open(0.0) == ()


def test_what_a_person_asked_for_is_never_theirs_to_approve(stores):
    with pytest.raises(SecondPersonError):
        service(stores).run(Command(Action.STOP, "train"), ADA, FACTS, never)
    request = stores[1].find("r1")
    assert service(stores, Rules()).why_not_approve(request, "ada")  # also where the rule is gone


def test_who_may_not_propose_is_refused_on_record_and_no_place_to_wait_is_an_error(stores):
    nobody = Asker(Person("nora"), Entry.AGENT)
    with pytest.raises(NotAllowedError, match="propose"):
        service(stores).propose(Command(Action.STOP, "train"), nobody, FACTS)
    assert stores[0].newest(1)[0].row.stage is Stage.REFUSED
    homeless = CommandService(lambda: stores[0], lambda: 1.0)
    with pytest.raises(BackendError, match="cannot wait here"):
        homeless.propose(Command(Action.STOP, "train"), ADA, FACTS)
