"""Costs of mini-batches by program and kind of device: the newest one, whichever job writes last."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.history.history_records import SPEC, TRAITS

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.history.database import Database
from dlrover_nb.core.history.stores.batch_costs import BatchCostStore, add
from dlrover_nb.core.history.tables import batch_costs
from dlrover_nb.core.structs.training.batch_cost import BatchCost, ProgramCost

DEVICE, OTHER = "EPYC, 0.6 cores, 1100 MiB", "EPYC, 0.2 cores, 1100 MiB"
COST = BatchCost(0.01, 0.0002, 520, DEVICE, "clicks", 100.0)
KEPT = ProgramCost("program", COST)


@pytest.fixture
def history(url):
    store = HistoryStore(url)
    store.remember("clicks", 10.0, SPEC)
    yield store
    store.close()


@pytest.fixture
def store(url):
    made = BatchCostStore(url)
    yield made
    made.close()


def test_what_a_job_remembers_is_read_by_program(history, store):
    history.remember("clicks", 100.0, KEPT)
    assert store.costs("program") == (COST,)
    assert store.costs("other") == ()


def test_the_newest_of_a_device_counts_and_an_older_master_does_not_undo_it(history, store):
    newer = replace(COST, row_s=0.0004, job="views", at_s=200.0)
    small = replace(COST, device=OTHER, at_s=50.0)
    for cost in (COST, newer, COST, small):  # the third one by a master that continues from its journal
        history.remember("clicks", cost.at_s, ProgramCost("program", cost))
    assert store.costs("program") == (newer, small)
    assert store.costs("program", limit=1) == (newer,)


def test_a_cost_outlives_the_run_that_measured_it(history, store):
    history.remember("clicks", 100.0, KEPT)
    history.delete("clicks")
    with pytest.raises(NotFoundError):
        history.series("clicks")
    assert store.costs("program") == (COST,)


def test_a_damaged_record_hides_no_other(history, store, url, caplog):
    for device in (DEVICE, OTHER):
        history.remember("clicks", 100.0, ProgramCost("program", replace(COST, device=device)))
    database = Database(url)
    with database.writing() as connection:
        connection.execute(batch_costs.update().where(batch_costs.c.device == OTHER).values(record="{}"))
    database.close()
    assert store.costs("program") == (COST,)
    assert "not used" in caplog.text


@pytest.mark.parametrize(
    ("program", "cost", "missing"),
    [
        ("", COST, "program"),
        ("p", replace(COST, device=""), "device"),
        ("p", replace(COST, job=""), "job"),
    ],
)
def test_what_belongs_to_no_device_program_or_job_is_not_kept(program, cost, missing, error_words):
    with error_words(InvalidValueError):
        ProgramCost(program, cost)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(order=st.permutations([10.0, 20.0, 30.0, 40.0]), data=st.data())
def test_whatever_the_order_of_writing_the_newest_is_read(history, store, url, order, data):
    program = data.draw(st.uuids()).hex
    database = Database(url)
    for at_s in order:
        add(database, ProgramCost(program, replace(COST, at_s=at_s)))
    database.close()
    assert [cost.at_s for cost in store.costs(program)] == [40.0]


def test_the_program_is_what_a_mini_batch_computes_and_not_whose_it_is():
    traits = replace(TRAITS, code_hash="c", data_hash="d")
    assert traits.program
    same = replace(traits, owner="eve", name="later", n_sample=7, n_table_row=9, cluster="there")
    assert same.program == traits.program
    for name, value in {"batch_size": 7, "code_hash": "e", "data_hash": "e", "dense_bytes": 8}.items():
        assert replace(traits, **{name: value}).program != traits.program
    assert replace(traits, code_hash="").program == ""
