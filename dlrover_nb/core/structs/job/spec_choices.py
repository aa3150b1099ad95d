"""What the specification of a job chooses among: an enumeration for each choice, and which fit each other."""

from __future__ import annotations

from enum import StrEnum

from dlrover_nb.core.errors import InvalidValueError


class Mode(StrEnum):
    """Who decides on plans: the user alone, the user on our proposal, or the optimizer."""

    MANUAL = "manual"
    SUGGEST = "suggest"
    AUTO = "auto"


class Objective(StrEnum):
    """What makes a plan better: gain for its cost, or speed within budget, quota and bounds."""

    VALUE = "value"
    SPEED = "speed"


class DataFormat(StrEnum):
    """Supported data formats."""

    CENSUS = "census"  # the Census-Income rows that ship with the package
    PARQUET = "parquet"
    CSV = "csv"  # text with a header, fields separated by commas (or ; TAB |)
    TSV = "tsv"  # text with a header, fields separated by tabs
    CRITEO = "criteo"  # tab-separated: label, 13 integers, 26 categories; no header
    NUMPY = "numpy"  # .npz with an array per column, or .npy
    OWN = "own"  # the user's own object; the path is its name, as `ModelSpec.code`


class Optimizer(StrEnum):
    """The optimizer of rows and dense parameters, which runs on the PS."""

    SGD = "sgd"
    ADAGRAD = "adagrad"
    ADAM = "adam"  # on rows lazily: a row's moments and its count of steps change only when it is pushed


class Embedding(StrEnum):
    """How ids map to rows."""

    FIXED = "fixed"  # hashed into a table of `hash_size` rows per column
    HASH = "hash"  # every distinct id gets its own row when it is first trained


class Sync(StrEnum):
    """How far workers may run ahead of each other."""

    ASP = "asp"  # asynchronous: no limit
    BSP = "bsp"  # bulk-synchronous: gradients of one iteration are applied together, all wait for all
    SSP = "ssp"  # stale-synchronous: at most `staleness` iterations before the slowest
    GBA = "gba"  # asynchronous: no limit; PS gather gradients into global batches and apply each as one step
    ALLREDUCE = "allreduce"  # in step without PS: each worker holds all parameters, gradients are summed

    @property
    def waits(self) -> bool:
        """Whether a worker waits for others."""
        return self not in {Sync.ASP, Sync.GBA}


class StaleSteps(StrEnum):
    """How a step of asynchronous training follows the age of its gradient."""

    PLAIN = "plain"  # it does not
    NORMALISED = "normalised"  # shorter steps of the dense part for older gradients


class RateScaling(StrEnum):
    """How the learning rate follows the rows of one step, where these change with the number of workers."""

    NONE = "none"  # it does not
    SQRT = "sqrt"  # by the root of their ratio
    LINEAR = "linear"  # by their ratio


class Device(StrEnum):
    """Where workers of ours compute the dense part of a model; rows stay on the PS."""

    AUTO = "auto"  # on the GPU of a worker that has one (plan.worker.gpu), where torch can use it
    CPU = "cpu"
    CUDA = "cuda"  # or not at all


class MatmulPrecision(StrEnum):
    """Of the factors of matrix products on a worker's CPU; sums and all parameters are float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"  # where the processor has instructions for it


class Migration(StrEnum):
    """How parameters move to other PS."""

    SEAMLESS = "seamless"  # copied while training goes on, with a short pause for the last changes
    RESTART = "restart"  # training stops, a checkpoint is written and read again: the baseline


class Admission(StrEnum):
    """When a job may start its nodes."""

    AT_ONCE = "at once"  # the cluster lets them wait for room
    QUEUE = "queue"  # when the brain of the cluster admits it


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
