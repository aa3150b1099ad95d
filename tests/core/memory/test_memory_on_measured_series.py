"""The forecast against real series (Criteo ids, Sock Shop containers, Alibaba pods), where they are at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from suite.missing import shared

from dlrover_nb.core.memory import forecast

if TYPE_CHECKING:
    from pathlib import Path

IDS_80K = 200_587  # given with the data: the rows after the 60,000th are not at hand


def data(name: str) -> Path:
    return shared("data", *name.split("/"))


@pytest.fixture(scope="module")
def growth():
    return pd.read_csv(data("criteo/embedding_id_growth_first20k.csv"))


@pytest.fixture(scope="module")
def containers():
    return pd.read_parquet(data("sockshop_mem/container_metrics.parquet"))


def test_criteo_ids_at_80k_are_foreseen_from_20k(growth):
    samples = np.concatenate([[0.0], growth["samples"]])
    total = np.concatenate([[0.0], growth["total_ids"]])
    found = forecast(samples, total, limit_mib=np.inf, end=80_000, origin=0.0).at_end
    assert found.mid == pytest.approx(IDS_80K, rel=0.05)


@pytest.mark.more
def test_no_service_alarms_while_nothing_is_wrong(containers):
    normal = containers[(containers["phase"] == "normal") & (containers["run"] == 1)]
    for _, part in normal.groupby(["fault_service", "fault", "service"]):
        rows = part.drop_duplicates("time").sort_values("time")
        t, mib = rows["time"].to_numpy(float), rows["mem_mib"].to_numpy(float)
        for n in (20, 60, 150, len(t)):
            assert forecast(t[:n], mib[:n], limit_mib=1000.0, end=t[n - 1] + 300).oom_probability < 0.2


@pytest.mark.parametrize("service", ["carts", "orders"])
@pytest.mark.parametrize("run", [1, 2, 3])
def test_a_hog_alarms_within_a_minute_and_a_half(containers, service, run):
    keys = {"fault_service": service, "fault": "mem", "run": run, "service": service, "phase": "anomalous"}
    rows = containers.loc[(containers[list(keys)] == pd.Series(keys)).all(axis=1)]
    t, mib = rows["time"].to_numpy(float), rows["mem_mib"].to_numpy(float)
    n = int(np.searchsorted(t, t[0] + 90))
    assert forecast(t[:n], mib[:n], limit_mib=1000.0, end=t[n - 1] + 300).oom_probability > 0.2


@pytest.mark.release
def test_pods_are_forecast_no_worse_than_as_now():
    rows = pd.read_parquet(data("alibaba/genai_pod_mem_util.parquet"))
    ours: dict[float, list[float]] = {300.0: [], 900.0: [], 3600.0: []}
    now: dict[float, list[float]] = {ahead_s: [] for ahead_s in ours}
    for _, part in rows.groupby("container"):
        t = part["t_s"].to_numpy(float)
        mib = 32_768 * np.maximum(part["mem_util"].to_numpy(float), 0)
        for i in range(120, int(np.searchsorted(t, t[-1] - 3600)), 67):
            found = forecast(t[i - 120 : i], mib[i - 120 : i], limit_mib=32_768, end=t[i - 1] + 3600)
            for ahead_s, errors in ours.items():
                truth = mib[np.searchsorted(t, t[i - 1] + ahead_s)]
                at, mid = np.asarray(found.fan).T[:2] if found.known else ([0.0], [found.now])
                errors.append(abs(float(np.interp(ahead_s, at, mid)) - truth))
                now[ahead_s].append(abs(mib[i - 1] - truth))
    assert len(ours[300.0]) > 1000
    for ahead_s, errors in ours.items():
        assert np.mean(errors) <= np.mean(now[ahead_s])
