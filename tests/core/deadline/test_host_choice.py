"""Laws of the choice of hosts for new nodes: who can hold them, in the order of load, and never in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlrover_nb.core.deadline.host_choice import (
    MOST_WEIGHT,
    STALE_AFTER,
    Host,
    NewNode,
    is_stale,
    wishes,
)
from dlrover_nb.core.structs.cluster.cluster_load import NONE, Amount
from dlrover_nb.core.structs.cluster.host_wish import HostWish
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits
from dlrover_nb.core.structs.plan.resources import Role

CPUS, MIBS = st.sampled_from([1.0, 2.0, 4.0, 8.0]), st.sampled_from([1024, 2048, 8192])


def host(key, cpu=8.0, mib=8192, held=0.0, **more):
    return Host(key, f"name-{key}", Amount(cpu, mib), Amount(held * cpu, held * mib), **more)


def worker(name="worker-0", cpu=1.0, mib=512, **more):
    return NewNode(name, Role.WORKER, cpu, mib, **more)


def ps(name="ps-0", cpu=1.0, mib=512, **more):
    return NewNode(name, Role.PS, cpu, mib, **more)


@st.composite
def clusters(draw):
    n_host = draw(st.integers(1, 6))
    found = []
    for i in range(n_host):
        cpu, mib = draw(CPUS), draw(MIBS)
        held, used = draw(st.floats(0, 1)), draw(st.none() | st.floats(0, 1))
        measured = None if used is None else Amount(used * cpu, used * mib)
        found.append(host(f"h{i}", cpu, mib, round(held, 2), used=measured, n_ps=draw(st.integers(0, 2))))
    return found


@st.composite
def batches(draw):
    roles = draw(st.lists(st.sampled_from([Role.WORKER, Role.PS]), min_size=1, max_size=5))
    sizes = [(draw(st.sampled_from([0.5, 1.0, 2.0, 3.0])), draw(st.sampled_from([256, 1024]))) for _ in roles]
    return [NewNode(f"{r}-{i}", r, *size) for i, (r, size) in enumerate(zip(roles, sizes, strict=True))]


def placed(hosts, nodes, found):
    """Return the hosts with the wished nodes on them, and the nodes without a wish."""
    on = {each.key: each for each in hosts}
    for node in nodes:
        if node.node in found:
            key = found[node.node].first.key
            on[key] = on[key].with_node(node)
    return on.values(), [node for node in nodes if node.node not in found]


def have_room(hosts, nodes):
    free = sorted(((h.free.cpu, int(h.free.memory_mib)) for h in hosts), reverse=True)
    return fits(Capacity(tuple(NodeShape(*each) for each in free)), [(n.cpu, n.memory_mib) for n in nodes])


@given(clusters(), batches())
def test_only_hosts_that_can_hold_a_node_are_wished_and_the_whole_batch_finds_room_on_them(hosts, nodes):
    found = wishes(hosts, nodes)
    for wish in found.values():
        assert all(each.holds(wish.node) for each, _ in wish.ranked)
    after, others = placed(hosts, nodes, found)
    for each in after:
        assert each.allocated.cpu <= each.has.cpu + 1e-6
        assert each.allocated.memory_mib <= each.has.memory_mib + 1e-6
    assert not found or have_room(after, others)


@given(clusters(), batches())
def test_nodes_that_do_not_all_fit_are_left_to_the_cluster(hosts, nodes):
    assume(not have_room(hosts, nodes))
    assert wishes(hosts, nodes) == {}


@given(st.lists(st.floats(0, 0.8), min_size=2, max_size=8, unique_by=lambda load: round(load, 4)))
def test_a_worker_is_wished_on_hosts_of_one_size_in_the_order_of_their_load(loads):
    hosts = [host(f"h{i}", held=load) for i, load in enumerate(loads)]
    ranked = wishes(hosts, [worker()])["worker-0"].ranked
    held = [each.allocated.cpu for each, _ in ranked]
    weights = [weight for _, weight in ranked]
    assert held == sorted(held)
    assert held[0] == min(each.allocated.cpu for each in hosts)
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == MOST_WEIGHT
    assert weights[-1] >= 1


@given(st.integers(1, 8), st.floats(0, 0.6), st.sampled_from([Role.WORKER, Role.PS]))
def test_hosts_that_are_alike_are_left_to_the_cluster(n_host, load, role):
    hosts = [host(f"h{i}", held=load) for i in range(n_host)]
    assert wishes(hosts, [NewNode("node-0", role, 1.0, 512)]) == {}


def test_parameter_servers_that_start_together_are_spread_over_hosts_that_are_alike():
    hosts = [host(f"h{i}") for i in range(3)]
    found = wishes(hosts, [ps(f"ps-{i}") for i in range(3)])
    assert sorted(each.first.key for each in found.values()) == ["h0", "h1", "h2"]


def test_a_parameter_server_goes_where_no_other_is_unless_the_load_there_is_far_higher():
    near = [host("a", held=0.1, n_ps=1), host("b", held=0.3)]
    assert wishes(near, [ps()])["ps-0"].first.key == "b"
    assert "no other parameter servers" in wishes(near, [ps()])["ps-0"].why
    far = [host("a", held=0.1, n_ps=1), host("b", held=0.7)]
    assert wishes(far, [ps()])["ps-0"].first.key == "a"


def test_memory_counts_most_for_parameter_servers_and_cores_for_workers():
    full_of_cores = Host("cores", "cores", Amount(8, 8192), Amount(6, 1024))
    full_of_memory = Host("memory", "memory", Amount(8, 8192), Amount(1, 6144))
    hosts = [full_of_cores, full_of_memory]
    assert wishes(hosts, [ps()])["ps-0"].first.key == "cores"
    assert wishes(hosts, [worker()])["worker-0"].first.key == "memory"


def test_what_is_used_beyond_what_is_held_counts_where_all_hosts_are_measured():
    busy, calm = host("a", used=Amount(7, 512)), host("b", held=0.2, used=Amount(0.5, 512))
    assert wishes([busy, calm], [worker()])["worker-0"].first.key == "b"
    unmeasured = replace(calm, used=None)
    assert wishes([busy, unmeasured], [worker()])["worker-0"].first.key == "a"


def test_a_host_on_which_a_node_was_too_slow_comes_last_and_is_named(words):
    hosts = [host("a"), host("b", held=0.8)]
    wish = wishes(hosts, [worker(avoid=(("a", "worker-3"),))])["worker-0"]
    assert wish.first.key == "b"
    assert wish.why == words


def test_a_smaller_node_leaves_the_only_large_host_to_the_larger_one():
    hosts = [host("large", cpu=4.0), host("small", cpu=2.0)]
    found = wishes(hosts, [ps(cpu=2.0), worker(cpu=4.0)])
    assert found["ps-0"].first.key == "small"
    assert "worker-0" not in found  # one host alone can hold it


def test_why_names_the_loads(words):
    hosts = [host("a", held=0.5), host("b", held=0.25), host("c", held=0.75)]
    why = wishes(hosts, [worker(cpu=0.8, mib=819)])["worker-0"].why
    assert why == words


@pytest.mark.parametrize(("age_s", "stale"), [(0.0, False), (STALE_AFTER * 60.0, False), (181.0, True)])
def test_loads_are_stale_after_some_intervals(age_s, stale):
    assert is_stale(100.0, 100.0 + age_s, 60.0) is stale


def test_a_node_that_stands_elsewhere_says_so(words):
    assert HostWish("a", "light", got="b").words == words
    assert HostWish("a", "light", got="a").words == HostWish("a", "light").words == "wished on a: light"


def test_a_host_without_anything_held_is_free():
    assert replace(host("a"), allocated=NONE).free == host("a").has
