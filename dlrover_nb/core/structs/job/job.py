"""The specification of a job: data, model, training, resources, and who decides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from dlrover_nb.core.basics.redaction import BareRepr, redact, shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.data.column_types import WrittenNumbers, check_separator, column_types
from dlrover_nb.core.structs.data.features import SequenceSpec
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping
from dlrover_nb.core.structs.job.exchange_spec import ExchangeSpec
from dlrover_nb.core.structs.job.external import ExternalSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.solution_names import RuleName, SolutionName
from dlrover_nb.core.structs.job.spec_choices import (
    Admission,
    DataFormat,
    Device,
    Embedding,
    MatmulPrecision,
    Migration,
    Mode,
    Objective,
    Optimizer,
    RateScaling,
    StaleSteps,
    Sync,
    check_deterministic,
    check_rate_scaling,
    check_stale_steps,
)
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.job.tuning import JobTuning
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.checkpoints import PeerCopies

DEFAULT_POLICY = "throughput-model"  # of the planner


class JobPhase(StrEnum):
    """Phase of a job."""

    STARTING = "starting"
    TRAINING = "training"
    RESCALING = "rescaling"
    EVALUATING = "evaluating"
    BLOCKED = "blocked"  # nothing is left but what waits for a person's decision
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED}

    @property
    def trains(self) -> bool:
        """Whether rows are trained or will be, so that plans are compared and changed."""
        return self in {JobPhase.STARTING, JobPhase.TRAINING, JobPhase.RESCALING}


@dataclass(frozen=True, slots=True, repr=False)
class DataSpec(BareRepr):
    """The rows to train on.

    Parameters
    ----------
    format, path
        Their format, one of `DataFormat` or one that an installed package adds, and the absolute path or URL
        of a file, a folder or a pattern of files; several of them are lines of one text. Empty for the rows
        of the package; ``module:name`` or ``pickle:SHA256`` for the user's own object.
    label
        Name of the 0/1 column.
    numeric, categorical
        All columns to use; both empty means all but the label, by `types`, or by what they are.
    sequences
        Columns with a list of ids in each row, beside `categorical`; other columns of lists are taken with
        the defaults.
    exclude
        Columns never to use.
    holdout
        Share of the rows (the last ones) kept for evaluation, in [0, 1).
    types
        Types of single columns, each ``COLUMN=TYPE``; see `ColumnType`.
    separator
        What separates the fields of CSV files; empty: found in their header.
    decimal, thousands
        How numbers are written in columns of text, such as "," and "." for 1.234,5; see `WrittenNumbers`.
    guess
        Whether likely ids become ids, and dates and row numbers are left out, where nothing names them; see
        `core.data.selection.guesses`. Job files that name files do unless they say no; records of earlier
        releases do not, nor do own objects, whose columns have the types that their code gives them.
    """

    format: str = DataFormat.CENSUS
    path: str = ""
    label: str = "label"
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    holdout: float = 0.1
    types: tuple[str, ...] = ()
    separator: str = ""
    decimal: str = "."
    thousands: str = ""
    guess: bool = False
    sequences: tuple[SequenceSpec, ...] = ()

    @property
    def numbers(self) -> WrittenNumbers:
        """How numbers are written in columns of text."""
        return WrittenNumbers(self.decimal, self.thousands)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, folders, patterns and URLs of `path`."""
        return tuple(filter(None, self.path.split("\n")))

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns that are ids whatever their type."""
        of_sequences = (name for each in self.sequences for name in (each.embedding_of, each.column) if name)
        return (*self.categorical, *dict.fromkeys(n for n in of_sequences if n not in self.categorical))

    @property
    def place(self) -> str:
        """Where the rows are, in a few words for people, which hold no credentials."""
        paths = self.paths
        if not paths:
            return "the census data"
        first = redact(paths[0])
        return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"

    @property
    def words(self) -> str:
        """Which rows they are, for people: their format, and where they are."""
        return f"{self.format} {self.place}" if self.path else str(self.format)

    def __post_init__(self) -> None:
        _check.fraction("holdout", self.holdout)
        column_types(self.types)
        check_separator(self.separator)
        WrittenNumbers(self.decimal, self.thousands)
        if self.separator and self.format != DataFormat.CSV:
            raise InvalidValueError(
                f"separator is for csv files, got format {self.format}; leave it out, or set format to csv"
            )
        names = [each.column for each in self.sequences]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidValueError(f"sequences name column {shown(twice[0])} twice; name it once")
        if (self.format == DataFormat.CENSUS) != (not self.path):
            raise InvalidValueError(
                f"data format {self.format} {'takes no' if self.path else 'needs a'} path, "
                f"got {redact(self.path)!r}"
            )


@dataclass(frozen=True, slots=True)
class Averages:
    """Running averages in a row of a dense vector, such as those of a batch normalization.

    Parameters
    ----------
    n
        How many.
    weight
        Of a batch in them: the momentum of a batch normalization.
    """

    n: int
    weight: float

    def __post_init__(self) -> None:
        _check.at_least("a number of averages", self.n, 1)
        _check.within("the weight of a batch in averages", self.weight, 0, 1)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The model and its optimizer.

    Parameters
    ----------
    name
        Kind of model (`core.models.built_in.MODELS`), or ``custom`` with the user's own `code`.
    embedding, hash_size
        How ids map to rows; `hash_size` is the number of rows of one column of fixed tables.
    optimizer
        One of `Optimizer`, or one that an installed package adds.
    initial_accumulator
        Initial value of Adagrad's sums.
    beta1, beta2, epsilon
        Parameters of Adam.
    cross_layers
        Cross layers of DCN v2.
    cin
        Feature maps of each layer of xDeepFM's compressed interaction network.
    attention
        Widths of the layers of DIN's activation unit.
    code
        The user's module: ``module:name``, or ``pickle:SHA256`` of a file in the run folder.
    n_dense
        Length of the dense vector of the user's module, counted when the job is submitted.
    averages
        The last elements of that vector, which are no parameters, in order.
    """

    name: str = "wide_deep"
    embedding_dim: int = 16
    hidden: tuple[int, ...] = (256, 128, 64)
    hash_size: int = 1 << 16
    learning_rate: float = 0.02
    initial_accumulator: float = 0.1
    seed: int = 0
    optimizer: str = Optimizer.ADAGRAD
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    embedding: Embedding = Embedding.FIXED
    cross_layers: int = 3
    cin: tuple[int, ...] = (64, 64)
    code: str = ""
    n_dense: int = 0
    averages: tuple[Averages, ...] = ()
    attention: tuple[int, ...] = (36,)

    def __post_init__(self) -> None:
        if (self.name == "custom") != bool(self.code):
            raise InvalidValueError(
                f"model custom needs code such as package.module:Net, and no other model takes it; "
                f"got model {self.name!r} with code {self.code!r}"
            )
        for name, (least, most) in _MODEL_RANGES.items():
            _check.within(name, getattr(self, name), least, most)
        for name in ("beta1", "beta2"):
            _check.fraction(name, getattr(self, name))
        _check.above_zero("epsilon", self.epsilon)
        _check.seed(self.seed)
        _check.above_zero("learning_rate", self.learning_rate)
        _check.above_zero("initial_accumulator", self.initial_accumulator)
        for width in self.hidden:
            _check.within("hidden layer width", width, 1, _WIDEST)
        _check.at_least("cin layers", len(self.cin), 1)
        for width in self.cin:
            _check.within("cin layer width", width, 1, _WIDEST)
        for width in self.attention:
            _check.within("attention layer width", width, 1, _WIDEST)
        _check.at_least("n_dense", self.n_dense, self.n_average)

    @property
    def n_average(self) -> int:
        """Elements of the dense vector that are running averages, and no parameters."""
        return sum(each.n for each in self.averages)

    @property
    def row_width(self) -> int:
        """Floats of one table row: the embedding and its weight in the linear (wide) part."""
        return self.embedding_dim + 1


