"""AntDT's monitor: which nodes are slow, from their reports, their errors and the cluster's queue.

Facts come in, findings go out; nothing is read but arguments. The time of a report is when it arrived, as
the caller's clock says: the clocks of nodes may be hours apart, and only the length of a report's window is
taken from the node. Reports may arrive in any order within the long window.

What is compared is a node's own work. Of a worker that is its iteration without the wait for peers and
without its exchange with the PS, which is kept apart; a worker whose own work is not slow, but whose whole
iteration without the wait for peers is, has a slow exchange, and its finding says so. Of a PS it is the time
of a request without idling. Times are those of an iteration, not of a sample, as in AntDT: a smaller batch
levels a node that is slow for a while. One that stays slow behind a small batch costs all of them a part of
their speed for good, so `levelled` compares times by rows.

A persistent straggler is slow over the long window and still over the short one: a node that has recovered
shall not be restarted. It is reported twice, since both hold, and the solution chooses.

Reports are kept in parts of time of one length. Parts lie at whole multiples of their length on the caller's
clock. A report is divided among the parts in which its iterations ran, so that reports of any length, and
iterations longer than a part, fill the windows that they cover. A part that is older than the long window is
dropped, and with its last part a node: the memory is bounded by the nodes that reported within the window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.detect import LONG_WINDOW_S, SHORT_WINDOW_S, beside_others
from dlrover_nb.core.straggler.rules import RULES, Thresholds, Window, excesses
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.solution_names import RuleName
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import LEAST_SPREAD, NodeErrors, Pace, Spread, Straggler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.straggler.rules import Rule
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.samples import NodeSample

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """What a node did in one part of time.

    Parameters
    ----------
    n_iter
        Iterations, or requests of a PS; a fraction where an iteration lies in two parts.
    n_sample
        Samples trained.
    work_s
        Seconds of its own work.
    exchange_s
        Seconds in which a worker exchanged rows and gradients with the PS: T_s and T_m of AntDT.
    """

    n_iter: float = 0.0
    n_sample: float = 0.0
    work_s: float = 0.0
    exchange_s: float = 0.0

    def plus(self, other: Part, share: float = 1.0) -> Part:
        """Add a share of another."""
        return Part(
            self.n_iter + share * other.n_iter,
            self.n_sample + share * other.n_sample,
            self.work_s + share * other.work_s,
            self.exchange_s + share * other.exchange_s,
        )


def part_of(sample: NodeSample, *, exchange_s: float, work_s: float) -> Part | None:
    """Return what a report says about times; None where it finished nothing, or told no number."""
    total_s = work_s + exchange_s
    if sample.n_iter <= 0 or not (math.isfinite(total_s) and work_s > 0 and exchange_s >= 0):
        return None
    n_iter = sample.n_iter
    return Part(float(n_iter), float(sample.n_sample), n_iter * work_s, n_iter * exchange_s)


def shares(from_s: float, to_s: float, part_s: float) -> Iterator[tuple[int, float]]:
    """Yield the index of each part that a stretch of time touches, and its share of the stretch."""
    first = math.floor(from_s / part_s)
    last = max(first, math.ceil(to_s / part_s) - 1)
    if last == first:
        yield first, 1.0
        return
    for index in range(first, last + 1):
        inside_s = min(to_s, (index + 1) * part_s) - max(from_s, index * part_s)
        if inside_s > 0:
            yield index, inside_s / (to_s - from_s)


N_PART = 10  # of the short window
_LEAST_SINCE = 2  # parts after a node became slow, of which a mean says how fast it is now
STEADY = 4  # how many times its own scatter workers differ by
_NOTHING = Part()
_COVERED = {
    Pace.TRANSIENT: 0.5,
    Pace.PERSISTENT: 0.8,
}  # of the window, by the reports of a node that is judged


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Windows in seconds, the rule by its name, and its thresholds."""

    short_s: float = SHORT_WINDOW_S
    long_s: float = LONG_WINDOW_S
    rule: str = RuleName.ROBUST
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        _check.above_zero("short_s", self.short_s)
        _check.at_least("long_s", self.long_s, self.short_s, hint="it holds the short window")

    @classmethod
    def of(cls, spec: JobSpec) -> MonitorSettings:
        """Return the settings of a job."""
        thresholds = Thresholds(ratio=spec.tuning.antdt.slowness_ratio)
        return cls(spec.straggler_window_s, spec.long_window_s, spec.straggler_rule, thresholds)

    @property
    def part_s(self) -> float:
        """Length of a part of the windows."""
        return self.short_s / N_PART

    @property
    def n_long(self) -> int:
        """Parts of the long window."""
        return round(self.long_s / self.part_s)


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """Means of one node over the short window.

    `work_s` and `exchange_s` are seconds of an iteration (of a PS: of a request, and 0); `samples_per_s` is
    the speed of its own work, v_i of AntDT (0 for a PS).
    """

    node: str
    role: Role
    work_s: float
    exchange_s: float
    samples_per_s: float


