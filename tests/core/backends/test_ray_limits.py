"""How long a client waits for Ray, and what it says then; in virtual time."""

from types import SimpleNamespace

import pytest
from ray.exceptions import GetTimeoutError, RayActorError
from virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.client.calls import AskSnapshot
from dlrover_nb.core.errors import BackendError

HERE = "dlrover_nb.core.backends.ray"


@pytest.fixture
def time():
    return VirtualTime()


def answered_after(due_s):
    time = VirtualTime()
    reach = as_shipped(f"{HERE}.reach", time)
    reach.Future, reach.check_reachable = time.futures(), lambda: None
    reach.threading = SimpleNamespace(
        Thread=lambda target, args, **_: SimpleNamespace(start=lambda: time.at(due_s, lambda: target(*args)))
    )
    return reach.ask_ray(time.now_s)


def test_a_head_is_waited_for_as_long_as_the_limit_says_and_no_longer():
    assert answered_after(10.0) == 10.0
    with pytest.raises(BackendError, match=r"^Ray did not answer within 10 s; connect again$"):
        answered_after(10.1)


def link(time, get):
    """Return a link to a master whose answers `get` gives."""
    master = as_shipped(f"{HERE}.master", time)
    master.check_reachable = lambda: None
    master.ray = SimpleNamespace(get=get)
    master.state = SimpleNamespace(actors=lambda _: {"State": "RESTARTING"})
    answer = SimpleNamespace(remote=lambda call: call)
    return master.RayLink("ads", SimpleNamespace(answer=answer, _actor_id=b"1"))


def test_a_master_that_does_not_answer_a_call_is_given_up(time):
    def get(_, timeout):
        time.advance(timeout)
        raise GetTimeoutError

    with pytest.raises(
        BackendError, match=r"^the master of job ads did not answer within 30 s; it may still"
    ):
        link(time, get).send(AskSnapshot(""))
    assert time.now_s() == 30.0


def test_a_master_that_was_killed_is_given_its_time_to_come_back(time):
    def get(_, timeout):
        del timeout
        raise RayActorError

    with pytest.raises(
        BackendError, match=r"^the master of job ads was killed and is coming back; try again$"
    ):
        link(time, get).send(AskSnapshot(""))
    assert 20.0 < time.now_s() <= 20.5


def test_a_list_of_jobs_waits_for_masters_as_long_as_the_limit_says(time):
    summaries = as_shipped(f"{HERE}.summaries", time)

    def wait(asked, *, num_returns, timeout):
        assert num_returns == len(asked) == 1
        time.advance(timeout)
        return [], asked

    summaries.ray = SimpleNamespace(wait=wait)
    actor = SimpleNamespace(answer=SimpleNamespace(remote=lambda _: "asked"))
    assert summaries.SummaryPoll(lambda _: actor).call(["ads"]) == ()
    assert time.now_s() == 2.0


def test_the_jobs_of_a_ray_that_does_not_answer_are_given_up(time, monkeypatch):
    module = as_shipped(f"{HERE}.ray_jobs", time)

    def urlopen(_, timeout):
        time.advance(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setenv(module.ADDRESS_VAR, "http://head:8265")
    module.urllib = SimpleNamespace(
        request=SimpleNamespace(urlopen=urlopen, Request=module.urllib.request.Request),
        error=module.urllib.error,
    )
    with pytest.raises(BackendError, match=r"^Ray's jobs at http://head:8265 cannot be read \(timed out\)"):
        module.SeesRayJobs().unmanaged_jobs()
    assert time.now_s() == 5.0
