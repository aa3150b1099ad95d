"""Alerts in the database: one open of each job and kind, begun by one server, ended by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from dlrover_nb.core.history.stores.alerts import AlertStore
from dlrover_nb.core.structs.views.alerts import AboutJob, Alert, AlertKind

ABOUT = AboutJob("kubernetes://" + "long" * 60 + "/ads", "train")
ALERT = Alert(ABOUT, AlertKind.OOM, 100.0, "full in 3 min")
N_SERVER = 8


@pytest.fixture
def store(url):
    made = AlertStore(url)
    yield made
    made.close()


def test_an_alert_is_kept_as_it_is_until_its_end(store):
    made = store.begin(ALERT, 60.0)
    assert replace(made, id="") == ALERT
    assert store.open() == (made,)
    over = store.end(made, 150.0)
    assert over == replace(made, ended_at_s=150.0)
    assert store.open() == ()
    assert store.ended(10) == store.ended(10, job="train") == (over,)
    assert store.ended(10, job="other") == ()


def test_a_job_has_one_open_alert_of_a_kind(store):
    assert store.begin(ALERT, 60.0)
    assert store.begin(replace(ALERT, at_s=1e6, subject="p2"), 60.0) is None
    assert store.begin(replace(ALERT, kind=AlertKind.STALL), 60.0)
    assert store.begin(replace(ALERT, about=replace(ABOUT, cluster="ray")), 60.0)


def test_the_next_one_about_the_same_waits_for_the_cool_down(store):
    store.end(store.begin(ALERT, 60.0), 150.0)
    assert store.begin(replace(ALERT, at_s=209.0), 60.0) is None
    assert store.begin(replace(ALERT, at_s=209.0, subject="p3"), 60.0)
    store.end(store.open()[0], 210.0)
    assert store.begin(replace(ALERT, at_s=271.0, subject="p3"), 60.0)


def test_of_many_servers_one_begins_an_alert_and_one_ends_it(url):
    stores = [AlertStore(url) for _ in range(N_SERVER)]
    with ThreadPoolExecutor(N_SERVER) as pool:
        begun = [made for made in pool.map(lambda store: store.begin(ALERT, 60.0), stores) if made]
        assert len(begun) == 1
        ended = [over for over in pool.map(lambda store: store.end(begun[0], 9.0), stores) if over]
        assert len(ended) == 1
    for store in stores:
        store.close()
