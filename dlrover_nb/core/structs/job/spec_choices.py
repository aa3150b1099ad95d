"""What the specification of a job chooses among: an enumeration for each choice."""

from __future__ import annotations

from enum import StrEnum


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
