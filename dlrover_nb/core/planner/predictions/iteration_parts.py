"""The parts of an iteration of plans, and what of it no part explains.

The equations say in which ratio each term changes from plan to plan; how long the present plan's iteration
takes is measured. So the terms of all plans are stretched by one factor, that of the present plan: a term
that a change cannot touch, such as computing gradients (Eq. 2 of DLRover-RM) where workers and their cores
stay, takes as long before as after. What is predicted or measured beyond that is a part of its own, `rest`,
"not explained by the plan"; it is negative where an iteration is shorter than its terms.

Rejected: to stretch the terms of each plan to its own iteration. That gave "1 instead of 2 cores per PS
shorten the exchange of parameters by 59 %", where other plans were simply faster than the equations say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.decisions.candidates import HOST, REST, TermShare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Parts = tuple[TermShare, ...]


def parts(terms: Sequence[str], seconds: Array, iter_s: Array, now: tuple[Array, float]) -> tuple[Parts, ...]:
    """Return the terms of the iteration of each plan, and the rest, whose sum is the plan's T_iter.

    Parameters
    ----------
    seconds
        ndarray of shape (n_plans, n_term): the terms by the equations (`ThroughputModel.term_seconds`).
    iter_s
        ndarray of shape (n_plans,): T_iter as predicted or measured.
    now
        The same of the present plan: shape (n_term,), and a number.
    """
    now_seconds, now_iter_s = now
    total_s = float(now_seconds.sum())
    own = seconds * (now_iter_s / total_s if total_s > 0 else 0.0)
    rows = np.column_stack((own, iter_s - own.sum(axis=1)))
    return tuple(
        tuple(map(TermShare, (*terms, REST), row.tolist(), (row / whole_s).tolist()))
        for row, whole_s in zip(rows, iter_s.tolist(), strict=True)
    )


def with_host(own: Parts, host: float) -> Parts:
    """Return the parts of an iteration on a host that gives this part of its speed; other work comes last."""
    total_s = sum(part.seconds for part in own) / host
    shares = (TermShare(part.term, part.seconds, part.seconds / total_s) for part in own)
    return (*shares, TermShare(HOST, (1 - host) * total_s, 1 - host))
