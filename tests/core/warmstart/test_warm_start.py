"""Laws of the warm start."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.structs.job.tuning import StartMethod
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, PastJob, TermKnowledge
from dlrover_nb.core.warmstart import WarmStartSettings, accuracy, into_space, similarity, warm_start
from dlrover_nb.core.warmstart.similarity import NUMBERS, WEIGHTS, similarities
from dlrover_nb.core.warmstart.smoothing import exponential

PAPER = WarmStartSettings(method=StartMethod.PAPER)
FAMILY = JobTraits(
    model="wide_deep",
    n_table=26,
    embedding_dim=416,
    n_table_row=10_000_000,
    dense_bytes=4_000_000,
    batch_size=512,
    n_sample=500_000_000,
    owner="ads",
    name="ctr-daily-17",
    code_hash="abc",
    data_hash="rows",
)


def plan(w, p, worker_cpu=8.0, ps_cpu=4.0):
    return ResourcePlan(worker=RolePlan(w, worker_cpu, 16384), ps=RolePlan(p, ps_cpu, 32768))


def past(w, p, fit=None, **changes):
    return PastJob(replace(FAMILY, **changes), plan(1, 1), plan(w, p), fit)


traits = st.builds(
    JobTraits,
    model=st.sampled_from(["wide_deep", "dcn"]),
    n_table=st.integers(0, 100),
    embedding_dim=st.integers(0, 4096),
    n_table_row=st.integers(0, 10**9),
    dense_bytes=st.integers(0, 10**9),
    batch_size=st.integers(1, 10**5),
    n_sample=st.integers(0, 10**12),
    owner=st.sampled_from(["", "ads", "feed"]),
    name=st.sampled_from(["", "ctr-1", "ctr-2", "cvr-main", "2024"]),
    code_hash=st.sampled_from(["", "abc", "def"]),
    data_hash=st.sampled_from(["", "rows"]),
)
plans = st.builds(plan, st.integers(1, 200), st.integers(1, 100), st.floats(0.1, 64.0), st.floats(0.1, 64.0))
jobs = st.builds(PastJob, traits, plans, plans)


@given(traits, traits)
def test_similarity_is_symmetric_in_its_range_and_whole_for_a_job_and_itself(a, b):
    found = similarity(a, b)
    assert 0 <= found.total <= 1 + 1e-12
    assert found.total == pytest.approx(similarity(b, a).total)
    if a.code_hash and a.data_hash:
        assert similarity(a, a).total == pytest.approx(1.0)
    assert {name for name, _ in found.features} == set(WEIGHTS)


@given(st.lists(traits, min_size=1, max_size=8))
def test_similarities_are_a_kernel(many):
    matrix = similarities(many, many)
    assert np.linalg.eigvalsh(matrix).min() >= -1e-9


@for_each("name", NUMBERS)
def test_the_farther_a_number_the_less_alike(name):
    start = getattr(FAMILY, name)
    ladder = [similarity(FAMILY, replace(FAMILY, **{name: start * factor})).total for factor in (1, 2, 4, 8)]
    assert ladder == sorted(ladder, reverse=True)
    assert len(set(ladder)) == 4


def test_run_numbers_in_names_do_not_count_and_an_untold_owner_is_no_stranger():
    assert similarity(FAMILY, replace(FAMILY, name="ctr-daily-99")).total == pytest.approx(1.0)
    told, untold, other = (similarity(FAMILY, replace(FAMILY, owner=o)).total for o in ("ads", "", "feed"))
    assert other < untold < told


@given(traits)
def test_a_stranger_with_the_same_kind_of_model_is_not_similar(known):
    """Another user's job on other data, in another size; its code the same (built in), or not known."""
    known = replace(known, owner="us", name="ours", data_hash="rows")
    for code in ("", known.code_hash):
        stranger = replace(known, owner="them", name="else", data_hash="others", code_hash=code)
        stranger = replace(stranger, n_sample=8 * known.n_sample + 9, n_table_row=8 * known.n_table_row + 9)
        assert similarity(known, stranger).total < WarmStartSettings().least_similarity


def test_jobs_of_which_little_is_known_are_not_similar_by_that():
    small = JobTraits("wide_deep", 3, 12, 1000, 4000, 64, 10_000)
    giant = JobTraits("wide_deep", 40, 1280, 10**9, 10**7, 1024, 10**10)
    assert warm_start(small, [PastJob(giant, plan(1, 1), plan(200, 50))]) is None


