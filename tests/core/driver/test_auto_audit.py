"""What auto mode decides stands in the audit, once, also after its master came back from its journal."""

from __future__ import annotations

import pytest
from support.jobs import builders

from dlrover_nb.core.driver.history_writer import HistoryWriter
from dlrover_nb.core.history.audit.chain import faults
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.structs.decisions.commands import Action, Entry, Stage
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.views.events import Remember

SPEC = JobSpec("quick-start", owner="ada")
ACCEPTED = Decision(Verdict.ACCEPT, "auto", 9.0, proposal="p2", why="faster", id="d1")
BY_ADA = Decision(Verdict.SCALE, "ada", 10.0, plan=builders.plan(workers=3), id="d2")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'history.db'}"


def record(url):
    writer = HistoryWriter("quick-start", url, "team-ads")
    for at_s, told in ((1.0, SPEC), (8.0, builders.proposal("p2")), (9.0, ACCEPTED), (10.0, BY_ADA)):
        writer.remember(Remember(at_s, told))
    writer.close()


def test_a_decision_of_auto_mode_has_one_row_however_often_its_master_comes_back(url):
    for _ in range(3):
        record(url)
    store = AuditStore(url)
    (chained,) = store.rows()
    row, chosen = chained.row, builders.proposal("p2").candidate
    assert (row.person, row.entry, row.action, row.stage) == ("auto", Entry.AUTO, Action.ACCEPT, Stage.DONE)
    assert (row.job, row.run, row.namespace) == ("quick-start", "quick-start@1.000", "team-ads")
    assert (row.subject, row.answer, row.why) == ("p2", "d1", "faster")
    assert (row.plan_after, row.predicted_samples_per_s) == (
        str(chosen.plan),
        chosen.prediction.samples_per_s,
    )
    assert faults(store.rows(), store.head()) == ()
    store.close()


def test_the_next_master_writes_the_decisions_that_it_makes_itself(url):
    record(url)
    second = HistoryWriter("quick-start", url)
    second.continue_run(SPEC, 1.0)
    second.remember(
        Remember(20.0, Decision(Verdict.SCALE, "auto", 20.0, plan=builders.plan(workers=2), id="d3"))
    )
    second.close()
    store = AuditStore(url)
    assert [each.row.answer for each in store.rows()] == ["d1", "d3"]
    store.close()


def test_an_action_that_auto_mode_accepts_stands_in_its_row_by_its_words(url):
    action = builders.mitigation().action
    writer = HistoryWriter("quick-start", url, "team-ads")
    writer.remember(Remember(1.0, SPEC))
    accepted = Decision(Verdict.ACCEPT, "auto", 9.0, proposal="m1", why="slow", id="d1", action=action)
    writer.remember(Remember(9.0, accepted))
    writer.close()
    store = AuditStore(url)
    (chained,) = store.rows()
    assert (chained.row.subject, chained.row.mitigation) == ("m1", "restart worker-1")
    assert chained.row.plan_after == ""
    store.close()
