"""How long somebody waits after wrong passwords: laws over any sequence of tries."""

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.dashboard.sign_in.by_password import ADDRESS_S, N_FREE, NAME_S, Throttle

NAMES, ADDRESSES = st.sampled_from(["ada", "bob", "Ada"]), st.sampled_from(["10.0.0.1", "10.0.0.2"])


def test_the_first_tries_are_free_and_then_each_doubles_the_wait():
    throttle, now_s, waits = Throttle(), 0.0, []
    for _ in range(N_FREE):
        assert throttle.begin("ada", "10.0.0.1", now_s) == 0
    for _ in range(4):
        waits.append(throttle.begin("ada", "10.0.0.1", now_s))
        now_s += waits[-1]
        assert throttle.begin("ada", "10.0.0.1", now_s) == 0
    assert waits == [1, 2, 4, 8]


def test_many_tries_at_once_gain_nothing():
    throttle = Throttle()
    begun = [throttle.begin("ada", f"10.0.0.{n}", 0.0) == 0 for n in range(100)]
    assert sum(begun) == N_FREE


def test_another_name_from_another_address_never_waits():
    throttle = Throttle()
    for _ in range(50):
        throttle.begin("ada", "10.0.0.1", 0.0)
    assert throttle.begin("bob", "10.0.0.2", 0.0) == 0
    assert throttle.begin("bob", "10.0.0.1", 0.0) > 0
    assert throttle.begin("ADA", "10.0.0.3", 0.0) > 0


def test_a_name_is_never_locked_for_longer_than_a_minute():
    throttle, now_s = Throttle(), 0.0
    for n in range(40):
        now_s += throttle.begin("ada", f"10.1.0.{n}", now_s)
        throttle.begin("ada", f"10.1.0.{n}", now_s)
    assert 0 < throttle.begin("ada", "10.9.9.9", now_s) <= NAME_S


def test_who_signs_in_between_gains_no_tries_of_other_names():
    throttle = Throttle()
    n_tried = 0
    for n in range(20):
        n_tried += throttle.begin(f"victim {n}", "10.0.0.1", 0.0) == 0
        if throttle.begin("own", "10.0.0.1", 0.0) == 0:
            throttle.succeeded("own", "10.0.0.1")
    assert n_tried <= N_FREE


@given(st.lists(st.tuples(NAMES, ADDRESSES, st.floats(0, 100)), max_size=60))
def test_a_wait_is_bounded_and_memory_too(tries):
    throttle, now_s = Throttle(most_known=3), 0.0
    for name, address, later_s in tries:
        now_s += later_s
        assert 0 <= throttle.begin(name, address, now_s) <= ADDRESS_S
        assert len(throttle) <= 3
