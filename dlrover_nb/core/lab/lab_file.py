"""What a lab compares: a workload, machines, and contenders, each a policy with its scheduler and solution.

A lab file is YAML whose keys are the fields of `LabFile`. Contenders are named as jobs name policies: one of
ours, one of an installed package, or a function as ``module:name``; from Python a function itself.

    name: my-month
    workload: {history_days: 30}
    machines: [{count: 20, cpu: 32, memory_gib: 192}]
    contenders: [fixed-plan, optimus, {policy: throughput-model, scheduler: shortest, name: ours}]
    seeds: 3

`published` holds a paper's figures beside which the result is shown, and `notes` what in a lab is calibrated
and what is not: a table that looks like a paper's must say in which way it is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dlrover_nb.core.basics.nearest import did_you_mean
from dlrover_nb.core.brain.queue_order import ORDERS
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.jobfile import load_mapping
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.prices import PriceTable

if TYPE_CHECKING:
    from dlrover_nb.core.planner.policies.policy import Policy

T = TypeVar("T")
MIB_PER_GIB = 1024
MACHINES = (NodeShape(32.0, 192 * 1024, 20),)  # DLRover-RM's small cluster
REQUESTS = (
    "drawn",  # any number of nodes of any size, evenly in the logarithm: rarely right
    "small",  # two workers and one PS
    "generous",  # as drawn, with nodes of the largest size: more cores than a job keeps busy
)
BOUNDS = PlanBounds(16, 6, (1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0, 8.0))
MOST_SEEDS, MOST_CONTENDERS = 100, 20


@dataclass(frozen=True, slots=True)
class Workload:
    """Where the jobs of a lab come from.

    Parameters
    ----------
    jobs, days
        How many jobs arrive in how many days; of a trace at most so many of its first so many days.
    trace, columns
        Path of a trace as CSV, and the meaning of its columns (`traces.NAMES`); empty: a description.
    history_days
        Runs of the history within so many days before its newest; None: none of them.
    tables
        Path of measured speeds as CSV, with the columns of the DL2 testbed: they are the truth of jobs then.
    hours, max_hours
        Length of a job: median, standard deviation of the logarithm, and the most.
    spread
        Standard deviation of the logarithm of a drawn truth's coefficients.
    families, kinship
        Kinds of jobs that come again and again, 0: each job is of its own; and the standard deviation of the
        logarithm of a coefficient between jobs of one kind. Only jobs of one kind can learn from each other.
    owners
        Teams among whom jobs are drawn.
    deadlines, slack
        Share of jobs with a deadline, and its distance over the length on the requested plan: least, most.
    estimate_error
        Standard deviation of the logarithm of users' guesses of lengths, by which queues are ordered.
    request
        How users ask, where a source does not say: one of `REQUESTS`.
    sync
        How far workers may run ahead, where a source does not say.
    """

    jobs: int = 100
    days: float = 1.0
    trace: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    history_days: float | None = None
    tables: str = ""
    hours: tuple[float, float] = (2.0, 0.8)
    max_hours: float = 48.0
    spread: float = 0.5
    families: int = 0
    kinship: float = 0.1
    owners: int = 4
    deadlines: float = 0.0
    slack: tuple[float, float] = (1.1, 2.0)
    estimate_error: float = 0.3
    request: str = "drawn"
    sync: str = Sync.ASP
    bounds: PlanBounds = BOUNDS
    prices: PriceTable = field(default_factory=PriceTable)

    def __post_init__(self) -> None:
        _check.within("jobs of a workload", self.jobs, 1, 100_000)
        _check.above_zero("days of a workload", self.days)
        _check.above_zero("median hours of a job", self.hours[0])
        _check.above_zero("max_hours", self.max_hours)
        _check.at_least("owners", self.owners, 1)
        _check.within("families", self.families, 0, 1000)
        _check.within("deadlines", self.deadlines, 0, 1)
        for name in ("spread", "estimate_error", "kinship"):
            _check.at_least(name, getattr(self, name), 0)
        _check.above_zero("least slack", self.slack[0])
        _check.at_least("most slack", self.slack[1], self.slack[0])
        if self.history_days is not None:
            _check.above_zero("history_days", self.history_days)
        for name, table in (("request", REQUESTS), ("sync", (Sync.ASP, Sync.BSP))):
            if getattr(self, name) not in table:
                near = did_you_mean(getattr(self, name), table)
                raise InvalidValueError(f"workload.{name} {getattr(self, name)!r} is not there; {near}")
        if self.trace and self.history_days is not None:
            raise InvalidValueError("a workload is a trace or a history, got both; keep one")

    @property
    def words(self) -> str:
        """It in a sentence."""
        truth = "measured tables" if self.tables else "machines whose parts overlap"
        jobs = f"{self.jobs:,} job{'s' * (self.jobs != 1)}"
        if self.history_days is not None:
            return f"own jobs of {_days(self.history_days)} of the history, by their last fits"
        if self.trace:
            return f"up to {jobs} of {_days(self.days)} of {Path(self.trace).name}, by {truth}"
        kinds = f" of {self.families} kind{'s' * (self.families != 1)}" if self.families else ""
        return f"{jobs.replace('job', 'drawn job')}{kinds} in {_days(self.days)}, by {truth}"


def _days(n: float) -> str:
    return f"{n:g} day{'s' * (n != 1)}"


@dataclass(frozen=True, slots=True)
class OwnPolicy:
    """A policy as jobs take it, and whether it reads the model; one that does not is cheaper to ask."""

    decide: Policy
    reads_model: bool = True


@dataclass(frozen=True, slots=True)
class Contender:
    """What decides in one of the runs that are compared.

    Parameters
    ----------
    policy
        Name of the policy of all jobs.
    scheduler
        Order of the queue, one of `queue_order.ORDERS`.
    stragglers
        Solution against slow workers.
    warm_start
        Whether a job begins on what similar jobs ended on before (DLRover-RM, Algorithm 1), not on its
        request.
    name
        Empty: made of what differs from the defaults.
    own
        The policy itself; None: it is looked up by its name.
    """

    policy: str = DEFAULT_POLICY
    scheduler: str = "first come"
    stragglers: str = SolutionName.NONE
    warm_start: bool = False
    name: str = ""
    own: OwnPolicy | None = None

    def __post_init__(self) -> None:
        for what, value, table in (
            ("scheduler", self.scheduler, ORDERS),
            ("stragglers", self.stragglers, SOLUTIONS),
        ):
            if value not in table:
                raise InvalidValueError(
                    f"{what} {value!r} is not there; {did_you_mean(value, map(str, table))}"
                )
        if not self.name:
            extra = [self.scheduler] * (self.scheduler != "first come")
            extra += [str(self.stragglers)] * (self.stragglers != SolutionName.NONE)
            extra += ["warm start"] * self.warm_start
            object.__setattr__(self, "name", ", ".join((self.policy, *extra)))


@dataclass(frozen=True, slots=True)
class LabWorld:
    """Times and noise of the lab's cluster, and the moments at which policies are asked.

    Parameters
    ----------
    noise
        Standard deviation of the logarithm of a window's speed.
    start_s
        Until new nodes work, once they have a place.
    join_s, seamless_s, restart_s
        Pause when workers come or go; when other PS or sizes take over; when they must leave first.
    start_share
        Share of the cores that a job asks for, with which it may start.
    slow_per_day, slow_ps_per_day, slow_factor, slow_s
        Slow episodes of each worker and of each PS: how often, its speed over its normal speed (least, most),
        mean length.
    ask_s, ask_growth, ask_longest_s
        A policy is asked so long after a plan is in place, when a steady window of it is measured; each time
        that it changes nothing, the next wait is so many times as long, up to the longest.
    """

    noise: float = 0.03
    start_s: float = 30.0
    join_s: float = 0.5
    seamless_s: float = 15.0
    restart_s: float = 120.0
    start_share: float = 1.0
    slow_per_day: float = 0.0
    slow_ps_per_day: float = 0.0
    slow_factor: tuple[float, float] = (0.3, 0.8)
    slow_s: float = 1800.0
    ask_s: float = 180.0
    ask_growth: float = 4.0
    ask_longest_s: float = 43_200.0

    def __post_init__(self) -> None:
        rates = "slow_per_day", "slow_ps_per_day"
        for name in ("noise", "start_s", "join_s", "seamless_s", "restart_s", *rates):
            _check.at_least(name, getattr(self, name), 0)
        for name in ("ask_s", "slow_s", "start_share"):
            _check.above_zero(name, getattr(self, name))
        _check.at_most("start_share", self.start_share, 1)
        _check.at_least("ask_growth", self.ask_growth, 1)
        _check.at_least("ask_longest_s", self.ask_longest_s, self.ask_s)
        _check.above_zero("least slow_factor", self.slow_factor[0])
        _check.within("most slow_factor", self.slow_factor[1], self.slow_factor[0], 1)


@dataclass(frozen=True, slots=True)
class LabFile:
    """A comparison; `published` are a paper's figures by contender and figure, for the eye alone."""

    name: str = "lab"
    workload: Workload = field(default_factory=Workload)
    machines: tuple[NodeShape, ...] = MACHINES
    contenders: tuple[Contender, ...] = (Contender("fixed-plan"), Contender())
    seeds: tuple[int, ...] = (0, 1, 2)
    world: LabWorld = field(default_factory=LabWorld)
    notes: tuple[str, ...] = ()
    published: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check.job_name(self.name)
        _check.within("number of seeds", len(self.seeds), 1, MOST_SEEDS)
        _check.within("number of contenders", len(self.contenders), 1, MOST_CONTENDERS)
        _check.at_least("number of machines", sum(each.count for each in self.machines), 1)
        names = [each.name for each in self.contenders]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidValueError(
                f"contenders need names of their own, got {twice[0]!r} twice; give a name"
            )


