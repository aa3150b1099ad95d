"""A cluster that does what the master of an external job orders, for tests of its laws."""

from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.master.shared.orders import Emit, ResizeNode, StartNode, StopNode
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework, StepsDone
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

RUN = ExternalRole(("run",))
TF = ExternalSpec(RUN, 100_000, ps=RUN)
TORCH = ExternalSpec(RUN, 100_000, framework=Framework.TORCH)
ROOM = Capacity((NodeShape(16, 65536),))


def plan(n_worker=2, n_ps=1, memory_mib=512):
    return ResourcePlan(RolePlan(n_worker, 0.5, memory_mib), RolePlan(n_ps, 0.25, 512))


class World:
    """A cluster whose pods come up when they are asked to, and do as they are told."""

    def __init__(self, foreign=TF, first=None, *, resizes=False, **fields):
        self.asked, self.n_asked = {}, 0  # sizes that nodes should get in place
        self.at_s, self.events, self.pods, self.told = 100.0, [], {}, {}
        self.n_step, self.n_address = {}, 0
        spec = JobSpec("a", plan=first or plan(), foreign=foreign, **fields)
        self.spec, self.master = spec, ExternalMaster(spec, ROOM)
        self.master.resizes_in_place = resizes
        self.do(self.master.start(self.at_s))

    def do(self, orders):
        for order in orders:
            match order:
                case StartNode(node):
                    assert node not in self.pods, "ids are never used twice"
                    self.pods[node] = ""
                case ResizeNode(node, cpu, memory_mib):
                    assert self.pods.get(node), "a pod that does not run is not resized"
                    self.asked[node] = cpu, memory_mib
                    self.n_asked += 1
                case StopNode(node):
                    self.asked.pop(node, None)
                    self.pods.pop(node, None)
                    self.told.pop(node, None)
                case SendEnvironment(node, text):
                    assert self.pods.get(node) or not text, "a pod without an address is told nothing"
                    self.told[node] = text
                case Emit(event):
                    self.events.append(event)

    def later(self, by_s=1.0):
        self.at_s += by_s
        self.do(self.master.tick(self.at_s))

    def come_up(self):
        """Let all pods run that do not yet."""
        while pending := [node for node, address in self.pods.items() if not address]:
            for node in pending:
                self.n_address += 1
                self.pods[node] = f"10.0.0.{self.n_address}"
            self.at_s += 1.0
            self.do(self.master.update_addresses(self.pods, self.at_s))

    def train(self, *nodes):
        """Let workers that were told variables do some steps."""
        for _ in range(2):
            self.at_s += 1.0
            for node in nodes or [
                n for n in self.pods if n.startswith(("worker", "chief")) and self.told.get(n)
            ]:
                if node not in self.told:  # stopped by what the one before has brought about
                    continue
                self.n_step[node] = n = self.n_step.get(node, 0) + 10
                self.do(
                    self.master.on_steps(StepsDone(node, self.told[node], 0, self.at_s, n, n * 8), self.at_s)
                )

    def leave(self, node, **how):
        self.pods.pop(node)
        self.told.pop(node, None)
        self.do(self.master.on_exit(node, "exit code 1", self.at_s, **how))

    def resize(self, why=""):
        """Answer what was asked in place: the cluster does it, or says why not."""
        asked, self.asked = self.asked, {}
        for node, need in asked.items():
            self.at_s += 1.0
            self.do(self.master.on_allotted(node, need, why, self.at_s))

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def last(self):
        return self.master.nodes


def running(foreign=TF, first=None, *, resizes=False):
    world = World(foreign, first, resizes=resizes)
    world.come_up()
    world.train()
    assert world.master.running == world.master.target
    return world
