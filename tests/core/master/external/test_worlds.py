"""Worlds of an elastic job: laws over all orders of beginnings, deaths, requests and changes of plan."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dlrover_nb.core.master.external.job.worlds import Reached, Request, World, Worlds

NO_STATE = -1


def request(node, *, seen=0, step=NO_STATE, run=0, reached=()):
    return Request(f"{node}-{run}", seen, step, tuple(reached))


def made(worlds, *nodes, **fields):
    for node in nodes:
        worlds.ask(node, request(node, **fields))
    return worlds.advance(nodes)


def test_a_first_world_waits_for_all_that_are_awaited():
    worlds = Worlds()
    worlds.ask("a", request("a"))
    assert worlds.advance(["a", "b"], awaited=["a", "b"]) is None
    worlds.ask("b", request("b"))
    assert worlds.advance(["a", "b"], awaited=["a", "b"]) == ()
    assert worlds.now == World(1, ("a", "b"), ("a-0", "b-0"), (NO_STATE, NO_STATE))
    assert worlds.found("b", request("b")) == worlds.now
    assert worlds.found("b", request("b", seen=1)) is None


def test_a_member_that_comes_is_last_and_gets_the_state_of_the_furthest():
    worlds = Worlds()
    made(worlds, "b", "a")
    worlds.ask("c", request("c"))
    assert worlds.is_outdated(["c", "a", "b"])
    assert worlds.advance(["c", "a", "b"]) is None, "the members are in the middle of a step"
    worlds.ask("a", request("a", seen=1, step=7, reached=[Reached("a", 3, 10)]))
    worlds.ask("b", request("b", seen=1, step=8, reached=[Reached("a", 3, 20)]))
    assert worlds.advance(["c", "a", "b"]) == (Reached("a", 3, 20),)
    assert (worlds.now.members, worlds.now.source) == (("b", "a", "c"), 0)


def test_those_who_stay_go_on_without_one_that_is_lost():
    worlds = Worlds()
    made(worlds, "a", "b", "c")
    worlds.lose("b")
    assert worlds.is_outdated(["a", "c"])
    worlds.ask("a", request("a", seen=1, step=5))
    assert worlds.advance(["a", "c"]) is None
    worlds.ask("c", request("c", seen=1, step=5))
    assert worlds.advance(["a", "c"]) is not None
    assert worlds.now.members == ("a", "c")


def test_another_process_of_a_node_has_no_state_and_keeps_its_rank():
    worlds = Worlds()
    made(worlds, "a", "b")
    worlds.ask("a", request("a", run=1))
    assert worlds.is_outdated(["a", "b"])
    worlds.ask("b", request("b", seen=1, step=4))
    worlds.advance(["a", "b"])
    assert worlds.now.members == ("a", "b")
    assert worlds.now.source == 1
    assert worlds.found("a", request("a")) is None, "that process has ended"


class Processes(RuleBasedStateMachine):
    """Processes that train in step, as the client does; a death may leave some a step behind."""

    def __init__(self):
        super().__init__()
        self.worlds, self.n_named, self.target = Worlds(), 0, 2
        self.alive = {}  # node -> [seen, step, whether it asks]
        self.applied = 0

    @property
    def wanted(self):
        return list(self.alive)[: self.target]

    @rule()
    def begin(self):
        if len(self.alive) < 5:
            self.alive[f"n{self.n_named}"] = [0, NO_STATE, True]
            self.n_named += 1

    @rule(n=st.integers(1, 4))
    def scale(self, n):
        self.target = n

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def die(self, data):
        gone = data.draw(st.sampled_from(sorted(self.alive)))
        members = self.worlds.now.members
        del self.alive[gone]
        self.worlds.lose(gone)
        for node in members:
            state = self.alive.get(node)
            if gone in members and state is not None and state[0] == self.worlds.now.number:
                state[1] += data.draw(st.integers(0, 1))  # whether this one has seen the step complete
                state[2] = True

    @rule()
    def step(self):
        """All members train one, and notice another world after it."""
        now = self.worlds.now
        states = [self.alive.get(node) for node in now.members]
        if states and all(s is not None and s[0] == now.number and not s[2] for s in states):
            for state in states:
                state[1] += 1
                state[2] = self.worlds.is_outdated(self.wanted)

    @rule()
    def ask(self):
        for node, (seen, step, asks) in self.alive.items():
            if asks:
                self.worlds.ask(node, request(node, seen=seen, step=step))

    @rule()
    def advance(self):
        before = self.worlds.now
        if self.worlds.advance(self.wanted) is None:
            assert self.worlds.now == before
            return
        now = self.worlds.now
        assert now.number == before.number + 1
        assert set(now.members) <= set(self.wanted)
        kept = [node for node in before.members if node in now.members]
        assert list(now.members[: len(kept)]) == kept, "ranks change as little as possible"
        newest = max(self.alive[node][1] for node in now.members)
        assert self.alive[now.members[now.source]][1] == newest
        for node in now.members:
            state = self.alive[node]
            assert state[2], "nobody is taken out of a step"
            found = self.worlds.found(node, request(node, seen=state[0], step=state[1]))
            assert found == now
            state[:] = [now.number, max(newest, 0), False]

    @invariant()
    def members_are_distinct(self):
        assert len(set(self.worlds.now.members)) == len(self.worlds.now.members)

    def teardown(self):
        """Whatever happened, all who are wanted train together once each of them had its turn."""
        for _ in range(4):
            self.step()
            self.ask()
            self.advance()
        assert set(self.worlds.now.members) == set(self.wanted) or not self.wanted


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