DEFAULT_PLAN = ResourcePlan(worker=RolePlan(1, 0.5, 1024), ps=RolePlan(1, 0.25, 512))


_RANGES = {  # far beyond what any job needs: what is larger is a slip, and would fail late and elsewhere
    "staleness": (1, 1 << 20),
    "batch_size": (1, 1 << 24),
    "global_batch": (1, 1 << 30),
    "shard_batches": (1, 1 << 24),
    "n_epoch": (1, 10**9),
    "checkpoint_every_s": (0, 10**9),
    "max_skipped_batches": (0, 10**9),
    "max_restarts_per_error": (0, 10**9),
    "learning_rate_warmup": (0, 10**9),
    "priority": (0, 10**9),
    "heartbeat_timeout_s": (1, 10**9),  # nodes report each second
}
_MODEL_RANGES = {
    "n_dense": (0, 1 << 40),
    "embedding_dim": (1, 1 << 14),
    "hash_size": (2, 1 << 40),
    "cross_layers": (1, 1000),
}
_WIDEST = 1 << 20  # of a layer
_ABOVE_ZERO = (
    "budget_per_hour",
    "budget_total",
    "deadline_s",
    "deadline_at_s",
    "link_gbit_per_s",
    "gradient_clip_norm",
)


def _check_steps(spec: JobSpec) -> None:
    """Refuse steps that cannot be as they are described."""
    own_sync = spec.sync if spec.foreign is None else None
    check_stale_steps(spec.stale_steps, spec.sync)
    has_fixed_rows = spec.rows_of_step(1) == spec.rows_of_step(2) == spec.rows_of_step(3)
    check_rate_scaling(spec.learning_rate_scaling, own_sync, spec.global_batch, has_fixed_rows=has_fixed_rows)
    if spec.deterministic:
        has_gpu, stops_early = spec.device is Device.CUDA or spec.plan.worker.gpu, spec.early_stopping
        more = {"has_gpu": bool(has_gpu), "stops_early": stops_early is not None}
        check_deterministic(own_sync, spec.batch_size, spec.global_batch, **more)


