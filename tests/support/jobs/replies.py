"""What a job answers when it is asked: a line of a log, an explanation of a plan."""

from __future__ import annotations

from dataclasses import replace

from dlrover_nb.core.structs.decisions.decisions import BreakEven
from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Marginal, Measured, Weighed
from support.jobs import builders as b

LINE = LogLine(b.START_S + 3, "worker-0", "INFO", "reads shard 3")


def explanation(**changes: object) -> Explanation:
    step = Weighed(b.plan(3, 1, 0.5, 0.5), b.candidate(b.plan(3, 1, 0.5, 0.5)))
    base = Explanation(
        plan=b.BETTER_PLAN,
        proposal="p2",
        candidate=b.candidate(b.BETTER_PLAN),
        baseline=b.candidate(b.NOW_PLAN),
        why="2 workers train 1.9 times as fast",
        binding=("workers: 2, the bound of the job",),
        marginals=(
            Marginal("1 more worker", step, 12_345.0, 0.017),
            Marginal("1 PS fewer", Weighed(b.NOW_PLAN, None, "a job needs at least 1 PS"), None, None),
        ),
        evidence=(Measured(b.NOW_PLAN, 30_000.0, 7, b.prediction(b.NOW_PLAN)),),
        flip=BreakEven("x", 1.0, 2.0, "cores", b.NOW_PLAN, "Above 2 cores another plan is better."),
        runner_up=b.candidate(b.plan(3, 2)),
        runner_up_why="It costs more than it brings.",
        probe=b.candidate(b.plan(2, 2)),
        probe_why="Experiment: trying it removes about 40 % of the uncertainty.",
    )
    return replace(base, **changes)  # type: ignore[arg-type]
