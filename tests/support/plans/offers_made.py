"""Offers of jobs for tests, with the plans that a hypothesis strategy draws."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dlrover_nb.core.structs.plan.offers import JobOffer
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

MIB = 1024


def offer(
    job: str,
    plan: tuple[int, int, float, float],
    *others: tuple[int, int, float, float],
    n_left: int = 1_000_000,
    per_core: float = 1000.0,
    price: float = 0.04,
    **fields: object,
) -> JobOffer:
    """Return the offer of a job whose speed is proportional to its workers' cores."""

    def speed(p: tuple[int, int, float, float]) -> float:
        return per_core * p[0] * p[2]

    def cores(p: tuple[int, int, float, float]) -> float:
        return p[0] * p[2] + p[1] * p[3]

    rows = [(*p, speed(p), speed(p) - speed(plan), price * cores(p)) for p in others]
    columns = np.array(rows, dtype="<f8").reshape(-1, 7).T
    given = {"owner": "ada", "is_priced": True} | fields
    return JobOffer(
        job=job,
        plan=ResourcePlan(RolePlan(plan[0], plan[2], MIB), RolePlan(plan[1], plan[3], MIB)),
        samples_per_s=speed(plan),
        cost=price * cores(plan),
        n_sample_left=n_left,
        columns=np.ascontiguousarray(columns).tobytes(),
        worker_memory_mib=MIB,
        ps_memory_mib=MIB,
        **given,  # type: ignore[arg-type]
    )


plans = st.tuples(
    st.integers(1, 12),
    st.integers(1, 4),
    st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    st.sampled_from([0.5, 1.0, 2.0]),
)


@st.composite
def jobs(draw: st.DrawFn, n_most: int = 12) -> list[JobOffer]:
    """Draw the offers of some jobs."""
    n_job = draw(st.integers(1, n_most))
    return [
        offer(
            f"job-{i}",
            draw(plans),
            *draw(st.lists(plans, max_size=8, unique=True)),
            n_left=draw(st.integers(0, 10**8)),
            per_core=draw(st.floats(10, 10_000)),
            owner=draw(st.sampled_from(["ada", "bob", ""])),
            deadline_left_s=draw(st.none() | st.floats(-100, 1e6)),
        )
        for i in range(n_job)
    ]
