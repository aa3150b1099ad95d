"""A copy that follows the cluster: through a server that is killed, a version that is forgotten, a cut line."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlparse

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.kubernetes.client import informer
from dlrover_nb.core.backends.kubernetes.client.api import Api, Forbidden, Listing, Unreachable, connect_api
from dlrover_nb.core.backends.kubernetes.client.informer import Cache, Informer
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, POD, ROLE, ROLE_BINDING

SELECTOR = "of=test"


def a_map(name, **data):
    return {"metadata": {"name": name, "labels": {"of": "test"}}, "data": data}


def stored(name, version, **more):
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **more}


# what events do to the copy


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])))
)
def test_after_any_events_the_copy_is_what_the_last_of_each_object_says(events):
    copy, last = Cache(), {}
    copy.replace([stored("a", 1), stored("b", 1)], "1")
    last |= {"a": 1, "b": 1}
    for version, (name, what) in enumerate(events, 2):
        copy.apply({"type": what, "object": stored(name, version)})
        if what == "DELETED":
            last.pop(name, None)
        elif what != "BOOKMARK":
            last[name] = version
    assert {name: int(doc["metadata"]["resourceVersion"]) for name, doc in copy.docs.items()} == last
    assert copy.version == str(1 + len(events))


def test_a_list_that_says_the_same_is_no_change():
    copy = Cache()
    assert copy.replace([stored("a", 1)], "1")
    assert not copy.replace([stored("a", 1)], "7")
    assert copy.replace([stored("a", 8)], "8")
    assert copy.replace([], "9")


def test_objects_of_several_namespaces_are_told_apart():
    copy = Cache(spans=True)
    copy.replace([{"metadata": {"name": "a", "namespace": n, "resourceVersion": "1"}} for n in "xy"], "1")
    assert set(copy.docs) == {"x/a", "y/a"}


# on a real API server


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))


@pytest.fixture
def mirror(api):
    with closing(Informer(api, CONFIG_MAP, SELECTOR)) as mirror:
        mirror.wait(LIMIT_S)
        yield mirror


def shows(mirror, *names):
    until(
        lambda: set(mirror.items()) == set(names),
        what=f"{names} in the copy, which has {set(mirror.items())},",
    )


@pytest.mark.more
@pytest.mark.kube
def test_what_is_made_changed_and_removed_is_seen(api, mirror):
    mirror.changed.clear()
    api.create(CONFIG_MAP, a_map("a", x="1"))
    assert mirror.changed.wait(LIMIT_S)
    api.create(CONFIG_MAP, {"metadata": {"name": "unlabelled"}})
    api.create(CONFIG_MAP, a_map("b"))
    shows(mirror, "a", "b")
    api.patch(CONFIG_MAP, "a", {"data": {"x": "2"}})
    until(lambda: mirror.items()["a"]["data"] == {"x": "2"})
    api.patch(CONFIG_MAP, "b", {"metadata": {"labels": {"of": "another"}}})
    shows(mirror, "a")  # what no longer matches is gone
    api.delete(CONFIG_MAP, "a")
    shows(mirror)
    assert mirror.is_synced
    assert mirror.age_s == 0.0


@pytest.mark.more
@pytest.mark.kube
def test_at_rest_nothing_is_asked(api, mirror):
    api.create(CONFIG_MAP, a_map("a"))
    shows(mirror, "a")
    before = api.n_request
    for number in range(20):
        api.patch(CONFIG_MAP, "a", {"data": {"n": str(number)}})
    until(lambda: mirror.items()["a"]["data"]["n"] == "19")
    assert api.n_request - before == 20, "the patches alone: one watch told them all"


@pytest.mark.more
@pytest.mark.kube
def test_no_thread_is_left_after_close(api):
    mirror = Informer(api, CONFIG_MAP, SELECTOR)
    mirror.wait(LIMIT_S)
    mirror.close()
    mirror.close()
    assert not [t for t in threading.enumerate() if t.name == "mirror-configmaps"]


@pytest.mark.more
@pytest.mark.kube
def test_a_server_that_was_killed_is_followed_again_and_nothing_is_missed(control_plane, api, mirror, caplog):
    for name in "abc":
        api.create(CONFIG_MAP, a_map(name))
    shows(mirror, "a", "b", "c")
    control_plane.stop_api()
    try:
        until(lambda: mirror.error is not None)
        assert isinstance(mirror.error, Unreachable)
        assert set(mirror.items()) == {"a", "b", "c"}, "what was known stays known"
        assert mirror.age_s > 0
    finally:
        control_plane.start_api()
    api.delete(CONFIG_MAP, "a")  # maybe before the copy is back, maybe after
    api.create(CONFIG_MAP, a_map("d"))
    shows(mirror, "b", "c", "d")
    assert mirror.error is None
    warned = [r for r in caplog.records if "are not watched now" in r.getMessage()]
    assert len(warned) == 1, "told once, not at each try"


def compact(control_plane, api):
    """Make the store forget all versions but the present one."""
    present = api.list(CONFIG_MAP).resource_version
    server = control_plane._api_server().cmdline()
    [endpoint] = [part.split("=")[1] for part in server if part.startswith("--etcd-servers=")]
    certs = control_plane.run / "certs"
    keys = [f"--cacert={certs}/ca.crt", f"--cert={certs}/admin.crt", f"--key={certs}/admin.key"]
    command = ["etcdctl", f"--endpoints={endpoint}", *keys, "compact", present]
    subprocess.run(command, check=True, env=os.environ | {"ETCDCTL_API": "3"}, capture_output=True)


@pytest.mark.more
@pytest.mark.kube
@pytest.mark.skipif(not shutil.which("etcdctl"), reason="etcdctl is needed to make the store forget")
def test_a_version_that_the_server_has_forgotten_is_listed_anew(control_plane, api):
    old = api.list(CONFIG_MAP).resource_version
    api.create(CONFIG_MAP, a_map("a"))
    compact(control_plane, api)
    control_plane.stop_api()  # it remembers by itself for a while
    control_plane.start_api()
    late = SpyApi(control_plane, api.namespace, old)
    with closing(Informer(late, CONFIG_MAP, SELECTOR)) as mirror:
        shows(mirror, "a")
        until(lambda: len(late.watched) == 2)
        assert late.watched[0] == old
        assert int(late.watched[1]) > int(old)
        assert late.n_list == 1
        assert mirror.error is None


class SpyApi(Api):
    """Tells what was asked for; may list first what was long ago, as to a client that slept in between."""

    def __init__(self, cluster, namespace, version=None):
        super().__init__(connect_api(kubeconfig=cluster.kubeconfig)._connection, namespace)
        self.version, self.watched, self.n_list = version, [], 0

    def list(self, kind, **asked):
        version, self.version = self.version, None
        if version:
            return Listing([], version)
        self.n_list += 1
        return super().list(kind, **asked)

    def watch(self, kind, **asked):
        self.watched.append(asked["resource_version"])
        return super().watch(kind, **asked)


@pytest.mark.more
@pytest.mark.kube
def test_a_watch_whose_time_is_over_goes_on_without_a_list(control_plane, api, monkeypatch):
    monkeypatch.setattr(informer, "WATCH_S", 1.0)
    spy = SpyApi(control_plane, api.namespace)
    with closing(Informer(spy, CONFIG_MAP, SELECTOR)) as mirror:
        until(lambda: len(spy.watched) >= 2)
        api.create(CONFIG_MAP, a_map("a"))
        shows(mirror, "a")
        n_before = len(spy.watched)  # one may have begun between the two
        until(lambda: len(spy.watched) > n_before)
        assert int(spy.watched[n_before]) > int(spy.watched[0])
        assert spy.n_list == 1
        assert mirror.error is None


@pytest.mark.more
@pytest.mark.kube
def test_once_in_a_while_all_is_listed_anyway(control_plane, api, monkeypatch):
    monkeypatch.setattr(informer, "WATCH_S", 1.0)
    monkeypatch.setattr(informer, "RELIST_S", 0.0)
    spy = SpyApi(control_plane, api.namespace)
    with closing(Informer(spy, CONFIG_MAP, SELECTOR)):
        until(lambda: len(spy.watched) >= 2)
        n_watch = len(spy.watched)  # read first: a list comes before its watch
        assert spy.n_list >= n_watch


@pytest.mark.more
@pytest.mark.kube
def test_who_is_given_the_right_follows(control_plane, api):
    alice = connect_api(kubeconfig=control_plane.alice, namespace=api.namespace)
    with closing(Informer(alice, POD)) as mirror:
        until(lambda: isinstance(mirror.error, Forbidden))
        name = {"metadata": {"name": "look"}}
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
        api.create(ROLE, name | {"rules": [rule]})
        given = {"apiGroup": ROLE.group, "kind": "Role", "name": "look"}
        alice_too = [{"apiGroup": ROLE.group, "kind": "User", "name": "alice"}]
        api.create(ROLE_BINDING, name | {"roleRef": given, "subjects": alice_too})
        mirror.wait(LIMIT_S)
        until(lambda: mirror.error is None)


@pytest.mark.more
@pytest.mark.kube
def test_an_answer_that_nobody_foresaw_blinds_nobody(control_plane, api, monkeypatch, caplog):
    spy = SpyApi(control_plane, api.namespace)
    faults = iter([{"kind": "what"}])
    real = Cache.apply
    monkeypatch.setattr(Cache, "apply", lambda copy, event: real(copy, next(faults, event)))
    with closing(Informer(spy, CONFIG_MAP, SELECTOR)) as mirror:
        mirror.wait(LIMIT_S)
        api.create(CONFIG_MAP, a_map("a"))
        shows(mirror, "a")
    assert "configmaps cannot be watched" in caplog.text
    assert spy.n_list == 2


class Relay:
    """Passes bytes on to the API server, until it cuts all its lines."""

    def __init__(self, host, port):
        self._there, self._socks = (host, port), []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            there = socket.create_connection(self._there)
            self._socks += [here, there]
            for pair in ((here, there), (there, here)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source, target):
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            return

    def cut(self):
        for sock in self._socks:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._socks.clear()

    def close(self):
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()


@pytest.fixture
def relay(control_plane, tmp_path):
    config = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    [cluster] = config["clusters"]
    url = urlparse(cluster["cluster"]["server"])
    with closing(Relay(url.hostname, url.port)) as relay:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{relay.port}"
        relay.kubeconfig = str(tmp_path / "kubeconfig")
        Path(relay.kubeconfig).write_text(yaml.safe_dump(config))
        yield relay


@pytest.mark.more
@pytest.mark.kube
def test_a_connection_that_is_cut_goes_on_from_where_it_was(relay, api):
    through = connect_api(kubeconfig=relay.kubeconfig, namespace=api.namespace)
    with closing(Informer(through, CONFIG_MAP, SELECTOR)) as mirror:
        mirror.wait(LIMIT_S)
        until(lambda: through.n_request == 2)  # a list and a watch
        until(lambda: mirror.age_s == 0.0)
        relay.cut()
        for name in "ab":
            api.create(CONFIG_MAP, a_map(name))
        api.delete(CONFIG_MAP, "a")
        shows(mirror, "b")
        assert through.n_request == 3, "one more watch, and no list"


@pytest.mark.more
@pytest.mark.kube
def test_whatever_is_cut_and_changed_the_copy_ends_as_the_cluster(relay, api):
    chance = random.Random(6)
    through = connect_api(kubeconfig=relay.kubeconfig, namespace=api.namespace)
    with closing(Informer(through, CONFIG_MAP, SELECTOR, chance=chance)) as mirror:
        for step in range(120):
            name = f"c{chance.randrange(8)}"
            if name not in {doc["metadata"]["name"] for doc in api.list(CONFIG_MAP, selector=SELECTOR).items}:
                api.create(CONFIG_MAP, a_map(name, n=str(step)))
            elif chance.random() < 0.5:
                api.delete(CONFIG_MAP, name)
            else:
                api.patch(CONFIG_MAP, name, {"data": {"n": str(step)}})
            if step % 20 == 10:
                relay.cut()
        there = {
            doc["metadata"]["name"]: doc["data"] for doc in api.list(CONFIG_MAP, selector=SELECTOR).items
        }
        until(lambda: {name: doc["data"] for name, doc in mirror.items().items()} == there)


@pytest.mark.more
@pytest.mark.kube
def test_who_may_not_look_is_told_why_and_the_copy_never_says_that_it_is_whole(
    control_plane, api, error_words
):
    alice = connect_api(kubeconfig=control_plane.alice, namespace=api.namespace)
    with closing(Informer(alice, POD)) as mirror:
        until(lambda: mirror.error is not None)
        with error_words(Forbidden):
            mirror.wait(0)
        assert not mirror.is_synced
        assert mirror.age_s == float("inf")