class Monitor:
    """Collects facts about the nodes of one job and answers which are slow.

    Its state is plain containers of records, bounded by the nodes that reported within the long window.

    Parameters
    ----------
    settings
        Windows and thresholds; None: AntDT's.
    rule
        The rule that `settings` names; None: it is one of `RULES`.
    """

    def __init__(self, settings: MonitorSettings | None = None, rule: Rule | None = None) -> None:
        self._settings = s = settings or MonitorSettings()
        if rule is None and s.rule not in RULES:
            raise InvalidValueError(f"rule must be one of {', '.join(RULES)}, got {s.rule!r}")
        self._rule = rule or RULES[s.rule]
        self._parts: dict[Role, dict[str, dict[int, Part]]] = {role: {} for role in Role}
        self._errors: dict[Role, dict[str, dict[int, tuple[int, int]]]] = {role: {} for role in Role}
        self._pending: dict[int, tuple[float, int]] = {}  # sum and number
        self._since: dict[Role, dict[str, float]] = {role: {} for role in Role}
        self._best: dict[str, float] = {}  # of workers: time of a row over their peers', at its lowest
        self._last = -math.inf  # newest part

    def observe(self, sample: NodeSample, at_s: float) -> None:
        """Take a report that arrived at `at_s`."""
        self._advance(at_s)
        own = part_of(sample, **_own(sample))
        if own is None:
            return
        length_s = min(max(sample.window_s, sample.iter_s), self._settings.long_s)
        mine = self._parts[sample.role].setdefault(sample.node, {})
        for index, share in shares(at_s - length_s, at_s, self._settings.part_s):
            mine[index] = mine.get(index, _NOTHING).plus(own, share)
        self._drop(mine)

    def note_error(self, node: str, role: Role, at_s: float, *, is_retryable: bool) -> None:
        """Count an error of a node; retryable are eviction and network, unretryable those of the program."""
        self._advance(at_s)
        mine = self._errors[role].setdefault(node, {})
        index = self._index(at_s)
        retryable, unretryable = mine.get(index, (0, 0))
        mine[index] = (retryable + is_retryable, unretryable + (not is_retryable))
        self._drop(mine)

    def forget(self, node: str) -> None:
        """Drop all that is known of a node: it has left, or what was measured is no longer true of it."""
        for role in Role:
            for by_node in (self._parts[role], self._errors[role], self._since[role]):
                by_node.pop(node, None)
        self._best.pop(node, None)

    def note_pending(self, pending_s: float, at_s: float) -> None:
        """Take how long nodes wait for a place in the cluster."""
        _check.at_least("pending_s", pending_s, 0)
        self._advance(at_s)
        total_s, n = self._pending.get(self._index(at_s), (0.0, 0))
        self._pending[self._index(at_s)] = (total_s + pending_s, n + 1)
        self._drop(self._pending)

    def findings(self, at_s: float) -> tuple[Straggler, ...]:
        """Return the stragglers of the windows that end at `at_s`, by role, pace and node."""
        return tuple(straggler for role in Role for straggler in self._found(role, self._index(at_s), *Pace))

    def levelled(self, at_s: float) -> tuple[Straggler, ...]:
        """Return the workers that are slow for long behind a batch that was made smaller for them.

        Such a worker takes as long as its peers for a step of fewer rows, λ times as long or longer for a
        row, and λ times as long as it took itself when it was at its best beside them: workers that differ
        since they began, as machines of several kinds do, are none.
        """
        end, mine = self._index(at_s), self._parts[Role.WORKER]
        nodes = sorted(mine)
        if len(nodes) < 2:
            return ()
        work_s, n_sample, n_iter = self._rows_of(nodes, end)
        sums, least = (work_s, n_sample), self._settings.thresholds.ratio
        rows = _over(n_sample.sum(axis=1), n_iter.sum(axis=1))
        rows_beside, ratios = (beside_others(each[:, None])[:, 0] for each in (rows, _row_s(sums)))
        worse = [ratios[i] >= least * self._best.get(node, math.inf) for i, node in enumerate(nodes)]
        is_small = rows_beside * self._settings.thresholds.least_ratio <= 1
        slow = self._slow(sums, Pace.PERSISTENT) & is_small & (ratios >= least) & np.array(worse)
        where = Role.WORKER, Pace.PERSISTENT, end
        return tuple(
            self._by_rows(self._finding(nodes, i, where, ("own work for a row", sums)), rows, i)
            for i in np.flatnonzero(slow).tolist()
        )

    def times(
        self, role: Role, at_s: float, since_s: Mapping[str, float] | None = None
    ) -> tuple[NodeTimes, ...]:
        """Return the means of the nodes of a role over the short window.

        Parameters
        ----------
        since_s
            By node: when it became slow, where that is known. Its means are those of the time since then, if
            there is enough of it: one over the time before too would be of neither.
        """
        end = self._index(at_s)
        sums = {
            node: _sum(mine, end, self._n_since((since_s or {}).get(node), end))
            for node, mine in self._parts[role].items()
        }
        return tuple(_times(node, role, sums[node]) for node in sorted(sums) if sums[node].n_iter > 0)

    def spread(self, at_s: float) -> Spread | None:
        """Return how far workers differ for good; None: not much, not steadily, or not known for long enough.

        Steady is a worker whose part means scatter little beside what the two furthest workers differ by. So
        noise of all workers is no heterogeneity, and neither is one worker that has just become slow.
        """
        nodes, s = sorted(self._parts[Role.WORKER]), self._settings
        if len(nodes) < 2:
            return None
        seconds, n_iter = self._measures(Role.WORKER, nodes, self._index(at_s))[0][1]
        parts, means = _over(seconds, n_iter), _over(seconds.sum(axis=1), n_iter.sum(axis=1))
        is_known = np.isfinite(parts).sum(axis=1) >= _COVERED[Pace.PERSISTENT] * s.n_long
        first, last = int(np.argmin(means)), int(np.argmax(means))
        if not is_known.all() or means[first] <= 0:
            return None
        ratio = float(means[last] / means[first])
        scatter = np.nanstd(np.log(np.maximum(parts, means[first] / 100)), axis=1)
        if ratio < LEAST_SPREAD or scatter.max() > math.log(ratio) / STEADY:
            return None
        return Spread(nodes[first], nodes[last], ratio, s.long_s)

    def errors(self, at_s: float) -> tuple[NodeErrors, ...]:
        """Return the errors of nodes within the long window."""
        end = self._index(at_s)
        errors = []
        for role, nodes in self._errors.items():
            for node, mine in sorted(nodes.items()):
                counts = [mine[i] for i in mine if end - self._settings.n_long < i <= end]
                if counts:
                    n_retryable, n_unretryable = map(sum, zip(*counts, strict=True))
                    errors.append(NodeErrors(node, role, n_retryable, n_unretryable, self._settings.long_s))
        return tuple(errors)

    def pending_s(self, pace: Pace, at_s: float) -> float | None:
        """Return the mean pending time over the window of a pace; None: nothing is known."""
        end, n_part = self._index(at_s), self._n_part(pace)
        recent = [self._pending[i] for i in self._pending if end - n_part < i <= end]
        return sum(total for total, _ in recent) / sum(n for _, n in recent) if recent else None

    @property
    def n_part(self) -> int:
        """Parts that are held, of all nodes: what its memory is proportional to."""
        parts = [
            mine
            for by_role in (self._parts, self._errors)
            for nodes in by_role.values()
            for mine in nodes.values()
        ]
        return sum(map(len, parts)) + len(self._pending)

    def _found(self, role: Role, end: int, *paces: Pace) -> list[Straggler]:
        nodes = sorted(self._parts[role])
        if len(nodes) < 2:
            return []
        measures = self._measures(role, nodes, end)  # half of the time of a review, so once for all paces
        return [each for pace in paces for each in self._found_over(nodes, measures, (role, pace, end))]

    def _found_over(
        self,
        nodes: list[str],
        measures: list[tuple[str, tuple[Floats, Floats]]],
        where: tuple[Role, Pace, int],
    ) -> list[Straggler]:
        stragglers: dict[str, Straggler] = {}
        for what, sums in measures:
            for i in np.flatnonzero(self._slow(sums, where[1])).tolist():
                if nodes[i] not in stragglers:
                    stragglers[nodes[i]] = self._finding(nodes, i, where, (what, sums))
        return [stragglers[node] for node in sorted(stragglers)]

    def _slow(self, sums: tuple[Floats, Floats], pace: Pace) -> NDArray[np.bool_]:
        """Return which nodes are slow over the window of a pace, and still over the short one."""
        rule, thresholds = self._rule, self._settings.thresholds
        now = _window(sums, self._n_judged(Pace.TRANSIENT))
        window = now if pace is Pace.TRANSIENT else _window(sums, self._n_judged(pace))
        is_slow = rule.is_slow(now, thresholds)
        if window is not now and is_slow.any():  # mostly no node is, and a master looks often
            is_slow = is_slow & rule.is_slow(window, thresholds)
        return np.asarray(self._may_be_judged(window, pace) & is_slow)

    def _finding(
        self,
        nodes: list[str],
        i: int,
        where: tuple[Role, Pace, int],
        measure: tuple[str, tuple[Floats, Floats]],
    ) -> Straggler:
        (role, pace, end), (what, sums) = where, measure
        window = _window(sums, self._n_judged(pace))
        others = np.delete(window.means, i)
        return Straggler(
            node=nodes[i],
            role=role,
            pace=pace,
            iter_s=float(window.means[i]),
            peers_s=float(np.nanmean(others)),
            window_s=window.n_judged * self._settings.part_s,
            since_s=self._since[role].get(nodes[i], _spell_s(window, i, end, self._settings)),
            rule=f"{what}: {self._rule.words}",
        )

    def _measures(self, role: Role, nodes: list[str], end: int) -> list[tuple[str, tuple[Floats, Floats]]]:
        """Return what is compared, in words, with its seconds and iterations by node and part."""
        table = np.array([_rows(self._parts[role][node], end, self._settings.n_long) for node in nodes])
        n_iter, work_s, exchange_s = np.moveaxis(table, 2, 0)
        own = "own work", (work_s, n_iter)
        if role is Role.PS or not exchange_s.any():
            return [own]
        return [own, ("own work and exchange with the PS", (work_s + exchange_s, n_iter))]

    def _rows_of(self, nodes: list[str], end: int) -> tuple[Floats, Floats, Floats]:
        """Return own work, rows and iterations of workers by part of the long window."""
        n_part, mine = self._settings.n_long, self._parts[Role.WORKER]
        parts = [[mine[node].get(i, _NOTHING) for i in range(end - n_part + 1, end + 1)] for node in nodes]
        table = np.array([[(p.work_s, p.n_sample, p.n_iter) for p in row] for row in parts])
        work_s, n_sample, n_iter = np.moveaxis(table, 2, 0)
        return work_s, n_sample, n_iter

    def _by_rows(self, finding: Straggler, rows: Floats, i: int) -> Straggler:
        """Return a finding about a row as one about as many rows as the others have in a step."""
        n_row = float(np.nanmean(np.delete(rows, i)))
        return replace(finding, iter_s=n_row * finding.iter_s, peers_s=n_row * finding.peers_s, by_rows=True)

    def _n_since(self, since_s: float | None, end: int) -> int:
        """Return how many parts lie after one in which a node became slow; all of a window if too few do."""
        n = N_PART if since_s is None else end - self._index(since_s) - 1
        return min(n, N_PART) if n >= _LEAST_SINCE else N_PART

    def _may_be_judged(self, window: Window, pace: Pace) -> NDArray[np.bool_]:
        """Return which nodes reported about enough of the window, and of late."""
        judged = np.isfinite(window.parts[:, -window.n_judged :])
        is_covered = judged.sum(axis=1) >= math.floor(_COVERED[pace] * window.n_judged)
        return np.asarray(is_covered & judged[:, -N_PART:].any(axis=1))

    def _n_part(self, pace: Pace) -> int:
        return N_PART if pace is Pace.TRANSIENT else self._settings.n_long

    def _n_judged(self, pace: Pace) -> int:
        return round(self._rule.of_short * N_PART) if pace is Pace.TRANSIENT else self._settings.n_long

    def _index(self, at_s: float) -> int:
        """Return the part that holds the time before `at_s`."""
        return math.ceil(at_s / self._settings.part_s) - 1

    def _advance(self, at_s: float) -> None:
        """Drop what is older than the long window, and remember since when nodes are slow."""
        _check.finite("at_s", at_s)
        index = self._index(at_s)
        if index <= self._last:
            return
        if math.isfinite(self._last):
            self._remember(int(self._last))
        self._last = index
        for by_role in (self._parts, self._errors):
            for nodes in by_role.values():
                self._drop_all(nodes)
        self._best = {node: best for node, best in self._best.items() if node in self._parts[Role.WORKER]}
        self._drop(self._pending)

    def _remember(self, end: int) -> None:
        for role in Role:
            stragglers = self._found(role, end, Pace.TRANSIENT)
            self._since[role] = {each.node: each.since_s for each in stragglers}
        self._remember_best(end)

    def _remember_best(self, end: int) -> None:
        """Remember how fast each worker is at its best, by rows and beside the others."""
        mine = self._parts[Role.WORKER]
        totals = {node: _sum(parts, end, N_PART) for node, parts in mine.items()}
        row_s = {node: each.work_s / each.n_sample for node, each in totals.items() if each.n_sample > 0}
        ratios = (
            beside_others(np.array([[each_s] for each_s in row_s.values()]))[:, 0] if len(row_s) > 1 else ()
        )
        for node, ratio in zip(row_s, ratios, strict=False):
            if self._is_covered(mine[node], end):
                self._best[node] = min(float(ratio), self._best.get(node, math.inf))

    def _is_covered(self, parts: Mapping[int, Part], end: int) -> bool:
        """Whether a node has reported of the whole short window, so that a mean over it says something."""
        return all(index in parts for index in range(end - N_PART + 1, end + 1))

    def _drop_all(self, nodes: dict[str, dict[int, Part]] | dict[str, dict[int, tuple[int, int]]]) -> None:
        for node in list(nodes):
            self._drop(nodes[node])
            if not nodes[node]:
                del nodes[node]

    def _drop(
        self, parts: dict[int, Part] | dict[int, tuple[int, int]] | dict[int, tuple[float, int]]
    ) -> None:
        for index in [i for i in parts if i <= self._last - self._settings.n_long]:
            del parts[index]


