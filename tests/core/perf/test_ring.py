"""The form of T_iter for ring all-reduce: its laws, and real jobs where those data are at hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite.missing import shared

from dlrover_nb.core.master.external.job.step_shares import even
from dlrover_nb.core.perf.forms import FAMILIES, RING, Exchange
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.perf.terms import RING_TERMS, TERMS, all_columns, slowest_rows
from dlrover_nb.core.structs.job.job import JobSpec

M, BATCH = 1e6, 256.0
PLANS = np.array([(w, 1, cpu, 0.5) for w in (1, 2, 3, 4, 8, 16) for cpu in (0.5, 1.0)], dtype=float)
COEFFICIENTS = st.fixed_dictionaries({term: st.floats(0.05, 1.0) for term in RING_TERMS})


def model(**more) -> ThroughputModel:
    return ThroughputModel(dense_bytes=M, embedding_dim=1, exchange=Exchange.RING, **more)


def columns(axes, batch=BATCH, **more):
    return all_columns(axes, batch, dense_bytes=M, embedding_dim=1, **more)


def true_coefficients(shares) -> np.ndarray:
    """Coefficients of which each term takes so many parts of 20 ms at two workers of half a core."""
    at_two = columns(np.array([(2.0, 1.0, 0.5, 0.5)]))[0]
    found = np.zeros(len(TERMS))
    for term, share in shares.items():
        index = TERMS.index(term)
        found[index] = 0.02 * share / at_two[index]
    return found


def table(axes, iter_s, batch=BATCH) -> pd.DataFrame:
    frame = pd.DataFrame(axes, columns=["workers", "ps", "worker_cpu", "ps_cpu"])
    return frame.assign(batch_size=batch, samples_per_s=axes[:, 0] * batch / iter_s)


@settings(deadline=None, max_examples=20)
@given(COEFFICIENTS)
def test_parameters_are_recovered_from_measurements_without_noise(shares):
    true = true_coefficients(shares)
    fitted = model(n_draw=40).fit(table(PLANS, columns(PLANS) @ true))
    beyond = np.array([(w, 1.0, cpu, 0.5) for w in (6, 12, 24) for cpu in (0.5, 1.0)])
    told = beyond[:, 0] * BATCH / fitted.predict(beyond, BATCH).samples_per_s
    assert told == pytest.approx(columns(beyond) @ true, rel=0.03)
    own = next(each for each in fitted.forms_ if each.form is RING).coefficients
    parts = columns(PLANS[2:3])[0]
    assert parts * own == pytest.approx(parts * true, abs=0.05 * 0.02)


@given(st.integers(1, 64), st.integers(1, 64), st.floats(0.25, 8))
def test_communication_grows_with_workers_and_no_term_shrinks(one, other, cpu):
    few, many = sorted((one, other))
    rows = columns(np.array([(few, 1.0, cpu, 0.5), (many, 1.0, cpu, 0.5)], dtype=float))
    for term in (*RING_TERMS, "gather", "barrier"):
        index = TERMS.index(term)
        assert rows[0, index] <= rows[1, index]
    assert rows[1, TERMS.index("ring")] <= 2 * M  # however many workers: what one of them sends


def test_one_worker_alone_sends_nothing():
    alone = columns(np.array([(1.0, 1.0, 0.5, 0.5)]))[0]
    assert [alone[TERMS.index(term)] for term in ("ring", "hops", "gather")] == [0, 0, 0]


@given(st.integers(1, 40), st.integers(1, 4000), st.integers(1, 600))
def test_the_slowest_worker_has_the_largest_part_of_a_global_batch(n_worker, global_batch, mini_batch):
    spec = JobSpec("x", batch_size=mini_batch, global_batch=global_batch)
    parts = even(spec, [f"worker-{i}" for i in range(n_worker)])
    most = max(part.n_row for part in parts.values())
    told = slowest_rows(np.array([float(n_worker)]), global_batch / n_worker, mini_batch)
    assert told.tolist() == [most]


def test_uneven_mini_batches_cost_what_the_slowest_worker_computes():
    fitted = model(mini_batch=100)
    rows = fitted.columns(np.array([(2.0, 1.0, 1.0, 0.5), (3.0, 1.0, 1.0, 0.5)]), np.array([200.0, 400 / 3]))
    assert rows[:, TERMS.index("gradients")].tolist() == [200, 200]  # a third worker helps nobody with 4


def test_what_a_single_worker_cannot_tell_is_said_and_left_open(words):
    alone = PLANS[PLANS[:, 0] == 1]
    true = true_coefficients(dict.fromkeys(RING_TERMS, 0.25))
    fitted = model().fit(table(alone, columns(alone) @ true))
    known = {c.term: c.identified for c in fitted.report_.coefficients}
    assert known["gradients"]
    assert not known["ring"]
    assert not known["hops"]
    assert fitted.report_.note == words
    assert "PS" not in fitted.report_.note
    two = fitted.predict(np.array([(2.0, 1.0, 0.5, 0.5)]), BATCH)
    free, dear = 2 * BATCH / (columns(alone[:1]) @ true), BATCH / (columns(alone[:1]) @ true)
    assert two.low[0] < dear[0] * 1.2
    assert two.high[0] > free[0] * 0.9


def test_two_numbers_of_workers_tell_the_sum_of_ring_and_latency_alone(words):
    pair = PLANS[PLANS[:, 0] <= 2]
    true = true_coefficients(dict.fromkeys(RING_TERMS, 0.25))
    note = model().fit(table(pair, columns(pair) @ true)).report_.note
    assert note == words


def test_the_kinds_of_jobs_share_no_form():
    ring, ps = (set(FAMILIES[kind].forms) for kind in (Exchange.RING, Exchange.PS))
    assert not ring & ps
    assert all(form.terms[0] == "gradients" for form in ring)


def gpu_jobs() -> dict[str, pd.DataFrame]:
    gpus = shared("data", "pollux_adaptdl")
    few = pd.read_csv(gpus / "placements.csv.gz", dtype={"placement": str})
    few = few[few["placement"].map(set) == {"1"}]
    many = pd.read_csv(gpus / "scalability.csv")
    rows = pd.concat((few.assign(n=few["placement"].map(len)), many.assign(n=many["num_replicas"])))
    rows = rows[rows["num_nodes"].isna() | (rows["num_nodes"] == rows["n"])]
    found = {}
    for name, of_job in rows.groupby("model"):
        axes = np.column_stack((of_job["n"], np.ones((len(of_job), 3)))).astype(float)
        found[str(name)] = table(axes, of_job["step_time"].to_numpy(), of_job["local_bsz"].to_numpy(float))
    return found


@pytest.mark.parametrize("most", [3, 4])
def test_larger_rings_of_real_jobs_are_predicted_better_than_by_the_forms_for_ps(most, record_property):
    errors = {kind: [] for kind in Exchange}
    for samples in gpu_jobs().values():
        shown, hidden = samples[samples["workers"] <= most], samples[samples["workers"] > most]
        for kind in Exchange:
            fitted = ThroughputModel(dense_bytes=1, embedding_dim=1, exchange=kind).fit(shown)
            axes = hidden[["workers", "ps", "worker_cpu", "ps_cpu"]].to_numpy()
            told = fitted.predict(axes, hidden["batch_size"].to_numpy()).samples_per_s
            errors[kind].append(np.sqrt(np.mean(np.log(told / hidden["samples_per_s"]) ** 2)))
    ring, ps = (float(np.mean(errors[kind])) for kind in (Exchange.RING, Exchange.PS))
    record_property("rmsle", {"ring": ring, "ps": ps})
    assert ring < 0.25
    assert ring < ps / 2
