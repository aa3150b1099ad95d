"""Curves of quality are kept whole, by job and by moment, and one that cannot be read hides no other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.history.history_records import TRAITS

from dlrover_nb.core.history.database import Database
from dlrover_nb.core.history.stores.quality_curves import CurveStore
from dlrover_nb.core.history.tables import quality_curves
from dlrover_nb.core.structs.training.quality import CurveOrigin, QualityCurve, QualityPoint
from dlrover_nb.core.structs.views.past_jobs import JobCurve

POINTS = (
    QualityPoint(1, 0.001, -0.0004, 0.0002, 0.0001, 5),
    QualityPoint(7, 0.004, -0.002, 0.0003, 0.0002, 5),
)
CURVE = QualityCurve("asp", CurveOrigin.REHEARSAL, 512, 50_000, 1, 0.02, "adagrad", 0.21, 0.76, POINTS)
OF_CLICKS = JobCurve("clicks", 100.0, TRAITS, CURVE)


@pytest.fixture
def store(url):
    made = CurveStore(url)
    yield made
    made.close()


def test_a_curve_is_read_as_it_was_written(store):
    store.add(OF_CLICKS)
    assert store.curves_of("clicks") == (OF_CLICKS,)
    assert store.curves() == (OF_CLICKS,)
    assert store.curves_of("other") == ()


def test_curves_of_a_job_come_newest_first_and_once_for_each_way_and_moment(store):
    later, of_gba = replace(OF_CLICKS, at_s=200.0), replace(OF_CLICKS, curve=replace(CURVE, way="gba"))
    for each in (OF_CLICKS, later, of_gba, OF_CLICKS):
        store.add(each)
    assert store.curves_of("clicks") == (later, OF_CLICKS, of_gba)
    assert store.curves_of("clicks", limit=1) == (later,)


def test_curves_of_another_optimizer_are_left_out(store):
    of_adam = replace(OF_CLICKS, job="adam", curve=replace(CURVE, optimizer="adam"))
    store.add(OF_CLICKS)
    store.add(of_adam)
    assert store.curves(optimizer="adam") == (of_adam,)
    assert {*store.curves()} == {OF_CLICKS, of_adam}


def test_a_job_can_be_forgotten(store):
    store.add(OF_CLICKS)
    assert store.drop("clicks") == 1
    assert store.curves_of("clicks") == ()


def test_a_damaged_record_hides_no_other(store, url, caplog):
    store.add(OF_CLICKS)
    store.add(replace(OF_CLICKS, at_s=200.0))
    database = Database(url)
    with database.writing() as connection:
        connection.execute(quality_curves.update().where(quality_curves.c.at_s == 200.0).values(record="{}"))
    database.close()
    assert store.curves_of("clicks") == (OF_CLICKS,)
    assert "not used" in caplog.text