LabSource = "LabFile | Path | str | Mapping[str, object] | None"


def read_lab(source: LabFile | Path | str | Mapping[str, object] | None) -> LabFile:
    """Read a lab: a lab file's path or text, its content as a mapping, or None for the defaults.

    Raises
    ------
    InvalidValueError
        For malformed YAML, an unknown key (with the nearest one), or a value that is not valid.
    NotFoundError
        When there is no such file.
    """
    if source is None or isinstance(source, LabFile):
        return source or LabFile()
    if isinstance(source, Mapping):
        return _lab(source, Path.cwd())
    text, base = str(source), Path.cwd()
    if isinstance(source, Path) or ("\n" not in text and ":" not in text):
        path = Path(text).expanduser()
        if not path.is_file():
            raise NotFoundError(f"there is no lab file {path}; name one, or give its text")
        text, base = path.read_text(encoding="utf-8"), path.parent
    return _lab(load_mapping(text), base)


def contender_of(value: object) -> Contender:
    """Return a contender of a policy's name, a function, or a mapping of its fields.

    Raises
    ------
    InvalidValueError
        When it is none of these.
    """
    match value:
        case Contender():
            return value
        case str():
            return Contender(value)
        case Mapping():
            return _record(Contender, value, "contenders", skip=("own",))
    if callable(value):
        name = str(getattr(value, "__name__", "own policy")).replace("_", "-")
        return Contender(name, own=policy_of(value))
    raise InvalidValueError(
        f"a contender is the name of a policy, a function or a group of keys, got {value!r}"
    )