def _own(sample: NodeSample) -> dict[str, float]:
    """Return the seconds of own work and of exchange in a mean iteration, without any waiting."""
    split = sample.split
    exchange_s = 0.0 if sample.role is Role.PS else split.lookup_s + split.update_s
    return {"exchange_s": exchange_s, "work_s": sample.iter_s - split.idle_s - split.peers_s - exchange_s}


def _sum(parts: Mapping[int, Part], end: int, n_part: int) -> Part:
    total = Part()
    for index in range(end - n_part + 1, end + 1):
        total = total.plus(parts.get(index, _NOTHING))
    return total


def _times(node: str, role: Role, total: Part) -> NodeTimes:
    n_iter = total.n_iter
    return NodeTimes(
        node, role, total.work_s / n_iter, total.exchange_s / n_iter, total.n_sample / total.work_s
    )


def _rows(parts: Mapping[int, Part], end: int, n_part: int) -> list[tuple[float, float, float]]:
    window = (parts.get(index, _NOTHING) for index in range(end - n_part + 1, end + 1))
    return [(part.n_iter, part.work_s, part.exchange_s) for part in window]


def _window(sums: tuple[Floats, Floats], n_judged: int) -> Window:
    seconds, n_iter = sums
    return Window(
        _over(seconds, n_iter),
        _over(seconds[:, -n_judged:].sum(axis=1), n_iter[:, -n_judged:].sum(axis=1)),
        n_judged,
    )


def _row_s(sums: tuple[Floats, Floats]) -> Floats:
    """Return the mean time of a row by node over the short window."""
    return _window(sums, N_PART).means


def _over(seconds: Floats, n_iter: Floats) -> Floats:
    means: Floats = np.divide(seconds, n_iter, out=np.full(seconds.shape, np.nan), where=n_iter > 0)
    return means


def _spell_s(window: Window, node: int, end: int, settings: MonitorSettings) -> float:
    """Return when the latest stretch began in which the node was slow, with single parts that were not."""
    slow = excesses(window.parts)[node] >= math.log(settings.thresholds.least_ratio)
    first = missed = 0
    for age, is_slow in enumerate(slow[::-1].tolist()):
        missed = 0 if is_slow else missed + 1
        if missed > 1:
            break
        first = age if is_slow else first
    return (end - first) * settings.part_s
