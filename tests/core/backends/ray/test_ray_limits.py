"""How long a client waits for Ray, and what it says then; in virtual time."""

from types import SimpleNamespace

import pytest
from ray.exceptions import GetTimeoutError, RayActorError
from support.virtual_time import VirtualTime, as_shipped
from support.words import lines_with

from dlrover_nb.core.backends.ray import cluster as ray_cluster
from dlrover_nb.core.backends.ray.gang import bundle
from dlrover_nb.core.backends.ray.load import free_need
from dlrover_nb.core.client.link.calls import AskSnapshot
from dlrover_nb.core.errors import AwayError, BackendError, InvalidValueError
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Need
from dlrover_nb.widgets.jobs.status import jobs_view

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


def test_a_head_is_waited_for_as_long_as_the_limit_says_and_no_longer(error_words):
    assert answered_after(10.0) == 10.0
    with error_words(BackendError):
        answered_after(10.1)


def link(time, get):
    """Return a link to a master whose answers `get` gives."""
    master = as_shipped(f"{HERE}.master", time)
    master.check_reachable = lambda: None
    master.ray = SimpleNamespace(get=get)
    master.state = SimpleNamespace(actors=lambda _: {"State": "RESTARTING"})
    answer = SimpleNamespace(remote=lambda call: call)
    return master.RayLink("ads", SimpleNamespace(answer=answer, _actor_id=b"1"))


def test_a_master_that_does_not_answer_a_call_is_given_up(time, error_words):
    def get(_, timeout):
        time.advance(timeout)
        raise GetTimeoutError

    with error_words(AwayError):
        link(time, get).send(AskSnapshot(""))
    assert time.now_s() == 30.0


def test_a_master_that_was_killed_is_given_its_time_to_come_back(time, error_words):
    def get(_, timeout):
        del timeout
        raise RayActorError

    with error_words(AwayError):
        link(time, get).send(AskSnapshot(""))
    assert 20.0 < time.now_s() <= 20.5


class Silent:
    """A job whose master gives no answer, or is gone."""

    name = "ads"

    def __init__(self, error):
        self._error = error

    def snapshot(self):
        raise self._error


AWAY, GONE = AwayError("no answer within 30 s"), BackendError("it is gone")


@pytest.fixture
def cluster(monkeypatch):
    """A cluster of one job, and the jobs that it ended."""
    ended = []
    monkeypatch.setattr(ray_cluster, "job_names", lambda: ["ads"])
    monkeypatch.setattr(ray_cluster, "master_of", lambda _: "master")
    monkeypatch.setattr(ray_cluster, "began_at_s", lambda _: 1.8e9)
    monkeypatch.setattr(ray_cluster, "remove_released", lambda *_: 0)
    return SimpleNamespace(_let_go=ended.append, _handle=None, ended=ended)


def gives(cluster, error):
    """Let the job's master give no answer, with this error."""
    cluster._handle = lambda *_: Silent(error)


@pytest.mark.parametrize("verb", ["delete", "_make_room_for"])
def test_a_silent_master_is_not_taken_for_one_that_is_gone(cluster, verb):
    """It starts, or its machine is busy: what wants its name, or deletes it, must not end its job."""
    ask = getattr(ray_cluster.RayCluster, verb)
    gives(cluster, AWAY)
    with pytest.raises(AwayError):
        ask(cluster, "ads")
    assert cluster.ended == []
    gives(cluster, GONE)
    ask(cluster, "ads")
    assert cluster.ended == ["ads"]


def test_a_silent_master_is_deleted_by_force(cluster):
    gives(cluster, AWAY)
    ray_cluster.RayCluster.delete(cluster, "ads", force=True)
    assert cluster.ended == ["ads"]


def test_a_local_ray_with_a_silent_job_is_not_ended_without_force(cluster, error_words):
    cluster._head = object()
    gives(cluster, AWAY)
    cluster._running = lambda: ray_cluster.RayCluster._running(cluster)
    with error_words(InvalidValueError):
        ray_cluster.RayCluster.shutdown(cluster)


def test_a_list_of_jobs_says_that_one_gives_no_answer_yet(cluster, words):
    starting = ray_cluster._summary(Silent(AWAY), "master")
    assert (starting.phase, starting.started_at_s, starting.message) == (JobPhase.STARTING, 1.8e9, str(AWAY))
    gone = ray_cluster._summary(Silent(GONE), "master")
    assert (gone.phase, gone.started_at_s, gone.message) == (JobPhase.FAILED, 1.8e9, str(GONE))
    assert "%" not in jobs_view([gone]).text(), "it is not known how far it came"
    said = jobs_view([starting]).text()
    assert "starting (no answer)" in said
    assert lines_with(said, "No answer") == words
    assert "1970-01-01" not in said


def test_a_list_of_jobs_waits_for_no_silent_master_alone(cluster, monkeypatch):
    """Each took 30 s, one after the other; none of them is asked again here."""
    monkeypatch.setattr(ray_cluster, "past_jobs", list)
    monkeypatch.setattr(ray_cluster, "job_names", lambda: ["ads", "ctr"])
    cluster.live_jobs = lambda: ()
    cluster.rollcall = SimpleNamespace(silent={"ads": "not within 2 s", "ctr": "it is starting again"})
    listed = ray_cluster.RayCluster.jobs(cluster)
    assert {each.name: each.message for each in listed} == cluster.rollcall.silent
    assert {each.phase for each in listed} == {JobPhase.STARTING}


def test_a_list_of_jobs_waits_for_masters_as_long_as_the_limit_says(time, words):
    summaries = as_shipped(f"{HERE}.summaries", time)

    def wait(asked, *, num_returns, timeout):
        assert num_returns == len(asked) == 1
        time.advance(timeout)
        return [], asked

    summaries.ray = SimpleNamespace(wait=wait)
    actor = SimpleNamespace(answer=SimpleNamespace(remote=lambda _: "asked"))
    poll = summaries.SummaryPoll(lambda _: actor)
    assert poll.call(["ads"]) == ()
    assert time.now_s() == 2.0
    assert poll.silent == {"ads": words}


def test_the_jobs_of_a_ray_that_does_not_answer_are_given_up(time, monkeypatch, error_words):
    module = as_shipped(f"{HERE}.ray_jobs", time)

    def urlopen(_, timeout):
        time.advance(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setenv(module.ADDRESS_VAR, "http://head:8265")
    module.urllib = SimpleNamespace(
        request=SimpleNamespace(urlopen=urlopen, Request=module.urllib.request.Request),
        error=module.urllib.error,
    )
    with error_words(BackendError):
        module.SeesRayJobs().unmanaged_jobs()
    assert time.now_s() == 5.0


def test_gpus_are_requested_and_read_as_ray_writes_them_and_named_only_where_there_are_some():
    need = Need(0.5, 512, 2)
    assert bundle(need) == {"CPU": 0.5, "memory": 512.0 * (1 << 20), "GPU": 2.0}
    assert free_need(bundle(need)) == need
    assert bundle(Need(0.5, 512)).keys() == {"CPU", "memory"}
    assert free_need({"CPU": 0.5, "memory": 512.0 * (1 << 20)}) == Need(0.5, 512)