def policy_of(function: object) -> OwnPolicy:
    """Return a function as a policy: one of the planner's three arguments, or of a `JobState` alone.

    The latter returns the next plan, or None for no change, as the baselines do.

    Raises
    ------
    InvalidValueError
        When it is no function, or takes something else.
    """
    import inspect  # noqa: PLC0415 - for functions of a notebook alone

    from dlrover_nb.core.planner.policies import by_baseline  # noqa: PLC0415 - it loads the planner

    if not callable(function):
        raise InvalidValueError(f"a policy must be a function, got {function!r}; name one as module:name")
    needed = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}
    ]
    if len(needed) == 1:
        return OwnPolicy(
            by_baseline(str(getattr(function, "__name__", "own policy")), function), reads_model=False
        )
    if len(needed) == 3:
        return OwnPolicy(function)
    raise InvalidValueError(
        "a policy takes (state) and returns a plan, or (analysis, settings, context) and returns advice, got "
        f"{len(needed)} arguments"
    )


def _lab(content: Mapping[str, object], base: Path) -> LabFile:
    _check_keys(content, LabFile, "")
    values: dict[str, Any] = {**content}
    if "workload" in values:
        values["workload"] = _workload(_group(values["workload"], "workload"), base)
    if "world" in values:
        values["world"] = _record(LabWorld, _group(values["world"], "world"), "world")
    if "machines" in values:
        values["machines"] = tuple(_machines(each) for each in _list(values["machines"], "machines"))
    if "contenders" in values:
        values["contenders"] = tuple(map(contender_of, _list(values["contenders"], "contenders")))
    if "seeds" in values:
        values["seeds"] = _seeds(values["seeds"])
    values["notes"] = tuple(map(str, _list(values.get("notes", []), "notes")))
    published = _group(values.get("published", {}), "published")
    values["published"] = {str(name): str(words) for name, words in published.items()}
    return replace(LabFile(), **values)


