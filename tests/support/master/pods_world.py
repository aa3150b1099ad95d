"""The master's world in pods without storage: no file outlives its pod, and memory is the pod's own.

Each node has two buffers for its own copies, and two for each PS whose copies it keeps, as real ones do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.checkpoints.peer_copies import is_whole
from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PartSource, PeerCopy
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.copy_messages import CopyKept, KeepCopy
from dlrover_nb.core.structs.wire.pod_contract import STATE
from support.master.master_world import World

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.master import JobMaster
    from dlrover_nb.core.runtime.store import StorePart
    from support.master.played_nodes import FakeNode


def last_whole(master: JobMaster) -> int:
    """Return the number of the last checkpoint that peers keep as a whole; -1: none."""
    living = {node.id for node in master.nodes}
    return max((each.number for each in master.checkpoints if is_whole(each, living)), default=-1)


class PodsWorld(World):
    """Nodes in pods; a test says which of them keep no copies, and why."""

    folder = f"{STATE}/run"
    machines = ("m0", "m1", "m2")

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.own: dict[str, dict[int, StorePart]] = {}
        self.held: dict[str, dict[str, dict[int, StorePart]]] = {}  # keeper, owner, number
        self.refusals: dict[str, str] = {}
        self.silent: set[str] = set()  # nodes that do not answer KeepCopy
        self.n_from_peers = 0
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]

    def machine(self, name: str) -> str:
        return self.machines[int(name.rpartition("-")[2]) % len(self.machines)]

    def hello(self, name: str) -> None:
        node = self.nodes[name]
        node.has_come_up = True
        place = {"copies": f"copies://{name}", "machine": self.machine(name)}
        node.say(m.Hello(name, node.order.role, 1, f"pod-{name}", f"ipc://{name}", False, **place))

    def _copy(self, node: FakeNode, save: m.Save) -> None:
        self.copies.setdefault(save.checkpoint, dict(self.learnt))
        own = self.own.setdefault(node.id, {})
        if not self.has_memory and not save.file:
            node.say(m.Copied(node.id, save.checkpoint))
            node.say(m.Saved(node.id, save.checkpoint, "", "", 0, 0, "no memory"))
            return
        if len(own) == 2:
            del own[min(own, key=lambda number: (number == save.kept, number))]
        if save.file:
            super()._copy(node, save)
        own[save.checkpoint] = self.ps[node.id].copy()
        if not save.file:
            node.say(m.Copied(node.id, save.checkpoint, MemoryPart(node.id, save.checkpoint, "", 8)))

    def _obey(self, node: FakeNode, message: m.ToNode) -> None:
        if not isinstance(message, KeepCopy):
            super()._obey(node, message)
            return
        node.heard.append(message)
        if node.id not in self.silent:
            node.say(self._kept(node.id, message))

    def _kept(self, name: str, order: KeepCopy) -> CopyKept:
        number, held = order.memory.number, self.held.setdefault(name, {})
        for owner, copies in held.items():
            stay = {order.kept, number} if owner != order.owner else {order.kept}
            held[owner] = {n: part for n, part in copies.items() if n in stay}
        part = self.own[order.owner].get(number) if self.nodes[order.owner].is_alive else None
        why = self.refusals.get(name, "") or ("" if part is not None else "it is gone")
        if part is None or why:
            return CopyKept(name, order.owner, number, error=why)
        held.setdefault(order.owner, {})[number] = part
        memory = MemoryPart(f"{name}.{order.owner}", number, "", 8)
        return CopyKept(name, order.owner, number, PeerCopy(name, memory, "0" * 64))

    def _load(self, node: FakeNode, load: m.Load) -> None:
        """Load as any PS, and say from how many copies of peers."""
        before = self.n_from_peers
        super()._load(node, load)
        told, arrays = node.outbox.pop()
        assert isinstance(told, m.Loaded)
        node.say(replace(told, n_from_peers=self.n_from_peers - before), *arrays)

    def _found(self, part: PartSource) -> StorePart | None:
        """Read a part as a PS of another pod does: from living pods only."""
        for copy in part.copies:
            name = copy.endpoint.removeprefix("copies://")
            if self.nodes[name].is_alive:
                owner = copy.memory.name.partition(".")[2]
                copies = self.held.get(name, {}).get(owner, {}) if copy.is_peer else self.own.get(name, {})
                if copy.memory.number in copies:
                    self.n_from_peers += copy.is_peer
                    return copies[copy.memory.number]
        return None