def test_careless_names_and_owners_hide_no_relative():
    renamed = past(12, 4, owner="root", name="untitled", n_sample=2 * FAMILY.n_sample)
    assert warm_start(FAMILY, [renamed]).plan == plan(12, 4)


@settings(max_examples=60, deadline=None)
@given(traits, st.lists(jobs, max_size=14), st.sampled_from(StartMethod), st.integers(1, 6))
def test_a_start_lies_in_the_space_and_keeps_the_pins(new, history, method, n_machine):
    bounds = PlanBounds(12, 6, (1.0, 2.0, 4.0), (1.0, 2.0), quota_cpu=24.0)
    capacity = Capacity((NodeShape(16.0, 256 * 1024, n_machine),))
    pins = Pins(ps=2, worker_memory_mib=2048)
    s = WarmStartSettings(method=method, least_similarity=0.0)
    found = warm_start(new, history, into=into_space(bounds, capacity, pins), settings=s)
    if found is None:
        assert not history or not fits(capacity, plan_needs(pins.applied(plan(1, 2, 1.0, 1.0))))
        return
    assert pins.allows(found.plan)
    assert found.plan.worker.count <= 12
    assert found.plan.worker.cpu in bounds.worker_cpus
    assert found.plan.ps.cpu in bounds.ps_cpus
    assert found.plan.total_cpu <= 24.0
    assert fits(capacity, plan_needs(found.plan))


@settings(max_examples=60, deadline=None)
@given(traits, st.lists(jobs, min_size=1, max_size=14), st.sampled_from(StartMethod))
def test_no_number_of_a_start_is_far_from_all_that_ever_ran(new, history, method):
    s = WarmStartSettings(method=method, least_similarity=0.0)
    found = warm_start(new, history, settings=s).plan
    for role in ("worker", "ps"):
        seen = [getattr(job.final, role).count for job in history]
        assert min(seen) / 2 - 0.5 <= getattr(found, role).count <= 2 * max(seen) + 0.5


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 12), st.sampled_from(StartMethod))
def test_where_all_similar_jobs_agree_the_start_is_what_they_ran_on(w, p, n_job, method):
    history = [past(w, p, n_sample=FAMILY.n_sample + i) for i in range(n_job)]
    assert warm_start(FAMILY, history, settings=WarmStartSettings(method=method)).plan == plan(w, p)


def test_no_history_and_a_history_of_strangers_give_no_start():
    stranger = past(9, 9, model="dcn", owner="feed", code_hash="x", name="cvr", n_sample=10, batch_size=1)
    assert warm_start(FAMILY, []) is None
    assert warm_start(FAMILY, [stranger]) is None


def test_algorithm_1_smooths_least_similar_first():
    rows = np.array([[10.0], [20.0], [40.0]])
    assert exponential(rows, 0.5)[0] == 0.5 * 40 + 0.5 * (0.5 * 20 + 0.5 * 10)  # 27.5, by hand
    near, far = past(40, 4), past(10, 4, n_sample=4 * FAMILY.n_sample)
    found = warm_start(FAMILY, [near, far], settings=replace(PAPER, mu=0.8))
    assert found.plan.worker.count == round(0.8 * 40 + 0.2 * 10)
    assert [job for job, _ in found.similar] == [near, far]


def test_only_the_k_most_similar_jobs_speak_in_algorithm_1():
    near = [past(8, 4, n_sample=FAMILY.n_sample + i) for i in range(3)]
    far = [past(50, 20, batch_size=64, embedding_dim=64) for _ in range(10)]
    found = warm_start(FAMILY, far + near, settings=replace(PAPER, k=3))
    assert found.plan == plan(8, 4)


def test_a_larger_job_gets_more_workers_than_any_relative_where_they_grew_with_size():
    history = [
        past(round(4 * 2 ** (i / 4)), 2, n_sample=int(FAMILY.n_sample * 2 ** (i / 4))) for i in range(12)
    ]
    new = replace(FAMILY, n_sample=int(FAMILY.n_sample * 2**3.3))
    ours = warm_start(new, history).plan.worker.count
    paper = warm_start(new, history, settings=PAPER).plan.worker.count
    truth = 4 * 2**3.3
    assert abs(ours - truth) < abs(paper - truth)
    assert accuracy(ours, truth) > 0.9


