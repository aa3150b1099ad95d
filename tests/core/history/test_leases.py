"""Leases: one of many holds it, each change of holder has a higher term, and no clock but the database's counts."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import until

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.stores.leases import LeaseStore

LONG_S, DAY_S = 600.0, 86_400.0
SET_CLOCK = Path(__file__).parents[1] / "backends/local/set_clock.c"


@pytest.fixture
def store(url):
    made = LeaseStore(url)
    yield made
    made.close()


def test_who_holds_a_lease_renews_it_in_the_same_term_and_others_wait(store):
    first = store.take("brain", "a", LONG_S)
    assert (first.holder, first.term) == ("a", 1)
    other = store.take("brain", "b", LONG_S)
    assert (other.holder, other.term) == ("a", 1)
    again = store.take("brain", "a", LONG_S)
    assert (again.holder, again.term) == ("a", 1)
    assert 0 < again.left_s <= LONG_S + 1
    assert store.find("brain").holder == "a"
    assert store.find("other") is None


def test_a_lease_that_was_given_up_or_ran_out_goes_to_the_next_in_a_higher_term(store):
    store.take("brain", "a", LONG_S)
    store.release("brain", "b")
    assert store.take("brain", "b", LONG_S).holder == "a", "nobody gives up what another one holds"
    store.release("brain", "a")
    second = store.take("brain", "b", 0.2)
    assert (second.holder, second.term) == ("b", 2)
    third = until(lambda: (lease := store.take("brain", "c", LONG_S)).holder == "c" and lease, what="its end")
    assert third.term == 3
    store.release("brain", "c")
    assert store.take("brain", "c", LONG_S).term == 4, "also for the same one: it may have missed something"


@pytest.mark.more
def test_of_many_at_once_one_takes_it_and_all_see_the_same_one(url, store):
    def take(i: int) -> str:
        mine = LeaseStore(url)
        try:
            return mine.take("brain", f"brain-{i}", LONG_S).holder
        finally:
            mine.close()

    for _ in range(3):
        with ThreadPoolExecutor(8) as pool:
            holders = set(pool.map(take, range(8)))
        assert len(holders) == 1
        store.release("brain", holders.pop())


def test_leases_of_other_names_are_apart(store):
    store.take("brain of a", "x", LONG_S)
    assert store.take("brain of b", "y", LONG_S).holder == "y"


def test_a_database_that_is_gone_is_an_error_that_says_so(tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    store = LeaseStore(f"sqlite:///{folder / 'history.db'}")
    store.take("brain", "a", LONG_S)
    (folder / "history.db").unlink()
    folder.rmdir()
    with pytest.raises(BackendError, match="history"):
        store.take("brain", "a", LONG_S)


TAKES = """
import sys, time
from dlrover_nb.core.history.stores.leases import LeaseStore
lease = LeaseStore(sys.argv[1]).take("brain", "b", 600.0)
print(lease.holder, lease.term, time.time())
"""


@pytest.mark.more
def test_a_brain_whose_clock_is_a_day_ahead_or_behind_takes_no_lease_that_another_holds(
    postgresql_url, tmp_path
):
    store = LeaseStore(postgresql_url)
    store.take("brain", "a", LONG_S)
    library, step = tmp_path / "set_clock.so", tmp_path / "step"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SET_CLOCK], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library), "SET_CLOCK_FILE": str(step)}
    for step_s in (DAY_S, -DAY_S):
        step.write_bytes(struct.pack("d", step_s))
        told = subprocess.run(
            [sys.executable, "-c", TAKES, postgresql_url], env=environment, check=True, capture_output=True
        ).stdout.split()
        assert told[:2] == [b"a", b"1"]
        assert abs(float(told[2]) - time.time() - step_s) < DAY_S / 2, "its clock is another one"
    store.close()
