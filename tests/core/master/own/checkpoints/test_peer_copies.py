"""Laws of who keeps whose copy, and of which checkpoint can be restored."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.master.own.checkpoints.peer_copies import (
    Place,
    are_wanted,
    holder_of,
    is_restorable,
    is_whole,
)
from dlrover_nb.core.master.own.state.state import RestorableCheckpoint
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PeerCopies, PeerCopy

LEDGER = ShardLedger(Split(100, 10, 2)).checkpoint()
places = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 3), st.booleans()), min_size=1, max_size=9
).map(
    lambda found: [
        Place(f"n-{i}", f"{machine}/{pod}", machine, is_ps) for i, (machine, pod, is_ps) in enumerate(found)
    ]
)
names = st.sampled_from("abcdef")


def holders(all_places: list[Place]) -> dict[str, str | None]:
    """The keepers of all PS, chosen one after the other as the master does."""
    held: Counter[str] = Counter()
    chosen = {}
    for place in all_places:
        if place.is_ps:
            chosen[place.node] = holder_of(place.node, all_places, held)
            held.update([chosen[place.node]] if chosen[place.node] else [])
    return chosen


@given(places)
def test_a_copy_is_with_another_node_and_as_far_away_as_there_is_one(all_places):
    by_name = {place.node: place for place in all_places}
    for owner, holder in holders(all_places).items():
        others = [place for place in all_places if place.node != owner]
        if holder is None:
            assert not others
            continue
        own, chosen = by_name[owner], by_name[holder]
        assert holder != owner
        if any(place.machine != own.machine for place in others):
            assert chosen.machine != own.machine
        elif any(place.host != own.host for place in others):
            assert chosen.host != own.host
        alike = [p for p in others if (p.machine == own.machine) == (chosen.machine == own.machine)]
        alike = [p for p in alike if (p.host == own.host) == (chosen.host == own.host)]
        assert chosen.is_ps or not any(place.is_ps for place in alike)


@given(st.integers(2, 9))
def test_ps_on_machines_of_their_own_keep_one_copy_each(n_ps):
    chosen = holders([Place(f"ps-{i}", f"h{i}", f"h{i}") for i in range(n_ps)])
    assert sorted(chosen.values()) == sorted(chosen)


@given(st.integers(1, 4), st.integers(2, 4))
def test_ps_on_equally_full_machines_keep_one_copy_each(n_each, n_machine):
    machines = [str(i % n_machine) for i in range(n_each * n_machine)]
    chosen = holders([Place(f"ps-{i}", machine, machine) for i, machine in enumerate(machines)])
    assert set(Counter(chosen.values()).values()) == {1}


def test_the_only_ps_has_a_worker_as_its_peer():
    near, far = Place("w-0", "pod-1", "m1", False), Place("w-1", "pod-2", "m2", False)
    assert holder_of("ps-0", [Place("ps-0", "pod-0", "m1"), near, far], {}) == "w-1"
    assert holder_of("ps-0", [Place("ps-0", "pod-0", "m1"), near], {}) == "w-0"


@given(st.sampled_from(PeerCopies), st.lists(st.sampled_from("xyz")), st.booleans())
def test_copies_are_made_where_asked_for_over_several_machines_and_without_files(
    setting, machines, has_files
):
    wanted = are_wanted(setting, machines, has_files=has_files)
    if setting is PeerCopies.AUTO:
        assert wanted == (not has_files or len(set(machines)) > 1)
    else:
        assert wanted == (setting is PeerCopies.ALWAYS)


@st.composite
def checkpoints(draw):
    """A checkpoint of some PS, of which some parts are with some peers."""
    nodes = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
    memory = tuple(MemoryPart(f"m-{node}", 3, "00", 8) if draw(st.booleans()) else None for node in nodes)
    peers = tuple(
        PeerCopy(holder, MemoryPart(f"m-{holder}.{node}", 3, "01", 8), "0" * 64) if holder else None
        for node, holder in zip(nodes, [draw(st.none() | names) for _ in nodes], strict=True)
    )
    manifest = Manifest(3, 0.0, 1, (0,) * 256, (("", ""),) * len(nodes), 0, 0, LEDGER)
    return RestorableCheckpoint(
        manifest, memory, draw(st.booleans()), nodes, draw(st.sampled_from([(), peers]))
    )


@given(checkpoints(), st.frozensets(names), st.booleans(), st.booleans())
def test_a_checkpoint_is_restorable_if_each_part_is_somewhere(kept, living, has_files, memory_stays):
    found = is_restorable(kept, living, has_files=has_files, memory_stays=memory_stays)
    peers = kept.peers or [None] * len(kept.nodes)
    readable = [
        bool(memory and (memory_stays or node in living)) or bool(peer and peer.holder in living)
        for node, memory, peer in zip(kept.nodes, kept.memory, peers, strict=True)
    ]
    assert found == ((kept.is_on_disk and has_files) or all(readable))


@given(checkpoints(), st.frozensets(names), names, st.booleans())
def test_more_living_nodes_never_make_a_checkpoint_unreadable(kept, living, other, memory_stays):
    def can(nodes):
        return is_restorable(kept, nodes, has_files=False, memory_stays=memory_stays)

    assert can(living) <= can(living | {other})


@given(checkpoints(), names)
def test_what_peers_keep_as_a_whole_outlives_every_ps_that_keeps_none_of_it(kept, lost):
    everyone = frozenset("abcdef")
    if is_whole(kept, everyone) and all(peer.holder != lost for peer in kept.peers):
        assert is_restorable(kept, everyone - {lost}, has_files=False, memory_stays=False)


@given(checkpoints(), names)
def test_one_lost_host_costs_nothing_where_no_peer_keeps_its_own_copy(kept, lost):
    """The law of the whole feature: own memory and the copy of a peer are never lost together."""
    everyone = frozenset("abcdef")
    apart = all(
        peer is not None and peer.holder != node for node, peer in zip(kept.nodes, kept.peers, strict=False)
    )
    if kept.peers and apart and None not in kept.memory:
        assert is_restorable(kept, everyone - {lost}, has_files=False, memory_stays=False)
