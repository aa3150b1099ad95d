"""Whether the settings of a job's steps fit each other: age, learning rate, and order of their gradients."""

from __future__ import annotations

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.spec_choices import RateScaling, StaleSteps, Sync


def check_stale_steps(kind: StaleSteps, sync: Sync) -> None:
    """Refuse steps that follow an age which there is not."""
    if kind is StaleSteps.NORMALISED and sync not in {Sync.ASP, Sync.SSP}:
        raise InvalidValueError(
            f"stale_steps normalised is for sync asp or ssp, got {sync}, where no gradient is a step of "
            "its own; leave stale_steps out"
        )


def check_rate_scaling(
    kind: RateScaling, sync: Sync | None, global_batch: int | None, *, has_fixed_rows: bool
) -> None:
    """Refuse a learning rate that follows the rows of a step where these are fixed, or not applied by us.

    `sync` is None in a job that runs programs of others.
    """
    if kind is RateScaling.NONE:
        return
    if sync is None or sync is Sync.ALLREDUCE:
        raise InvalidValueError(
            f"learning_rate_scaling {kind} is for jobs of ours with parameter servers, "
            "which apply the learning rate; leave it out"
        )
    if has_fixed_rows:
        what = "without a global_batch" if global_batch is None else "with a global_batch"
        raise InvalidValueError(
            f"learning_rate_scaling {kind} follows the rows of one step, which are the "
            f"same for any number of workers in {sync} {what}; leave it out"
        )


def check_deterministic(
    sync: Sync | None, batch_size: int, global_batch: int | None, *, has_gpu: bool, stops_early: bool
) -> None:
    """Refuse a job whose bits would depend on who computes what, and when.

    Parameters
    ----------
    sync
        How its workers keep together; None: it runs programs of others.
    has_gpu, stops_early
        Whether its workers compute on GPUs, and whether it has a rule of early stopping.

    Raises
    ------
    InvalidValueError
        With what to change.
    """
    if sync is not Sync.BSP:
        got = "a program of its own" if sync is None else f"sync {sync}"
        raise InvalidValueError(f"deterministic needs sync bsp and a model of ours, got {got}; set sync: bsp")
    if global_batch is None or global_batch % batch_size:
        raise InvalidValueError(
            f"deterministic needs global_batch, the rows of one step, as a multiple of batch_size "
            f"{batch_size:,}, got {global_batch}; with {4 * batch_size:,} up to 4 workers share a step"
        )
    if has_gpu:
        raise InvalidValueError(
            "deterministic computes on cores, as sums on GPUs have no fixed order, got workers with GPUs; "
            "leave gpu and device out"
        )
    if stops_early:
        raise InvalidValueError(
            "deterministic trains all passes, as the moment of early stopping depends on time; leave "
            "early_stopping out"
        )
