"""What every history does, whichever database it is kept in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, make_url, text
from support.history.history_records import (
    CANDIDATE,
    DECISION,
    FIT,
    MITIGATION,
    OUTCOME,
    PLAN,
    PROPOSAL,
    ROW,
    SPEC,
    TARGET,
    TRAITS,
)

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.history import HistoryStore, Thinning
from dlrover_nb.core.structs.decisions.actions import ActionChoice, AdjustBatches
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.past_jobs import PastJob, SeriesRow, TermKnowledge


@pytest.fixture
def store(url):
    found = HistoryStore(url)
    found.remember("clicks", 10.0, SPEC)
    yield found
    found.close()


def test_what_is_remembered_comes_back_equal(store):
    store.remember("clicks", 20.0, PROPOSAL)
    store.remember("clicks", 21.0, DECISION)
    store.remember("clicks", 30.0, OUTCOME)
    assert store.proposals("clicks") == (PROPOSAL,)
    assert store.decisions("clicks") == (DECISION,)
    assert store.outcomes("clicks") == (OUTCOME,)
    store.remember("clicks", 25.0, MITIGATION)
    assert store.mitigations("clicks") == (MITIGATION,)
    store.remember("clicks", 31.0, FIT)
    store.remember("clicks", 32.0, ROW)
    store.remember("clicks", 33.0, TRAITS)
    assert (store.fits("clicks"), store.series("clicks")) == ((FIT,), (ROW,))
    assert (store.jobs()[0].spec, store.jobs()[0].traits) == (SPEC, TRAITS)


def test_it_survives_the_process(store, url):
    store.remember("clicks", 21.0, DECISION)
    assert HistoryStore(url).decisions("clicks") == (DECISION,)


def test_remembering_twice_changes_nothing_but_proposals_and_actions_are_updated(store):
    begun = PhaseChanged(11.0, JobPhase.TRAINING)
    for record in (PROPOSAL, DECISION, MITIGATION, OUTCOME, begun, TRAITS, FIT, ROW):
        store.remember("clicks", 20.0, record)
        store.remember("clicks", 20.0, record)
    store.remember("clicks", 10.0, SPEC)
    store.remember("clicks", 22.0, replace(PROPOSAL, status=ProposalStatus.APPLYING))
    ended = replace(MITIGATION, status=ProposalStatus.APPLIED, closed_at_s=30.0, decision="d1")
    store.remember("clicks", 30.0, ended)
    read = (store.decisions, store.outcomes, store.proposals, store.mitigations, store.fits, store.series)
    assert [len(store.jobs()), *(len(of("clicks")) for of in read)] == [1] * 7
    assert [p.status for p in store.proposals("clicks")] == [ProposalStatus.APPLYING]
    assert store.mitigations("clicks") == (ended,)


WRITTEN = (
    *(replace(DECISION, id=f"d{i}", at_s=20.0 + i) for i in range(1, 4)),
    *(replace(OUTCOME, decision=f"d{i}", applied_at_s=30.0 + i) for i in range(1, 4)),
    *(replace(FIT, at_s=40.0 + i) for i in range(1, 4)),
    *(replace(ROW, at_s=60.0 * i) for i in range(1, 4)),
    PROPOSAL,
    *(replace(MITIGATION, id=f"m{i}") for i in range(9, 12)),
)


@pytest.mark.more
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_order_and_any_repetition_give_the_same_history(store, data):
    again = data.draw(st.lists(st.sampled_from(WRITTEN), max_size=8))
    for record in data.draw(st.permutations([*WRITTEN, *again])):
        store.remember("clicks", 99.0, record)
    read = (store.decisions, store.outcomes, store.fits, store.series, store.proposals, store.mitigations)
    assert tuple(record for of in read for record in of("clicks")) == WRITTEN
    store.delete("clicks")
    store.remember("clicks", 10.0, SPEC)


def test_each_run_of_a_name_is_kept_apart_and_the_newest_is_shown(store):
    store.remember("clicks", 21.0, DECISION)
    store.remember("clicks", 50.0, SPEC)
    assert store.decisions("clicks") == ()
    runs = store.jobs()
    assert [r.started_at_s for r in runs] == [50.0, 10.0]
    assert store.decisions("clicks", run=runs[1].run) == (DECISION,)


def test_master_that_comes_back_writes_to_its_run(store, url):
    again = HistoryStore(url)
    again.remember("clicks", 21.0, DECISION)
    assert store.decisions("clicks") == (DECISION,)


def test_phase_and_end_follow_what_was_heard_last(store):
    assert (store.jobs()[0].phase, store.jobs()[0].ended_at_s) == (JobPhase.STARTING, None)
    store.remember("clicks", 12.0, PhaseChanged(12.0, JobPhase.TRAINING))
    store.remember("clicks", 90.0, PhaseChanged(90.0, JobPhase.SUCCEEDED, "AUC 0.9"))
    run = store.jobs()[0]
    assert (run.phase, run.ended_at_s, run.message, run.owner) == ("succeeded", 90.0, "AUC 0.9", "ada")


def test_tenth_decision_follows_the_ninth(store):
    for i in range(1, 12):
        store.remember("clicks", 21.0, replace(DECISION, id=f"d{i}"))
    assert [d.id for d in store.decisions("clicks")] == [f"d{i}" for i in range(1, 12)]


def test_unknown_job_is_named(store):
    with pytest.raises(NotFoundError, match="nobody"):
        store.decisions("nobody")
    with pytest.raises(NotFoundError, match="nobody"):
        store.remember("nobody", 1.0, DECISION)


def test_columns_answer_questions_in_sql(store, url):
    store.remember("clicks", 21.0, DECISION)
    store.remember("clicks", 30.0, OUTCOME)
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg:")))
    with engine.connect() as connection:
        question = (
            'select d."by", d.why, o.predicted_samples_per_s, o.measured_samples_per_s '
            "from decisions d join outcomes o on o.run = d.run and o.decision = d.id"
        )
        row = connection.execute(text(question)).one()
    engine.dispose()
    assert tuple(row) == ("ada", "sounds good", 100.0, 110.0)


def test_an_action_that_names_many_long_nodes_is_kept_whole(store):
    sizes = tuple((f"{'a-long-name-of-a-job-' * 2}worker-{i}", 64) for i in range(9))
    action = replace(MITIGATION, action=ActionChoice.of(AdjustBatches(sizes)))
    store.remember("clicks", 21.0, action)
    assert store.mitigations("clicks") == (action,)


def test_columns_of_actions_answer_questions_in_sql(store, url):
    store.remember("clicks", 21.0, DECISION)
    store.remember("clicks", 22.0, replace(MITIGATION, status=ProposalStatus.APPLYING, decision="d1"))
    store.remember("clicks", 26.0, replace(MITIGATION, id="m2"))
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg:")))
    with engine.connect() as connection:
        question = (
            'select m.kind, m.action, m.status, m.gain, d."by" from mitigations m '
            "left join decisions d on d.run = m.run and d.id = m.decision order by m.id"
        )
        rows = connection.execute(text(question)).all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [
        ("restart", "restart worker-0", "applying", 0.2, "ada"),
        ("restart", "restart worker-0", "pending", 0.2, None),
    ]


def test_an_action_whose_gain_is_no_number_is_kept_with_an_unknown_one(store):
    store.remember("clicks", 25.0, replace(MITIGATION, gain=float("inf")))
    assert store.mitigations("clicks") == (replace(MITIGATION, gain=None),)


def test_text_of_any_length_and_kind_comes_back_whole_in_its_record(store):
    odd = replace(DECISION, by="a" * 500, why="Gr\u00fc\u00dfe \N{SNOWMAN} ' \" \0 end" * 100)
    store.remember("clicks", 21.0, odd)
    assert store.decisions("clicks") == (odd,)


def test_number_that_is_not_finite_is_refused_and_nothing_is_written(store):
    for bad in (replace(ROW, samples_per_s=float("nan")), replace(ROW, span_s=0.0), replace(ROW, workers=-1)):
        with pytest.raises(InvalidValueError, match="series"):
            store.remember("clicks", 60.0, bad)
    with pytest.raises(InvalidValueError, match="must be finite"):
        store.remember("clicks", 60.0, replace(FIT, log_error=float("inf")))
    assert store.series("clicks") == store.fits("clicks") == ()


def test_term_with_an_unbounded_error_comes_back_as_not_identified(store):
    loose = TermKnowledge("emb", 0.0, float("inf"), identified=True)
    store.remember("clicks", 40.0, replace(FIT, terms=(loose,)))
    (back,) = store.fits("clicks")[-1].terms
    assert not back.identified
    assert back.std_error > 1e300


def test_fits_are_kept_in_order_and_the_last_is_the_newest(store):
    for at_s in (50.0, 40.0, 45.0):
        store.remember("clicks", at_s, replace(FIT, at_s=at_s))
    assert [fit.at_s for fit in store.fits("clicks")] == [40.0, 45.0, 50.0]


def test_series_since_gives_what_ended_later(store):
    for minute in range(1, 6):
        store.remember("clicks", 60.0 * minute, replace(ROW, at_s=60.0 * minute))
    assert [row.at_s for row in store.series("clicks", since_s=180.0)] == [240.0, 300.0]


@pytest.mark.more
def test_compacted_series_has_its_totals_and_does_not_grow_when_the_master_writes_again(store):
    rows = [replace(ROW, at_s=60.0 * i, samples_per_s=100.0 + i) for i in range(1, 61)]
    for row in rows:
        store.remember("clicks", row.at_s, row)
    assert store.compact(3600.0, [Thinning(0, 600)]) == 54
    merged = store.series("clicks")
    for row in rows:
        store.remember("clicks", row.at_s, row)
    assert store.series("clicks") == merged
    assert sum(r.samples_per_s * r.span_s for r in merged) == pytest.approx(
        sum(r.samples_per_s * r.span_s for r in rows)
    )
    assert store.compact(3600.0, [Thinning(0, 600)]) == 0


def test_short_last_row_and_rows_of_uneven_spans_are_all_kept(store):
    rows = [
        replace(ROW, at_s=60.0),
        replace(ROW, at_s=121.3, span_s=61.3),
        replace(ROW, at_s=130.0, span_s=8.7),
    ]
    for row in rows:
        store.remember("clicks", row.at_s, row)
    assert store.series("clicks") == tuple(rows)


def test_compacting_keeps_the_newest_of_old_fits_and_all_young_ones(store):
    for at_s in (10.0, 20.0, 900.0, 950.0):
        store.remember("clicks", at_s, replace(FIT, at_s=at_s))
    store.compact(1000.0, [Thinning(500, 60)])
    assert [fit.at_s for fit in store.fits("clicks")] == [900.0, 950.0]
    store.compact(9000.0, [Thinning(500, 60)])
    assert [fit.at_s for fit in store.fits("clicks")] == [950.0]


def test_compacting_needs_a_level(store):
    with pytest.raises(InvalidValueError, match="at least one level"):
        store.compact(1.0, [])


def test_a_deleted_run_leaves_nothing_and_the_others_alone(store):
    store.remember("clicks", 50.0, SPEC)
    begun = PhaseChanged(51.0, JobPhase.TRAINING)
    for record in (PROPOSAL, DECISION, MITIGATION, OUTCOME, begun, TRAITS, FIT, ROW):
        store.remember("clicks", 52.0, record)
    newest, oldest = (run.run for run in store.jobs())
    assert store.delete("clicks", run=newest) == 1
    assert [run.run for run in store.jobs()] == [oldest]
    assert store.series("clicks", run=newest) == store.fits("clicks", run=newest) == ()
    assert store.mitigations("clicks", run=newest) == ()
    assert store.delete("clicks") == 1
    assert store.jobs() == ()
    with pytest.raises(NotFoundError, match="clicks"):
        store.delete("clicks")


def test_scores_are_by_job_and_over_all(store):
    missed = replace(OUTCOME, decision="d2", measured_samples_per_s=200.0)
    blind = replace(OUTCOME, decision="d3", predicted=None)
    for outcome in (OUTCOME, missed, blind):
        store.remember("clicks", 30.0, outcome)
    store.remember("views", 40.0, replace(SPEC, name="views", owner="bob"))
    store.remember("views", 50.0, OUTCOME)
    board = store.scores()
    assert [(job, s.n_outcome, s.n_predicted, s.inside) for job, s in board.jobs] == [
        ("clicks", 3, 2, 0.5),
        ("views", 1, 1, 1.0),
    ]
    assert board.total.median_error == pytest.approx(1 - 100 / 110)
    assert [job for job, _ in store.scores(owner="bob").jobs] == ["views"]
    assert store.scores(since_s=1e9).total.inside is None


# the reading side of warm start


def _finish(store, *, job="clicks", at_s=100.0, phase=JobPhase.SUCCEEDED):
    store.remember(job, 11.0, replace(TRAITS, name=job))
    store.remember(job, at_s, PhaseChanged(at_s, phase))


def test_finished_job_is_an_example_with_its_first_and_final_plan_and_newest_fit(store):
    for record in (DECISION, OUTCOME, FIT, replace(FIT, at_s=60.0, log_error=0.02)):
        store.remember("clicks", 30.0, record)
    _finish(store)
    assert store.past_jobs() == (PastJob(TRAITS, PLAN, TARGET, replace(FIT, at_s=60.0, log_error=0.02)),)


def test_the_series_of_examples_are_those_of_their_own_runs_oldest_first(store):
    rows = [SeriesRow(60.0 * i, 60.0, 100.0 * i, 2, 1, 300.0, 200.0) for i in (1, 2)]
    for row in rows:
        store.remember("clicks", row.at_s, row)
    assert store.past_series() == ()
    _finish(store, at_s=200.0)
    ((job, series),) = store.past_series()
    assert (job,) == store.past_jobs()
    assert series == tuple(rows)


def test_failed_running_and_traitless_jobs_are_no_examples(store):
    store.remember("clicks", 90.0, PhaseChanged(90.0, JobPhase.SUCCEEDED))
    assert store.past_jobs() == ()
    store.remember("other", 10.0, replace(SPEC, name="other"))
    store.remember("other", 11.0, TRAITS)
    assert store.past_jobs() == ()
    store.remember("other", 90.0, PhaseChanged(90.0, JobPhase.FAILED))
    assert store.past_jobs() == ()


def test_newest_examples_come_first_up_to_the_limit(store):
    _finish(store, at_s=100.0)
    for i, owner in enumerate(("bob", "ada", "bob")):
        store.remember(f"j{i}", 10.0, replace(SPEC, name=f"j{i}", owner=owner))
        _finish(store, job=f"j{i}", at_s=200.0 + i)
    assert [p.traits.name for p in store.past_jobs()] == ["j2", "j1", "j0", "clicks"]
    assert [p.traits.name for p in store.past_jobs(limit=2)] == ["j2", "j1"]
    with pytest.raises(InvalidValueError, match="limit"):
        store.past_jobs(limit=0)


def test_run_that_ended_twice_is_one_example(store):
    _finish(store, at_s=100.0)
    _finish(store, at_s=101.0)
    assert len(store.past_jobs()) == 1


OTHER = ResourcePlan(RolePlan(3, 0.5, 1024), RolePlan(2, 0.25, 512))


def test_applied_proposal_without_a_measurement_is_final_and_a_failed_one_is_not(store):
    applied = replace(PROPOSAL, id="p2", status=ProposalStatus.APPLIED, closed_at_s=80.0)
    failed = replace(PROPOSAL, id="p3", status=ProposalStatus.FAILED, closed_at_s=90.0)
    failed = replace(failed, candidate=replace(CANDIDATE, plan=OTHER))
    store.remember("clicks", 80.0, failed)
    _finish(store)
    assert store.past_jobs()[0].final == PLAN
    store.remember("clicks", 80.0, applied)
    assert store.past_jobs()[0].final == TARGET


def test_overridden_proposal_counts_with_the_plan_that_the_user_gave(store):
    applied = replace(PROPOSAL, status=ProposalStatus.APPLIED, closed_at_s=80.0)
    given = Decision(Verdict.OVERRIDE, "ada", 70.0, proposal="p1", plan=OTHER, id="d1")
    for record in (applied, given):
        store.remember("clicks", 80.0, record)
    _finish(store)
    assert store.past_jobs()[0].final == OTHER


def test_plan_ordered_by_hand_is_final_when_the_series_ends_on_it(store):
    store.remember("clicks", 70.0, Decision(Verdict.SCALE, "ada", 70.0, plan=OTHER, id="d1"))
    _finish(store)
    store.remember("clicks", 80.0, replace(ROW, at_s=80.0, workers=1, ps=1))
    assert store.past_jobs()[0].final == PLAN
    store.remember("clicks", 140.0, replace(ROW, at_s=140.0, workers=3, ps=2))
    assert store.past_jobs()[0].final == OTHER


def test_an_undo_is_kept_with_what_it_takes_back(store):
    undone = Decision(Verdict.SCALE, "ada", 70.0, plan=OTHER, id="d2", undoes="d1")
    store.remember("clicks", 70.0, undone)
    assert store.decisions("clicks")[-1] == undone


def test_example_that_cannot_be_read_is_left_out_and_named(store, url, caplog):
    _finish(store)
    store.remember("spoilt", 10.0, replace(SPEC, name="spoilt"))
    _finish(store, job="spoilt", at_s=200.0)
    engine = create_engine(make_url(url.replace("postgresql:", "postgresql+psycopg:")))
    with engine.begin() as connection:
        connection.execute(text("update runs set spec = '{}' where job = 'spoilt'"))
    engine.dispose()
    assert [p.traits.name for p in store.past_jobs()] == ["clicks"]
    assert "spoilt" in caplog.text
