"""Eqs. 1-6 against the measured speeds of real PS jobs (DL2 testbed), where those data are at hand."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.samples import ProfileSample

DATA = Path(__file__).parents[4] / "shared" / "data" / "dl2_ps_speed" / "ps_worker_speed.csv"
UNIT = 1000  # thousandths of samples, so that m = global batch / w is an integer


def jobs() -> dict[str, tuple[float, list[ProfileSample]]]:
    if not DATA.exists():
        if os.environ.get("CI"):
            pytest.fail(f"the measured jobs must be there in CI, not found: {DATA}")
        pytest.skip("the measured speeds of the DL2 testbed are not on this machine")
    found: dict[str, tuple[float, list[ProfileSample]]] = {}
    with DATA.open() as file:
        for row in csv.DictReader(file):
            if row["failed"] == "1":
                continue
            w, p = int(row["num_worker"]), int(row["num_ps"])
            sample = ProfileSample(
                at_s=0.0,
                window_s=2.0,
                plan=ResourcePlan(RolePlan(w, 2, 1024), RolePlan(p, 2, 1024)),
                batch_size=round(UNIT * float(row["global_batch"]) / w),
                samples_per_s=UNIT * float(row["speed_total"]),
            )
            found.setdefault(row["model"], (float(row["model_size_mb"]) * 1e6, []))[1].append(sample)
    return found


def split(samples: list[ProfileSample]) -> tuple[list[ProfileSample], list[ProfileSample]]:
    order = np.random.default_rng(0).permutation(len(samples))
    n = int(0.7 * len(samples))
    return [samples[i] for i in order[:n]], [samples[i] for i in order[n:]]


def test_unseen_plans_of_real_jobs_are_predicted_as_well_as_the_form_allows(record_property):
    errors, inside = [], []
    for dense_bytes, samples in jobs().values():
        seen, unseen = split(samples)
        model = ThroughputModel(dense_bytes=dense_bytes, embedding_dim=1).fit(seen)
        predicted = [model.predict_plan(s.plan, s.batch_size) for s in unseen]
        off = [np.log(p.samples_per_s / s.samples_per_s) for p, s in zip(predicted, unseen, strict=True)]
        errors.append(float(np.sqrt(np.mean(np.square(off)))))
        inside += [p.low <= s.samples_per_s <= p.high for p, s in zip(predicted, unseen, strict=True)]
    record_property("rmsle_70_30", np.mean(errors))
    assert np.mean(errors) < 0.145  # Eqs. 1-6 as written reach .138 with other splits
    assert np.mean(inside) > 0.75  # the form itself is biased on these jobs: it lacks a term in w


def test_bands_hold_for_real_plans_larger_than_those_tried():
    inside = []
    for dense_bytes, samples in jobs().values():
        small = [s for s in samples if max(s.plan.worker.count, s.plan.ps.count) <= 6]
        model = ThroughputModel(dense_bytes=dense_bytes, embedding_dim=1).fit(small)
        for sample in samples:
            if sample not in small:
                band = model.predict_plan(sample.plan, sample.batch_size)
                inside.append(band.low <= sample.samples_per_s <= band.high)
    assert np.mean(inside) > 0.85


def test_cpu_that_never_varied_leaves_update_and_sync_apart_unidentified():
    for dense_bytes, samples in jobs().values():
        model = ThroughputModel(dense_bytes=dense_bytes, embedding_dim=1).fit(samples)
        known = {c.term: c.identified for c in model.report_.coefficients}
        assert not known["updates"]
        assert not known["sync"]
