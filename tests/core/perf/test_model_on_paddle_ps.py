"""Bands against CPU parameter servers that others measured, one of which is slower on 32 nodes than on 16."""

from __future__ import annotations

import csv
from collections import defaultdict

from suite.missing import shared

from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

BATCH = 128  # the same within a series, so that any will do


def series() -> dict[tuple[str, ...], list[ProfileSample]]:
    """Return runs of one program that differ in workers or PS alone, smallest first; four or more each."""
    rows_of: dict[tuple[str, ...], list[ProfileSample]] = defaultdict(list)
    with shared("data", "paddle_ps", "paddle_ps_scaling.csv").open() as file:
        for row in csv.DictReader(file):
            ps, workers = (int((row[name] or "0").split()[0]) for name in ("n_ps", "n_worker"))
            if not ps or not row["throughput"] or row["unit"] == "words/s":
                continue
            plan = ResourcePlan(RolePlan(workers, 1, 1024), RolePlan(ps, 1, 1024))
            which = "nodes" if "nodes" in row["n_ps"] else f"{ps} PS" if ps == 20 else f"{workers} workers"
            key = (row["job"], row["system"], row["unit"], row["batch"], which)
            rows_of[key].append(ProfileSample(0.0, 2.0, plan, BATCH, float(row["throughput"])))
    return {key: rows for key, rows in rows_of.items() if len({row.plan for row in rows}) >= 3}


def fit(samples: list[ProfileSample]) -> ThroughputModel:
    return ThroughputModel(dense_bytes=5e8, embedding_dim=16).fit(samples)


def is_inside(model: ThroughputModel, sample: ProfileSample) -> bool:
    predicted = model.predict_plan(sample.plan, BATCH)
    return predicted.low <= sample.samples_per_s <= predicted.high


def test_a_peak_lies_in_the_band_before_it_is_reached():
    (rows,) = [rows for key, rows in series().items() if key[1] == "tensorflow 1.12"]
    for n_seen in (1, 2):  # 4 and 8 nodes; the peak is at 16
        model = fit(rows[:n_seen])
        assert all(is_inside(model, row) for row in rows[n_seen:])
        assert model.predict_plan(rows[-1].plan, BATCH).extrapolates


def test_bands_hold_the_sizes_that_come_next():
    inside = [
        is_inside(fit(rows[:n_seen]), row)
        for rows in series().values()
        for n_seen in range(1, len(rows))
        for row in rows[n_seen:]
    ]
    assert len(inside) > 30
    assert 0.85 <= sum(inside) / len(inside) <= 0.98