@dataclass(frozen=True, slots=True, repr=False)
class JobSpec(BareRepr):
    """The specification of a job.

    Parameters
    ----------
    name
        RFC 1035 label, unique in the cluster.
    plan
        The first plan.
    batch_size
        Samples of one worker's mini-batch (the m of Eq. 1).
    global_batch
        Samples of one mini-batch of all workers together (the B of m = B/w): the workers that train share it,
        however many there are, and `batch_size` is the unit of shards alone. None: `batch_size` holds for
        each worker, so more workers make a larger step. A job of another program divides its batch itself:
        there it counts in the model alone, and a step of unknown size counts as `batch_size`. With
        sync GBA PS gather it, from batches of `batch_size`; None: they gather a batch of each worker.
    n_epoch
        Passes over the training rows.
    shard_batches
        Mini-batches of one shard (the M of the count check DONE = ceil(N/(B*M)) per epoch).
    checkpoint_every_s
        Seconds between checkpoints against the loss of a PS; 0 = only before a change of PS.
    heartbeat_timeout_s
        Silence after which a node counts as dead.
    pins
        Parts of the plan that are fixed from the start.
    budget_per_hour
        The most money per hour that a plan of auto mode may cost; None means no limit.
    budget_total
        The most money that the job may spend: when it is spent, a checkpoint is saved and the job stops. In
        the currency of `prices`, which must be known for it; None means no limit.
    objective
        Objective of proposals.
    policy
        Which of `planner.POLICIES`, or of the policies of installed packages, proposes plans.
    warm_start
        Whether to start with the final plan of similar jobs instead of `plan`, if there are any.
    priority
        Weight among the jobs of a cluster, where the brain weighs by it.
    admission
        Whether it starts at once, or when the brain of its cluster admits it.
    deadline_s
        Seconds after its start by which the job should be done; None means no such deadline.
    deadline_at_s
        Moment by which it should be done, in seconds of the epoch, wherever it waits before; None means no
        such deadline. In a job file it is ``deadline``, a date with a time.
    link_gbit_per_s
        Capacity of each node's network link, one direction; None: the most that probes of workers carry.
    sync, staleness
        How far workers may run ahead of each other; `staleness` is the bound of SSP in iterations, and of GBA
        the age in steps up to which gradients count in full.
    learning_rate_scaling
        How the learning rate follows the rows of one step, against those of the first plan. They change with
        the workers where these share a global batch in ASP and SSP, and elsewhere where there is none.
    learning_rate_warmup
        Steps after a change of the number of workers in which the learning rate reaches its new value.
    stale_steps
        How steps follow the age of their gradients, in asynchronous training (ASP, SSP).
    deterministic
        Whether training gives the same bits whatever the number of workers and PS, and whatever happens to
        them (BSP): a step has `global_batch` rows, in batches of `batch_size` that any worker may compute.
    overlap
        Whether a worker computes while its last gradients are sent (not in BSP): rows may miss its last step.
    checkpoint_url
        Folder of checkpoints as an fsspec URL; empty: in the run folder.
    peer_copies
        When checkpoints in memory are copied to other nodes, which a lost host takes with it.
    exchange
        What gradients and parameters are on the way to another host.
    migration
        How parameters move to other PS.
    stragglers
        What answers slow nodes: proposed in suggest mode, done in auto mode. One of `SolutionName`, or one
        that an installed package adds.
    straggler_rule
        What finds slow nodes: one of `RuleName`, or one that an installed package adds.
    straggler_window_s
        A node that is slow over this time is a transient straggler, over `long_window_s` too a persistent
        one.
    early_stopping
        When to end training before its last pass; None means never.
    max_skipped_batches
        Batches of one pass that are skipped, as their loss or gradients are not finite or their gradients far
        above the usual; one more ends the job.
    max_restarts_per_error
        Nodes of a role that are started again within a day after the same error of their program; one more
        such error ends the job. Unless it is 0, a role with more nodes than that is allowed one for each.
    gradient_clip_norm
        The gradients of a batch are scaled down to this norm; None means that they are not.
    start_from
        The checkpoint that it begins from; None means untrained parameters.
    kubernetes
        Settings of its pods.
    tags
        Words of its user's own, by which lists of jobs are filtered.
    device
        Where workers compute the dense part of the model.
    matmul_precision
        Of the factors of its matrix products on CPU; evaluation has the same.
    tuning
        Parameters that the papers leave to operators.
    foreign
        The programs of an external job, in pods only. Of the settings of training only those of shards
        (batch_size, shard_batches, epochs, seed) apply, to programs that get rows from the job's master.
        The key in a job file is ``external``; run folders of release 0.1 hold this name.
    """

    name: str
    owner: str = ""
    data: DataSpec = field(default_factory=DataSpec)
    model: ModelSpec = field(default_factory=ModelSpec)
    plan: ResourcePlan = DEFAULT_PLAN
    bounds: PlanBounds = field(default_factory=PlanBounds)
    prices: PriceTable = field(default_factory=PriceTable)
    mode: Mode = Mode.SUGGEST
    batch_size: int = 512
    global_batch: int | None = None
    n_epoch: int = 1
    shard_batches: int = 20
    seed: int = 0
    checkpoint_every_s: float = 60.0
    heartbeat_timeout_s: float = 30.0
    pins: Pins = field(default_factory=Pins)
    objective: Objective = Objective.VALUE
    policy: str = DEFAULT_POLICY
    warm_start: bool = False
    budget_per_hour: float | None = None
    priority: float = 1.0
    deadline_s: float | None = None
    deadline_at_s: float | None = None
    link_gbit_per_s: float | None = None
    sync: Sync = Sync.ASP
    staleness: int = 4
    overlap: bool = True
    checkpoint_url: str = ""
    migration: Migration = Migration.SEAMLESS
    stragglers: str = SolutionName.ANTDT_ND
    straggler_window_s: float = 300.0
    early_stopping: EarlyStopping | None = None
    max_skipped_batches: int = 10
    max_restarts_per_error: int = 10
    gradient_clip_norm: float | None = None
    start_from: StartFrom | None = None
    kubernetes: KubernetesSpec = field(default_factory=KubernetesSpec)
    foreign: ExternalSpec | None = None
    admission: Admission = Admission.AT_ONCE
    peer_copies: PeerCopies = PeerCopies.AUTO
    exchange: ExchangeSpec = field(default_factory=ExchangeSpec)
    budget_total: float | None = None
    tags: tuple[str, ...] = ()
    device: Device = Device.AUTO
    matmul_precision: MatmulPrecision = MatmulPrecision.FLOAT32
    tuning: JobTuning = field(default_factory=JobTuning)
    straggler_rule: str = RuleName.ROBUST
    stale_steps: StaleSteps = StaleSteps.PLAIN
    learning_rate_scaling: RateScaling = RateScaling.NONE
    learning_rate_warmup: int = 100
    deterministic: bool = False

    def __post_init__(self) -> None:
        _check.job_name(self.name)
        _check.tags(self.tags)
        for name, (least, most) in _RANGES.items():
            if (value := getattr(self, name)) is not None:
                _check.within("epochs" if name == "n_epoch" else name, value, least, most)
        _check.seed(self.seed)
        _check.above_zero("straggler_window_s", self.straggler_window_s)
        _check.at_least(
            "tuning.antdt.long_window_s",
            self.long_window_s,
            self.straggler_window_s,
            hint="it holds the short window, straggler_window_s",
        )
        for name in _ABOVE_ZERO:
            if getattr(self, name) is not None:
                _check.above_zero(name, getattr(self, name))
        if self.plan.ps.gpu and self.foreign is None:
            raise InvalidValueError(
                f"plan.ps.gpu must be 0, as our parameter servers compute on cores, got {self.plan.ps.gpu}; "
                "give GPUs to workers"
            )
        if self.device is Device.CUDA and self.foreign is not None and self.sync is not Sync.ALLREDUCE:
            raise InvalidValueError(
                "device cuda is for workers of ours, and other programs choose their own; leave device out"
            )
        _check_steps(self)
        if self.budget_total is not None and not self.is_priced:
            gpu = " (and prices.gpu_hour, for its GPUs)" if self.n_gpu else ""
            raise InvalidValueError(
                f"budget_total needs prices.cpu_hour and prices.gib_hour{gpu}, got {self.budget_total:g} "
                "with an unknown price; give all prices, or leave budget_total out"
            )
        if self.deadline_s is not None and self.deadline_at_s is not None:
            raise InvalidValueError(
                "a job has one deadline, got both deadline (a moment) and deadline_s (after start); keep one"
            )
        if self.start_from is not None and not self.start_from.source.strip():
            raise InvalidValueError(
                "start_from.source must name a run or the URL of a checkpoint, got none; set it (--from RUN)"
            )

    @property
    def n_gpu(self) -> int:
        """GPUs of its first plan and of all its fixed roles."""
        fixed = () if self.foreign is None else self.foreign.roles
        return self.plan.total_gpu + sum(each.plan.total_gpu for each in fixed)

    @property
    def is_priced(self) -> bool:
        """Whether the price of all that its nodes have is known."""
        return self.prices.per_hour(1.0, 1.0, self.n_gpu) is not None

    @property
    def long_window_s(self) -> float:
        """L^per of AntDT: who is slow over so many seconds too is a persistent straggler."""
        own_s = self.tuning.antdt.long_window_s
        return 2 * self.straggler_window_s if own_s is None else own_s

    @property
    def training_words(self) -> str:
        """The training for people: ``wide_deep, batch 512, 3 epochs``."""
        n = self.global_batch
        batch = f"batch {self.batch_size:,}" if n is None else f"batch {n:,} of all workers"
        return f"{self.model.name}, {batch}, {self.n_epoch:,} epoch{'s' * (self.n_epoch != 1)}"

    def gpu_of(self, role: Role) -> int:
        """Return the GPUs of each node of a role."""
        fixed = None if self.foreign is None else self.foreign.fixed(role)
        return self.plan.role(role).gpu if fixed is None else fixed.gpu

    def on_gpus(self, plan: ResourcePlan) -> ResourcePlan:
        """Return a plan with the GPUs that the job's nodes have; who names a plan may leave them out.

        Raises
        ------
        InvalidValueError
            When it names others.
        """
        own = self.plan.gpus
        if plan.gpus not in {(0, 0), own}:
            raise InvalidValueError(
                f"GPUs of job {self.name} stay as they were submitted, {own[0]} per worker and {own[1]} per "
                f"PS, got {plan.gpus[0]} and {plan.gpus[1]}; leave gpu out, or submit again with other ones"
            )
        return plan.with_gpus(own)

    def counted_from(self, now_s: float) -> JobSpec:
        """Return it with a deadline in seconds, for a cluster with a time of its own."""
        if self.deadline_at_s is None:
            return self
        return replace(self, deadline_s=max(self.deadline_at_s - now_s, 1.0), deadline_at_s=None)

    def due_s(self, started_at_s: float) -> float | None:
        """Return the moment by which the job should be done; None: it has no deadline."""
        if self.deadline_at_s is not None:
            return self.deadline_at_s
        return None if self.deadline_s is None else started_at_s + self.deadline_s

    @property
    def shared_batch(self) -> int | None:
        """The global batch where workers share it out; None: there is none, or PS gather it."""
        return None if self.sync is Sync.GBA or self.deterministic else self.global_batch

    @property
    def step_batches(self) -> int | None:
        """Batches that make one step whichever workers compute them; None: it depends on the workers."""
        return self.global_batch // self.batch_size if self.deterministic and self.global_batch else None

    def rows_of_step(self, n_worker: int) -> int:
        """Return the samples of one step of the optimizer: of one worker in ASP and SSP, else of all."""
        if self.sync in {Sync.ASP, Sync.SSP}:
            return self.batch_of(n_worker)
        return self.global_batch or self.batch_size * n_worker

    def batch_of(self, n_worker: int) -> int:
        """Return m of Eq. 1: the samples of one worker's mini-batch where so many train."""
        if self.shared_batch is None:
            return min(self.batch_size, self.global_batch or self.batch_size)
        return max(round(self.shared_batch / n_worker), 1)


def run_name(job: str, started_at_s: float) -> str:
    """Return the id of a run: of the job among those that have its name one after the other."""
    return f"{job}@{started_at_s:.3f}"
