"""What a job's master does with rights that were there and are missing: it keeps what it knew, and asks again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.jobs import builders
from support.waiting import until

from dlrover_nb.core.backends.kubernetes import master as program
from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Forbidden,
    Operation,
    Status,
    Unauthorized,
)
from dlrover_nb.core.backends.kubernetes.master import PodMaster
from dlrover_nb.core.backends.kubernetes.room import capacity_informer
from dlrover_nb.core.backends.kubernetes.room.capacity_informer import CapacityInformer
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Tenant
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, QUOTA, Kind
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.manifests.kinds import Doc

SEEN = Capacity((NodeShape(64.0, 65536, 1),))
TENANT = Tenant("clicks", "team", KubernetesSpec(master_cpu=0.5, master_memory_mib=512))
JOB = PodJob(JobSpec("clicks"), None, "0123abcd", "public", "secret-key", "the-token")


def refusal(kind: Kind, of: type[ApiError] = Forbidden) -> ApiError:
    return of("no", Status(403, "Forbidden", "no"), Operation("list", kind, "team"))


class Lists:
    """Plays the lists of an API server: no machines may be seen; quotas as the rights are."""

    def __init__(self) -> None:
        self.may, self.n_listed = True, 0

    def within(self, _namespace: str) -> Lists:
        return self

    def list(self, kind: Kind, *, fields: str = "") -> Any:
        del fields
        if kind is QUOTA:
            self.n_listed += 1
        if kind is not QUOTA or not self.may:
            raise refusal(kind)
        hard = {"cpu": "4", "memory": "8Gi"}
        return type("Listing", (), {"items": [{"spec": {"hard": hard}, "status": {"hard": hard}}]})


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Lists:
    monkeypatch.setattr(capacity_informer, "LOOK_EVERY_S", 0.01)
    return Lists()


@pytest.fixture
def informer(lists: Lists) -> Iterator[CapacityInformer]:
    informer = CapacityInformer(lists, TENANT, SEEN, lambda: ())  # type: ignore[arg-type]  # lists are enough
    yield informer
    informer.close()


def test_a_quota_that_may_not_be_read_any_more_still_holds(lists: Lists, informer: CapacityInformer) -> None:
    known = informer.latest()
    assert known.capacity.total_cpu == 3.5
    lists.may = False
    n_listed = lists.n_listed
    until(lambda: lists.n_listed > n_listed + 3, what="more tries")
    assert informer.latest() == known
    lists.may = True
    n_listed = lists.n_listed
    until(lambda: lists.n_listed > n_listed + 1, what="a list that is allowed again")
    assert informer.latest() == known


def test_a_right_that_is_gone_for_long_counts_as_one_that_never_was(
    lists: Lists, informer: CapacityInformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert informer.latest().capacity.total_cpu == 3.5
    lists.may = False
    monkeypatch.setattr(capacity_informer, "FORBIDDEN_S", 0.0)
    until(lambda: informer.latest().capacity == SEEN, what="what was seen at the submission")


class Ends:
    """Plays an API server that takes a job's end once its master may write it."""

    namespace = "team"

    def __init__(self, *errors: ApiError) -> None:
        self.errors, self.made = [*errors], list[str]()

    def create(self, kind: Kind, doc: Doc) -> None:
        assert kind is CONFIG_MAP
        if self.errors:
            raise self.errors.pop()
        self.made.append(doc["metadata"]["name"])


@pytest.mark.parametrize("refused", [Forbidden, Unauthorized])
def test_the_end_of_a_job_is_recorded_when_its_master_may_again(
    refused: type[ApiError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "END_EVERY_S", 0.0)
    api = Ends(*[refusal(CONFIG_MAP, refused)] * 3)
    master = PodMaster(JOB, api, ip="10.0.0.1")  # type: ignore[arg-type]  # it only creates
    owner = {"metadata": {"name": "clicks", "uid": "1-2-3"}}
    master._leave_end(builders.snapshot(), owner)
    assert api.made == ["quick-start-end"]
