"""The terms of T_iter as columns of a design matrix: the paper's five, and optional further ones.

T_iter = a_grad*m/lambda_w + a_upd*w/(p*lambda_p) + a_sync*(M/p)/(B/w) + a_emb*m*D/p + beta, all >= 0.
DLRover-RM writes one beta per term; they enter only through their sum, so there is one column for all. B is 1
here: inside one machine it cannot be separated from a_sync, and between machines it is constant over a job
("constants during a short time", DLRover-RM section 4.1), so that a_sync absorbs it.

Eqs. 1-6 have no cost that grows with w when p is large, and none per server. Real synchronous jobs have:

- contention, w: resources that workers share and p does not extend: cores of one machine, a switch, incast on
  return;
- barrier, log2 w: the slowest of w workers; the expected maximum of w equal exponential delays is ~ log w;
- dense, 1/p: the part of a PS that depends neither on the batch nor on w, as applying summed gradients;
- connections, p: a worker's cost per server, independent of the data sent (the last term of Optimus).

A job's own data decides which of them it needs (`perf.forms`).

A job without PS, whose workers sum gradients around a ring, has other terms:

T_iter = a_grad*m_s/lambda_w + a_ring*M*2(w-1)/w + a_hops*(w-1) + beta, all >= 0.

Each worker sends and receives 2(w-1)/w times the M bytes of gradients, and the messages go through w - 1
neighbors (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). m_s are the rows of the
slowest worker in a step. Workers that share a global batch of n mini-batches accumulate several: n mod w of
them one more than the others, floor(n/w) + 1 (DLRover), and all wait for those. Sparse gradients are gathered
and not summed: m*D*(w-1), the rows of all other workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.resources import ResourcePlan

AXES = ("workers", "ps", "worker_cpu", "ps_cpu")
PAPER_TERMS = ("gradients", "updates", "sync", "embeddings", "constant")
FURTHER_TERMS = ("contention", "barrier", "dense", "connections")
RING_TERMS = ("gradients", "ring", "hops", "constant")
TERMS = (*PAPER_TERMS, *FURTHER_TERMS, "ring", "hops", "gather")
COMPUTED = frozenset({"gradients"})  # by workers
WAITED = frozenset({"updates", "sync", "embeddings", "dense", "connections"})  # by workers, for PS


def axes_of(plans: Sequence[ResourcePlan]) -> NDArray[np.float64]:
    """Return the plans as rows (w, p, lambda_w, lambda_p): ndarray of shape (n_plans, 4)."""
    rows = [(p.worker.count, p.ps.count, p.worker.cpu, p.ps.cpu) for p in plans]
    return np.asarray(rows, dtype=np.float64).reshape(-1, 4)


def design(
    axes: NDArray[np.float64],
    batch_size: NDArray[np.float64] | float,
    *,
    dense_bytes: float,
    embedding_dim: float,
) -> NDArray[np.float64]:
    """Return the factor of each coefficient of Eqs. 1-6: ndarray of shape (n_plans, 5).

    Parameters
    ----------
    axes
        ndarray of shape (n_plans, 4), as `axes_of` makes it.
    batch_size
        m, samples of one worker's mini-batch: one number, or one per plan.
    dense_bytes, embedding_dim
        M in bytes and D in floats.
    """
    w, p, worker_cpu, ps_cpu = axes.T
    m = np.broadcast_to(np.asarray(batch_size, dtype=np.float64), w.shape)
    return np.column_stack(
        (
            m / worker_cpu,  # T_grad (eq. 2)
            w / (p * ps_cpu),  # T_upd (eq. 3)
            dense_bytes / p * w,  # T_sync with B = 1 (eq. 4)
            m * embedding_dim / p,  # T_emb (eq. 5)
            np.ones_like(w),  # the sum of all beta (eqs. 2-5)
        )
    )


def all_columns(
    axes: NDArray[np.float64],
    batch_size: NDArray[np.float64] | float,
    *,
    dense_bytes: float,
    embedding_dim: float,
    mini_batch: int | None = None,
) -> NDArray[np.float64]:
    """Return the columns of `TERMS`, with and without PS: ndarray of shape (n_plans, 12).

    Parameters
    ----------
    mini_batch
        Rows of the mini-batches in which workers share a global batch; None: each computes m rows.
    """
    w, p = axes[:, 0], axes[:, 1]
    paper = design(axes, batch_size, dense_bytes=dense_bytes, embedding_dim=embedding_dim)
    if mini_batch is not None:
        paper[:, 0] = slowest_rows(w, batch_size, mini_batch) / axes[:, 2]
    ring = dense_bytes * 2 * (w - 1) / w
    gathered = batch_size * embedding_dim * (w - 1)
    return np.column_stack((paper, w, np.log2(w), 1 / p, p, ring, w - 1, gathered))


def slowest_rows(
    workers: NDArray[np.float64], batch_size: NDArray[np.float64] | float, mini_batch: int
) -> NDArray[np.float64]:
    """Return the rows of the slowest worker in a step of a global batch: ndarray of shape (n_plans,).

    Parameters
    ----------
    workers, batch_size
        w, and m = B/w of each: ndarrays of shape (n_plans,), or one m.
    mini_batch
        A worker takes at least one, or part of one where there are fewer than workers.
    """
    whole = np.maximum(np.rint(workers * batch_size / mini_batch), 1.0)
    return np.asarray(np.where(whole < workers, np.ceil(batch_size), np.ceil(whole / workers) * mini_batch))
