"""How long a client waits for an API server, and what it says then; in virtual time."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import pairwise
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from support.kubernetes.kubeconfigs import a_kubeconfig
from support.virtual_time import VirtualTime, as_shipped
from test_rights_that_come_back import SEEN, TENANT, Lists
from urllib3.exceptions import ConnectTimeoutError, ReadTimeoutError

from dlrover_nb.core.backends.kubernetes.client.api import Listing, connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, Operation, Status, Unreachable
from dlrover_nb.core.backends.kubernetes.jobs import submission
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import POD, QUOTA
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FEATURES = FeatureSpec("label", (), (CategoricalColumn("c", 0, 64),), n_train=100, n_eval=10)
JOB = PodJob(JobSpec("ads"), FEATURES, "0a1b2c3d", "p" * 40, "s" * 40, "")
HERE = "dlrover_nb.core.backends.kubernetes"


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def silent(time: VirtualTime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kubeconfig of a server whose packets are dropped; a path with `mute` connects and says nothing."""

    def request(_: object, __: str, url: str, *, timeout: urllib3.Timeout, **___: object) -> None:
        if "mute" in url:
            time.advance(timeout.read_timeout)
            raise ReadTimeoutError(None, url, "timed out")  # type: ignore[arg-type]  # the pool is not looked at
        time.advance(timeout.connect_timeout)
        raise ConnectTimeoutError(None, "timed out")

    monkeypatch.setattr(urllib3.PoolManager, "request", request)
    path = a_kubeconfig(tmp_path / "config", server="http://10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", path)
    return path


def test_a_server_that_cannot_be_connected_is_given_up_sooner_than_one_that_says_nothing(
    time: VirtualTime, silent: str, error_words
) -> None:
    api = connect_api(kubeconfig=silent)
    with error_words(Unreachable):
        api.get(POD, "ads")
    assert time.now_s() == 5.0
    with error_words(Unreachable):
        api.get(POD, "mute")
    assert time.now_s() == 25.0


def test_who_connects_is_told_soon_that_no_server_answers(
    time: VirtualTime, silent: str, error_words
) -> None:
    del silent
    cluster = as_shipped(f"{HERE}.cluster", time)
    with error_words(Unreachable):
        cluster.connect_kubernetes()
    assert time.now_s() == 3.0


def jobs_that_answer(time: VirtualTime, **answers_at_s: float) -> tuple[str, ...]:
    """List the jobs whose masters answer after so many seconds."""
    module = as_shipped(f"{HERE}.cluster", time)
    future = time.futures()

    def submit(_: object, found: Any, __: object) -> object:
        asked = future()
        time.at(answers_at_s[found.name], lambda: asked.set_result(found.name))
        return asked

    def wait_for(asked: Any, timeout: float) -> tuple[set[object], set[object]]:
        time.wait(lambda: all(each.done() for each in asked), timeout)
        done = {each for each in asked if each.done()}
        return done, set(asked) - done

    module.wait_for = wait_for
    cluster = module.KubernetesCluster(SimpleNamespace())
    cluster._pool = SimpleNamespace(submit=submit)
    here = {
        name: SimpleNamespace(name=name, where=module.Answering(f"{name}-master")) for name in answers_at_s
    }
    return tuple(cluster._answers(here))


def test_a_list_of_jobs_leaves_out_a_master_that_does_not_answer_in_time(time: VirtualTime) -> None:
    assert jobs_that_answer(time, ads=0.1, clicks=2.0, views=2.1) == ("ads", "clicks")
    assert time.now_s() == 2.0


def informer_of(time: VirtualTime) -> Any:
    """Return an informer whose thread does not run."""
    module = as_shipped(f"{HERE}.room.capacity_informer", time)
    module.threading = SimpleNamespace(
        Event=time.event, Thread=lambda **_: SimpleNamespace(start=lambda: None)
    )
    return module.CapacityInformer(Lists(), TENANT, SEEN, lambda: ())


def capacity_read_after(due_s: float) -> object:
    time = VirtualTime()
    informer = informer_of(time)
    time.at(due_s, informer._run)
    time.at(due_s + 0.1, informer.close)  # ends that
    return informer.latest().capacity.total_cpu


def test_the_first_capacity_of_a_cluster_is_waited_for_as_long_as_the_limit_says(error_words) -> None:
    assert capacity_read_after(20.0) == 3.5
    with error_words(BackendError):
        capacity_read_after(20.1)


