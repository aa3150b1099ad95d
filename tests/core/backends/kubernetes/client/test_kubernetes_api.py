"""The API server asked over the real thing: what each answer means, and what an error may say."""

from __future__ import annotations

import threading
import uuid
from itertools import islice

import pytest
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.kubernetes.client.api import (
    Conflict,
    Forbidden,
    Inadmissible,
    NotThere,
    OverQuota,
    connect_api,
)
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, ELASTIC_JOB, JOB, LIMIT_RANGE, NODE, POD, QUOTA

pytestmark = [pytest.mark.kube, pytest.mark.more]


def a_map(name="c", **data):
    return {"metadata": {"name": name, "labels": {"of": "test"}}, "data": data}


def a_pod(name, **limits):
    limits = limits or {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "nothing", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))


@pytest.fixture
def alice(control_plane, api):
    return connect_api(kubeconfig=control_plane.alice, namespace=api.namespace)


def test_an_object_is_made_read_changed_and_removed(api, error_words):
    api.create(CONFIG_MAP, a_map(a="1", b="2"))
    changed = api.patch(CONFIG_MAP, "c", {"data": {"a": None, "c": "3"}})
    assert changed["data"] == {"b": "2", "c": "3"} == api.get(CONFIG_MAP, "c")["data"]
    assert [doc["metadata"]["name"] for doc in api.list(CONFIG_MAP, selector="of=test").items] == ["c"]
    assert api.list(CONFIG_MAP, fields="metadata.name=other").items == []
    api.delete(CONFIG_MAP, "c")
    with error_words(NotThere):
        api.get(CONFIG_MAP, "c")
    api.delete(CONFIG_MAP, "c")  # gone already


def test_a_dry_run_changes_nothing(api):
    api.create(CONFIG_MAP, a_map(), dry_run=True)
    with pytest.raises(NotThere):
        api.get(CONFIG_MAP, "c")


def test_a_list_of_many_pages_is_whole(api, monkeypatch):
    monkeypatch.setattr("dlrover_nb.core.backends.kubernetes.client.api._PAGE", 2)
    for number in range(5):
        api.create(CONFIG_MAP, a_map(f"c{number}"))
    before = api.n_request
    found = api.list(CONFIG_MAP, selector="of=test").items
    assert [doc["metadata"]["name"] for doc in found] == ["c0", "c1", "c2", "c3", "c4"]
    assert api.n_request - before == 3


def test_another_object_of_the_same_name_is_left_alone(api):
    first = api.create(CONFIG_MAP, a_map())["metadata"]["uid"]
    api.delete(CONFIG_MAP, "c", uid=first)
    api.create(CONFIG_MAP, a_map())
    api.delete(CONFIG_MAP, "c", uid=first)
    assert api.get(CONFIG_MAP, "c")["metadata"]["uid"] != first


def test_a_name_that_is_taken_is_told(api):
    api.create(CONFIG_MAP, a_map())
    with pytest.raises(Conflict, match="already exists") as caught:
        api.create(CONFIG_MAP, a_map())
    assert caught.value.reason == "AlreadyExists"


def test_an_object_that_is_not_valid_is_refused_with_the_field(api):
    with pytest.raises(Inadmissible, match=r"spec\.containers: Required value"):
        api.create(POD, {"metadata": {"name": "p"}})


def test_a_quota_that_is_used_up_is_no_missing_right(api, error_words):
    api.create(QUOTA, {"metadata": {"name": "small"}, "spec": {"hard": {"limits.cpu": "500m"}}})
    until(lambda: (api.get(QUOTA, "small").get("status") or {}).get("hard"), "the quota in force")
    with error_words(OverQuota) as caught:
        api.create(POD, a_pod("p"))
    assert caught.value.quota == "small"
    assert caught.value.status == 403


def test_a_limit_of_the_namespace_is_neither(api, error_words):
    item = {"type": "Container", "max": {"cpu": "500m"}}
    api.create(LIMIT_RANGE, {"metadata": {"name": "low"}, "spec": {"limits": [item]}})
    with error_words(Inadmissible) as caught:
        api.create(POD, a_pod("p"))
    assert not isinstance(caught.value, OverQuota)


def test_what_a_user_may_not_do_is_told_with_who_and_what(alice, error_words):
    with error_words(Forbidden) as caught:
        alice.list(POD)
    denied = caught.value
    assert (denied.user, denied.verb, denied.group, denied.resource) == ("alice", "list", "", "pods")
    assert denied.namespace == alice.namespace


def test_a_right_over_the_cluster_has_no_namespace(alice, error_words):
    with error_words(Forbidden) as caught:
        alice.list(NODE)
    assert caught.value.namespace == ""


def test_a_subresource_is_a_right_of_its_own(alice):
    with pytest.raises(Forbidden) as caught:
        alice.proxy("some", 8080, "/state", b"x")
    denied = caught.value
    assert (denied.verb, denied.resource, denied.name) == ("create", "pods/proxy", "some")


def test_a_watch_tells_what_happens_and_ends_when_it_is_closed(api):
    watch = api.watch(CONFIG_MAP, selector="of=test", resource_version=api.list(CONFIG_MAP).resource_version)
    api.create(CONFIG_MAP, a_map())
    api.create(CONFIG_MAP, {"metadata": {"name": "unlabelled"}})
    api.patch(CONFIG_MAP, "c", {"data": {"x": "1"}})
    api.delete(CONFIG_MAP, "c")
    events = iter(watch)
    told = [(event["type"], event["object"]["metadata"]["name"]) for event in islice(events, 3)]
    assert told == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]
    waits = threading.Thread(target=lambda: list(events))
    waits.start()
    watch.close()
    waits.join(LIMIT_S)
    assert not waits.is_alive()


def test_what_is_served_is_found_out(api):
    assert api.version().startswith("v1.")
    assert api.has(JOB)
    assert api.has(POD, subresource="proxy")
    assert not api.has(POD, subresource=f"s{uuid.uuid4().hex}")
    assert not api.has(ELASTIC_JOB)


def test_one_api_serves_many_threads(api):
    api.create(CONFIG_MAP, a_map())
    before, found = api.n_request, []
    threads = [
        threading.Thread(target=lambda: found.append(api.get(CONFIG_MAP, "c")["metadata"]["name"]))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["c"] * 20
    assert api.n_request - before == 20
