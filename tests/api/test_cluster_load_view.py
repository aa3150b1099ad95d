"""`Cluster.load`: the load of this machine and of simulated ones, with the samples that were kept."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

import dlrover_nb
from dlrover_nb.core.client.load_sampler import recent_points, sample_load
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.history.stores.load_series import ALL
from dlrover_nb.core.history.stores.loads import LoadStore

AT_S = 1_800_000_000.0


@pytest.fixture
def url(tmp_path, monkeypatch):
    """Return the URL of a history that is not there yet, which the environment names."""
    url = f"sqlite:///{tmp_path}/history.db"
    monkeypatch.setenv("DLROVER_NB_HISTORY", url)
    return url


@pytest.fixture
def simulated():
    cluster = dlrover_nb.connect("sim", machines=2)
    yield cluster
    cluster.shutdown(force=True)


def test_looking_writes_nothing_and_recording_writes_one_sample(url, tmp_path):
    cluster = dlrover_nb.connect("local")
    seen = cluster.load()
    assert seen.points == ()
    assert not (tmp_path / "history.db").exists()
    assert "show --machines --record" in str(seen)
    kept = cluster.load(record=True)
    (point,) = kept.points
    assert (point.machine, point.has, point.used) == (ALL, kept.load.has, kept.load.used)
    with closing(LoadStore(url)) as store:
        assert len(store.between(kept.load.place, 0, 2 * AT_S)) == 2


def test_samples_become_a_chart_a_line_of_text_and_data(url):
    cluster = dlrover_nb.connect("local")
    load = sample_load(cluster.core, AT_S, url)
    sample_load(cluster.core, AT_S + 60, url)
    points = recent_points(load, AT_S, AT_S + 60, url)
    assert [point.at_s for point in points] == [AT_S, AT_S + 60]
    shown = type(cluster.load())("here", load, points)
    assert "<svg" in shown.view().html()
    assert "Cores over time" in str(shown)
    assert any(bar in str(shown) for bar in "▁▂▃▄▅▆▇█")
    told = json.loads(shown.tables().json())
    assert told["cpu"] == load.has.cpu
    assert [row["machine"] for row in told["machines"]] == [load.machines[0].name]
    assert [row["at_s"] for row in told["series"]] == [AT_S, AT_S + 60]


def test_nothing_of_a_simulation_is_written(url, tmp_path, simulated):
    shown = simulated.load(record=True)
    assert len(shown.load.machines) == 2
    assert not (tmp_path / "history.db").exists()
    assert "--record" not in str(shown)


def test_hours_are_above_zero(simulated, error_words):
    with error_words(InvalidValueError):
        simulated.load(hours=0)