def _workload(content: Mapping[str, object], base: Path) -> Workload:
    values: dict[str, object] = {**content}
    for name in ("trace", "tables"):
        if values.get(name):
            values[name] = str(base / Path(str(values[name])).expanduser())
    if "bounds" in values:
        values["bounds"] = _record(PlanBounds, _group(values["bounds"], "workload.bounds"), "workload.bounds")
    if "prices" in values:
        prices = {"assumed": False, **_group(values["prices"], "workload.prices")}
        values["prices"] = _record(PriceTable, prices, "workload.prices")
    return _record(Workload, values, "workload")


def _machines(value: object) -> NodeShape:
    content = _group(value, "machines")
    if unknown := content.keys() - {"count", "cpu", "memory_gib"}:
        raise InvalidValueError(f"machines have count, cpu and memory_gib, got {', '.join(sorted(unknown))}")
    try:
        gib = float(content["memory_gib"])  # type: ignore[arg-type]  # refused below
        return NodeShape(float(content["cpu"]), int(gib * MIB_PER_GIB), int(content.get("count", 1)))  # type: ignore[arg-type, call-overload]  # as above
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"machines need numbers for cpu and memory_gib, got {dict(content)}; correct it"
        ) from error


def _seeds(value: object) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        return tuple(range(value))
    seeds = _list(value, "seeds")
    if not all(isinstance(each, int) for each in seeds):
        raise InvalidValueError(f"seeds are a number of seeds or a list of them, got {value!r}")
    return tuple(int(str(each)) for each in seeds)


def _record(kind: type[T], content: Mapping[str, object], where: str, skip: tuple[str, ...] = ()) -> T:
    """Make a record of a group of keys, each as the type of its default says."""
    _check_keys(content, kind, where, skip)
    values = {name: _value(kind, name, value, where) for name, value in content.items()}
    return kind(**values)


def _value(kind: type[object], name: str, value: object, where: str) -> object:
    default = _defaults(kind).get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match default:
        case bool():
            good = isinstance(value, bool)
        case int() | float():
            good = is_number
        case str():
            good = isinstance(value, str)
        case tuple():
            value = tuple(value) if isinstance(value, list | tuple) else value
            good = isinstance(value, tuple) and (not default or len(value) == len(default))
        case Mapping():
            good = isinstance(value, Mapping)
        case _:
            good = True
    if not good:
        raise InvalidValueError(f"{where}.{name} must be like {default!r}, got {value!r}; correct it")
    return value


def _defaults(kind: type[object]) -> dict[str, object]:
    return {
        each.name: each.default_factory() if each.default_factory is not MISSING else each.default
        for each in fields(kind)  # type: ignore[arg-type]  # all are dataclasses
    }


def _check_keys(
    content: Mapping[str, object], kind: type[object], where: str, skip: tuple[str, ...] = ()
) -> None:
    names = [name for name in _defaults(kind) if name not in skip]
    for key in content:
        if key not in names:
            place = f"key of {where}" if where else "key"
            raise InvalidValueError(f"unknown {place} {str(key)!r}; {did_you_mean(str(key), names)}")


def _group(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidValueError(f"{where} must be a group of keys, got {value!r}; correct it")
    return value


def _list(value: object, where: str) -> Sequence[object]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidValueError(f"{where} must be a list, got {value!r}; correct it")
    return value
