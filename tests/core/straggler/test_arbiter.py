"""The arbiter's rules, one by one and over random sequences of findings."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.straggler.arbiter import RULES, Facts, Limits, Order, arbitrate, recovered
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    Proposed,
)
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler

# A busy machine is no mistake: no test fails because it takes long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def role_of(node):
    return Role.PS if node.startswith("ps") else Role.WORKER


def found(*nodes):
    return tuple(
        Straggler(node, role_of(node), Pace.PERSISTENT, 3.0, 1.0, 600.0, 0.0, "ratio") for node in nodes
    )


def facts(n_worker=8, n_ps=3, slow=(), **more):
    iterations = {f"worker-{i}": 100 + i for i in range(n_worker)}
    ps = tuple(f"ps-{i}" for i in range(n_ps))
    return Facts(1_000.0, iterations, ps, 10 * n_worker, found(*slow), **more)


def kill(node):
    return KillRestart(node, role_of(node))


def judged(actions, where, limits=None):
    done = arbitrate([Proposed(action, "because") for action in actions], where, limits)
    return [order.action for order in done.orders], [refusal.reason for refusal in done.refusals]


def sizes(n=8, size=10):
    return AdjustBatches(tuple((f"worker-{i}", size) for i in range(n)))


def test_what_is_admitted_keeps_its_reason():
    (order,) = arbitrate([Proposed(sizes(), "because")], facts()).orders
    assert order == Order(sizes(), "because")


def test_restarts_of_a_quarter_go_together_and_the_others_wait(words):
    slow = [f"worker-{i}" for i in range(4)]
    done, refused = judged([kill(node) for node in slow], facts(slow=slow))
    assert done == [kill("worker-0"), kill("worker-1")]
    (why,) = set(refused)
    assert why == words
    assert len(refused) == 2


def test_of_three_workers_one_is_restarted():
    assert judged([kill("worker-1")], facts(3, slow=["worker-1"]))[0] == [kill("worker-1")]


REFUSED = [
    (kill("worker-0"), facts(1, slow=["worker-0"]), "worker-0 is the last worker that would be left"),
    (MoveBuckets("ps-0"), facts(n_ps=1, slow=["ps-0"]), "ps-0 is the only parameter server that could hold its parameters"),
    (kill("ps-0"), facts(slow=["ps-0"], relieved_ps=frozenset({"ps-0"}), last_at_s={"ps-0": 900.0}), "after 300 s"),
    (kill("ps-0"), facts(relieved_ps=frozenset({"ps-0"})), "ps-0 has recovered"),
    (kill("worker-0"), facts(slow=["worker-0"], running=(kill("worker-5"),)), "still busy with: restart worker-5"),
    (sizes(), facts(running=(MoveBuckets("ps-0"),)), "still busy with: move the parameters of ps-0"),
    (kill("worker-0"), facts(slow=["worker-0"], is_busy=True), "the cluster is busy: a new node for worker-0"),
    (sizes(2), facts(2, slow=["worker-0", "worker-1"]), "all 2 workers are slow"),
    (kill("ps-1"), facts(n_ps=2, slow=["ps-0", "ps-1"]), "all 2 parameter servers are slow"),
    (kill("worker-0"), facts(), "worker-0 has recovered"),
    (kill("worker-9"), facts(slow=["worker-9"]), "the job has no worker worker-9"),
    (kill("worker-0"), facts(slow=["worker-0"], last_at_s={"worker-0": 700.0}), "was 300 s ago"),
    (sizes(7), facts(), "made for other workers than the present ones: worker-7"),
    (sizes(8, 9), facts(), "sum to 72 and not to the global batch of 80"),
    (AdjustRates((("worker-0", 0.5),)), facts(), "made for other workers"),
    (BackupWorkers(8), facts(), "8 of 8 workers cannot be left out"),
    (BackupWorkers(1), replace(facts(), iterations={"worker-0": 5, "worker-1": None}), "worker-1 has not reported"),
]  # fmt: skip


@for_each(("action", "where", "why"), REFUSED)
def test_each_refusal_says_why(action, where, why):
    done, (reason,) = judged([action], where)
    assert done == []
    assert why in reason


def test_a_busy_cluster_still_lets_sizes_be_adjusted():
    assert judged([sizes()], facts(is_busy=True))[0] == [sizes()]


def test_a_slow_ps_gives_buckets_away_first_and_is_replaced_when_that_is_not_enough(words):
    where = facts(slow=["ps-0"])
    done, refused = judged([kill("ps-0")], where)
    assert done == [MoveBuckets("ps-0")]
    assert refused == [words]
    still = replace(where, relieved_ps=frozenset({"ps-0"}), last_at_s={"ps-0": 600.0})
    assert judged([kill("ps-0")], still)[0] == [kill("ps-0")]


def test_the_only_ps_is_replaced_as_nobody_can_relieve_it():
    assert judged([kill("ps-0")], facts(n_ps=1, slow=["ps-0"]))[0] == [kill("ps-0")]


def test_a_ps_with_parameters_is_moved_once_however_often_it_is_asked_for():
    where = facts(slow=["ps-1"])
    assert judged([MoveBuckets("ps-1"), kill("ps-1"), kill("ps-1")], where)[0] == [MoveBuckets("ps-1")]


def test_node_actions_and_global_ones_do_not_share_a_round():
    where = facts(slow=["worker-3"])
    assert judged([kill("worker-3"), sizes()], where)[0] == [kill("worker-3")]
    assert judged([sizes(), kill("worker-3"), BackupWorkers(1)], where)[0] == [sizes()]


def test_an_order_that_has_not_begun_is_withdrawn_when_its_node_recovers():
    orders = [Order(kill("worker-1"), ""), Order(kill("worker-2"), ""), Order(sizes(), "")]
    withdrawn = recovered(orders, facts(slow=["worker-2"]))
    assert [refusal.action for refusal in withdrawn] == [kill("worker-1")]
    assert [refusal.reason for refusal in withdrawn] == ["worker-1 has recovered"]


def test_every_rule_has_refused_something_above():
    reasons = [arbitrate([Proposed(action, "")], where).refusals[0].rule for action, where, _ in REFUSED]
    assert {rule.name for rule in RULES} - set(reasons) <= {"few at once", "relieved first", "node or global"}


# Random sequences: findings come and go, orders take several rounds.

nodes = [*(f"worker-{i}" for i in range(6)), *(f"ps-{i}" for i in range(3))]
action = st.one_of(
    st.sampled_from(nodes).map(kill),
    st.sampled_from(nodes[6:]).map(MoveBuckets),
    st.integers(0, 7).map(BackupWorkers),
    st.sampled_from([(6, 10), (6, 9), (5, 12)]).map(lambda p: sizes(*p)),
)
step = st.tuples(
    st.lists(action, max_size=6), st.sets(st.sampled_from(nodes)), st.booleans(), st.booleans(), st.floats(1, 900)
)  # fmt: skip


class Executor:
    """Carries orders out and checks on its own, from what happens to nodes, that the job stays safe."""

    def __init__(self, n_worker, n_ps):
        self.workers = [f"worker-{i}" for i in range(n_worker)]
        self.ps = [f"ps-{i}" for i in range(n_ps)]
        self.relieved, self.running, self.last, self.at_s = set(), [], {}, 0.0

    def facts(self, slow, is_busy):
        present = set(self.workers) | set(self.ps)
        return Facts(
            self.at_s,
            dict.fromkeys(self.workers, 100),
            tuple(self.ps),
            60,
            found(*sorted(slow & present)),
            frozenset(self.relieved),
            tuple(self.running),
            dict(self.last),
            is_busy,
        )

    def begin(self, orders, where, limits):
        assert not (self.running and orders)
        killed = [o.action for o in orders if isinstance(o.action, KillRestart)]
        workers = [a.node for a in killed if a.role is Role.WORKER]
        assert len(workers) <= max(1, limits.share * len(self.workers))
        assert len(workers) < len(self.workers)
        assert not (killed and where.is_busy)
        assert len([o for o in orders if o.action.is_global]) in {0, len(orders)}
        assert len([o for o in orders if o.action.is_global]) <= 1
        for order in orders:
            self.check(order, where, limits)
        assert len([o for o in orders if not o.action.is_global and o.action.role is Role.PS]) <= 1
        self.running = [order.action for order in orders]

    def check(self, order, where, limits):
        action = order.action
        if action.is_global:
            assert not isinstance(action, AdjustBatches) or action.total == where.global_batch
            assert not set(self.workers) <= where.slow or len(self.workers) == 1
            return
        assert action.node in where.slow
        assert not isinstance(action, MoveBuckets) or len(self.ps) > 1
        rest_s = limits.cooldown_s
        if isinstance(action, KillRestart) and action.role is Role.PS and len(self.ps) > 1:
            assert action.node in self.relieved
            rest_s /= 2
        assert self.at_s - self.last.get(action.node, -1e9) >= rest_s
        self.last[action.node] = self.at_s

    def end(self):
        for action in self.running:
            if isinstance(action, MoveBuckets):
                self.relieved.add(action.ps)
            elif isinstance(action, KillRestart):
                self.relieved.discard(action.node)
        self.running = []


@patient
@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.lists(step, max_size=12),
    st.floats(0.0, 0.9),
    st.floats(0.0, 1_200.0),
)
def test_no_sequence_of_findings_breaks_a_rule(n_worker, n_ps, steps, share, cooldown_s):
    job, limits = Executor(n_worker, n_ps), Limits(share, cooldown_s)
    for actions, slow, is_busy, ends, passed_s in steps:
        job.at_s += passed_s
        where = job.facts(slow, is_busy)
        done = arbitrate([Proposed(item, "because") for item in actions], where, limits)
        assert all(refusal.reason for refusal in done.refusals)
        job.begin(done.orders, where, limits)
        if ends:
            job.end()
