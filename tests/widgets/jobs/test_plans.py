"""What a proposal shows beside its numbers."""

from __future__ import annotations

from dataclasses import replace

from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.decisions import BreakEven, Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.widgets.jobs.plans import change_facts, state_words
from dlrover_nb.widgets.jobs.status import commands
from dlrover_nb.widgets.units import Currency

USD = Currency("USD")


def test_a_proposal_says_what_would_change_it():
    words = "Below 20,000 samples/s of the proposed plan, what runs now would be recommended."
    flip = BreakEven("throughput", 30_000.0, 20_000.0, "samples/s", b.NOW_PLAN, words)
    facts = dict(change_facts(replace(b.proposal(), flip=flip), USD))
    assert facts["what would change it"] == words
    assert "what would change it" not in dict(change_facts(b.proposal(), USD))


def test_an_open_proposal_says_what_auto_mode_waits_for():
    note = "auto waits: 2 of the last 3 predictions were outside their band"
    assert dict(change_facts(b.proposal(note=note), USD))["waits"] == note
    closed = b.proposal(status=ProposalStatus.REJECTED, note="no")
    assert "waits" not in dict(change_facts(closed, USD))


def test_a_decision_that_the_picture_does_not_know_yet_tells_nothing_of_its_effect(words):
    before = b.snapshot(mode=Mode.SUGGEST)
    mode = Decision(Verdict.MODE, "ada", 0.0, mode=Mode.AUTO, id="d9")
    pin = Decision(Verdict.PIN, "ada", 0.0, pins=Pins(workers=2), id="d9")
    accept = Decision(Verdict.ACCEPT, "ada", 0.0, proposal="p2", id="d9")
    for decision, proposal in ((mode, None), (pin, None), (accept, b.proposal())):
        assert state_words(decision, proposal, before) == words(name="not known yet")
    after = replace(before, mode=Mode.AUTO, decisions=(*before.decisions, mode))
    assert state_words(mode, None, after) == words(name="known")


def test_an_override_to_type_names_memory_only_where_it_changes(words):
    *_, same = commands("ads", b.proposal())
    assert "memory" not in same
    more = replace(b.NOW_PLAN, ps=replace(b.NOW_PLAN.ps, memory_mib=768))
    *_, typed = commands("ads", b.proposal(target=more))
    assert typed == words