def test_one_odd_job_does_not_bend_the_start():
    history = [past(20, 6, n_sample=int(FAMILY.n_sample * (1 + i / 20))) for i in range(12)]
    odd = PastJob(history[5].traits, plan(1, 1), plan(60, 18))
    found = warm_start(FAMILY, [*history[:5], odd, *history[6:]]).plan
    assert abs(found.worker.count - 20) <= 1
    assert abs(found.ps.count - 6) <= 1


def fit(value, *, std_error=0.1, identified=True, terms=("gradients", "constant"), at_s=1.0):
    knowledge = tuple(TermKnowledge(term, value, std_error, identified) for term in terms)
    return FitSummary(at_s, knowledge, 0.04, 3, 50, 4e6, 416.0, 512)


def test_a_prior_is_as_wide_as_its_fits_disagree():
    sure = warm_start(FAMILY, [past(4, 2, fit(1.0)), past(4, 2, fit(1.0))], settings=PAPER).prior
    torn = warm_start(FAMILY, [past(4, 2, fit(0.5)), past(4, 2, fit(1.5))], settings=PAPER).prior
    assert [(t.term, t.value, t.identified) for t in sure.terms] == [
        ("gradients", 1.0, True),
        ("constant", 1.0, True),
    ]
    assert sure.terms[0].std_error == pytest.approx(0.1)
    assert torn.terms[0].value == pytest.approx(1.0)
    assert torn.terms[0].std_error == pytest.approx(math.hypot(0.1, 0.5))


def test_a_term_that_a_fit_did_not_use_counts_as_zero_there():
    fits_ = [fit(1.0), fit(1.0), fit(1.0), fit(1.0, terms=("gradients", "contention"))]
    prior = warm_start(FAMILY, [past(4, 2, f) for f in fits_], settings=PAPER).prior
    assert [(t.term, round(t.value, 9), t.identified) for t in prior.terms] == [
        ("gradients", 1.0, True),
        ("constant", 0.75, True),
        ("contention", 0.25, False),
    ]
    assert prior.n_sample == 200


def test_fits_that_know_nothing_are_no_prior():
    assert warm_start(FAMILY, [past(4, 2)], settings=PAPER).prior is None
    assert warm_start(FAMILY, [past(4, 2, fit(0.0))], settings=PAPER).prior is None


def test_a_prior_is_one_that_the_model_takes():
    prior = warm_start(FAMILY, [past(4, 2, fit(1.0)), past(8, 2, fit(2.0))]).prior
    model = ThroughputModel(dense_bytes=4e6, embedding_dim=416, prior=prior).fit([])
    assert model.predict_plan(plan(4, 2), 512).samples_per_s > 0


def test_the_sentence_names_the_job_that_it_starts_like(words):
    found = warm_start(FAMILY, [past(12, 4)])
    assert found.why == words


def test_the_sentence_tells_what_differs():
    found = warm_start(
        replace(FAMILY, n_sample=FAMILY.n_sample * 3), [past(12, 4, owner="feed", code_hash="")]
    )
    assert ": code unknown, 3 times the samples, another owner), which" in found.why


def test_nothing_that_fits_is_no_start():
    tiny = into_space(PlanBounds(4, 2, (0.5, 1.0), (0.5,)), Capacity((NodeShape(0.1, 100, 1),)))
    assert warm_start(FAMILY, [past(4, 2)], into=tiny) is None


@for_each("changes", [{"k": 0}, {"mu": 0.0}, {"mu": 1.0}, {"least_similarity": 1.0}])
def test_settings_that_cannot_be_are_refused(changes):
    with pytest.raises(InvalidValueError):
        WarmStartSettings(**changes)


@pytest.mark.parametrize("weights", [{"model": -1.0}, {"model": 0.0}, {"colour": 1.0}])
def test_weights_that_cannot_be_are_refused(weights):
    with pytest.raises(InvalidValueError, match="weights must be"):
        warm_start(FAMILY, [past(4, 2)], settings=WarmStartSettings(weights=weights))


def test_accuracy_is_the_papers():
    assert accuracy(9, 10) == pytest.approx(0.9)
    assert accuracy(30, 10) == pytest.approx(-1.0)
    with pytest.raises(InvalidValueError):
        accuracy(1, 0)