def test_a_list_that_is_forbidden_is_asked_for_again_after_half_an_hour(time: VirtualTime) -> None:
    informer, lists = informer_of(time), Lists()
    lists.may = False
    assert informer._list(lists, QUOTA) is None
    time.advance(1799.9)
    assert informer._list(lists, QUOTA) is None
    assert lists.n_listed == 1
    time.advance(0.1)
    assert informer._list(lists, QUOTA) is None
    assert lists.n_listed == 2


def test_a_list_that_was_allowed_holds_for_half_an_hour_after_the_right_is_gone(time: VirtualTime) -> None:
    informer, lists = informer_of(time), Lists()
    assert informer._list(lists, QUOTA)
    lists.may = False
    time.advance(1799.9)
    with pytest.raises(Forbidden):
        informer._list(lists, QUOTA)
    time.advance(0.1)
    assert informer._list(lists, QUOTA) is None


def try_pod(time: VirtualTime, token_at_s: float, status: Status) -> None:
    """Try a pod whose service account gets its token at a time."""

    def create(kind: Any, *_: object, **__: object) -> None:
        if time.now_s() < token_at_s:
            raise Unreachable("no API token found for service account", status, Operation("create", kind))

    module = as_shipped(f"{HERE}.jobs.submission", time)
    module._try_pod(SimpleNamespace(create=create), {})


def test_a_service_account_that_was_just_created_is_given_half_a_minute_for_its_token(
    time: VirtualTime,
) -> None:
    missing = Status(500, "ServerTimeout", "no API token found")
    try_pod(time, 29.9, missing)
    with pytest.raises(Unreachable, match="no API token found"):
        try_pod(time, 29.9 + 30.3, missing)
    assert time.now_s() == pytest.approx(29.9 + 30, abs=0.2)


def test_the_client_of_a_job_that_stays_paused_counts_as_dead_after_two_minutes() -> None:
    made = datetime(2026, 1, 1, tzinfo=UTC)
    job = {"metadata": {"creationTimestamp": made.isoformat()}, "spec": {"parallelism": 0}}
    assert not submission._was_given_up(job, made.timestamp() + 120.0)
    assert submission._was_given_up(job, made.timestamp() + 120.1)
    assert not submission._was_given_up(job | {"spec": {"parallelism": 1}}, made.timestamp() + 1000.0)


def test_a_server_that_does_not_answer_at_all_is_not_waited_for(time: VirtualTime) -> None:
    with pytest.raises(Unreachable):
        try_pod(time, 1.0, Status(0))
    assert time.now_s() == 0


def closed(time: VirtualTime, pods_take_s: float) -> bool:
    """Close a backend whose pods take so long to end; return whether it gave up."""
    module = as_shipped(f"{HERE}.nodes.backend", time)
    module.threading = SimpleNamespace(Thread=time.threads(pods_take_s), Event=time.event, Lock=Lock)
    quiet = SimpleNamespace(error=None, close=lambda: None, changed=time.event(), hosts=dict)
    module.Informer = module.CapacityInformer = lambda *_: quiet
    module.KubernetesBackend._run = lambda _: None
    backend = module.KubernetesBackend(JOB, Site(SimpleNamespace(namespace="ads"), None, "10.1.2.3:7070"))
    backend.close()
    return bool(backend._given_up.is_set())


def test_pods_have_half_a_minute_to_end_before_a_master_goes_without_them() -> None:
    time = VirtualTime()
    assert not closed(time, 29.9)
    assert time.now_s() == 29.9
    time = VirtualTime()
    assert closed(time, 30.1)
    assert time.now_s() == 30.0


class NoEvents:
    """A watch that has ended."""

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def close(self) -> None:
        pass


def test_a_watch_is_begun_anew_each_five_to_six_minutes(time: VirtualTime) -> None:
    module = as_shipped(f"{HERE}.client.informer", time)
    module.threading = SimpleNamespace(Thread=time.threads(0.0), Event=time.event, Lock=Lock)
    began_s: list[float] = []

    class Quiet:
        """An API server on which nothing happens, so that a watch lasts as long as was asked for."""

        namespace = "ads"

        def list(self, *_: object, **__: object) -> Listing:
            return Listing([], "1")

        def watch(self, *_: object, timeout_s: float, **__: object) -> NoEvents:
            began_s.append(time.now_s())
            time.advance(timeout_s)
            if len(began_s) == 20:
                informer._closed.set()
            return NoEvents()

    informer = module.Informer(Quiet(), POD, clock=time.monotonic, chance=random.Random(1))
    time.advance(0.0)  # its thread begins
    lasted_s = [later - at for at, later in pairwise(began_s)]
    assert min(lasted_s) >= 300.0
    assert max(lasted_s) <= 360.0 + module.LONGEST_PAUSE_S
    assert max(lasted_s) - min(lasted_s) > 30.0, "not all jobs at the same moment"
