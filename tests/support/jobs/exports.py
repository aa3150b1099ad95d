"""Jobs, plans and provenances that the tests of exports share, and the real schemas."""

from __future__ import annotations

import importlib.util
import string
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from suite.missing import SHARED, shared

from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.models.built_in import MODELS
from dlrover_nb.core.models.trainable import CUSTOM
from dlrover_nb.core.structs.data.column_types import ColumnType
from dlrover_nb.core.structs.data.features import SequenceSpec
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.exchange_spec import Encryption, ExchangeSpec, Precision
from dlrover_nb.core.structs.job.external import Counting, ExternalRole, ExternalSpec, FixedRole, Framework
from dlrover_nb.core.structs.job.job import Averages, DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
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
)
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.job.tuning import AntDT, JobTuning, Nearchus, Placement, SimilarJobs, StartMethod
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.checkpoints import PeerCopies
from dlrover_nb.core.structs.views.fit import Coefficient, FitReport, FormWeight

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

CRDS = SHARED / "crds"

counts, cores, memories = st.integers(1, 1000), st.floats(0.01, 512), st.integers(64, 4 << 20)
roles = st.builds(RolePlan, counts, cores, memories)
gpus = st.integers(0, 4)
plans = st.builds(ResourcePlan, worker=st.builds(RolePlan, counts, cores, memories, gpus), ps=roles)
small_plans = st.builds(
    ResourcePlan,
    worker=st.builds(RolePlan, st.integers(1, 4), cores, memories),
    ps=st.builds(RolePlan, st.integers(1, 4), cores, memories),
)
numbers = st.floats(0.1, 1e9)
predictions = st.builds(Prediction, numbers, numbers, numbers, st.booleans())
texts = st.text(max_size=40)
arguments = texts.filter(lambda text: "\0" not in text)  # as programs take them
decisions = st.builds(
    Decision,
    st.sampled_from(Verdict),
    texts,
    st.floats(0, 4e9),
    proposal=st.none() | st.just("p3"),
    plan=st.none() | plans,
    why=texts,
    id=st.sampled_from(["", "d1", "d12345"]),
    undoes=st.sampled_from(["", "d4"]),
)
coefficients = st.builds(Coefficient, texts, numbers, numbers, st.booleans())
fit_reports = st.builds(
    FitReport,
    st.lists(coefficients, max_size=5).map(tuple),
    st.integers(0, 1000),
    st.integers(0, 100),
    numbers,
    numbers,
    texts,
    st.lists(st.builds(FormWeight, texts, numbers, st.none() | numbers), max_size=3).map(tuple),
    st.none() | numbers,
)
provenances = st.builds(
    Provenance,
    st.none() | decisions,
    st.none() | predictions,
    st.sampled_from(["", "p3"]),
    st.none() | plans,
    st.none() | fit_reports,
)

names = st.from_regex(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True)
columns = st.lists(texts, max_size=3).map(tuple)
some_cores = st.lists(cores, min_size=1, max_size=3).map(tuple)
fractions = st.floats(0, 1, exclude_max=True)
data = st.just(DataSpec()) | st.builds(
    DataSpec,
    st.sampled_from([f for f in DataFormat if f is not DataFormat.CENSUS]),
    st.lists(
        st.text(st.characters(exclude_characters="\n", codec="utf-8"), min_size=1, max_size=30),
        min_size=1,
        max_size=3,
    ).map(lambda texts: "\n".join(str(PurePosixPath(f"/data/{text}")) for text in texts)),
    texts,
    columns,
    columns,
    columns,
    fractions,
    types=st.dictionaries(texts, st.sampled_from(ColumnType), max_size=2).map(
        lambda types: tuple(f"{name}={kind}" for name, kind in types.items())
    ),
    decimal=st.just(","),
    thousands=st.sampled_from(["", ".", " ", "'"]),
    guess=st.booleans(),
    sequences=st.lists(
        st.builds(
            SequenceSpec, texts.map("clicked {}".format), st.integers(1, 99), texts.filter(bool), texts
        ),
        max_size=2,
        unique_by=lambda sequence: sequence.column,
    ).map(tuple),
).map(lambda data: replace(data, separator="|") if data.format == DataFormat.CSV else data)
widths = st.lists(st.integers(1, 512), max_size=3).map(tuple)
kinds = st.sampled_from([(name, "") for name in sorted(MODELS)] + [(CUSTOM, "package.module:Net")])
models = st.builds(
    lambda kind, **fields: ModelSpec(name=kind[0], code=kind[1], **fields),
    kinds,
    embedding_dim=st.integers(1, 256),
    hidden=widths,
    hash_size=st.integers(2, 1 << 40),
    learning_rate=st.floats(1e-9, 10),
    initial_accumulator=st.floats(1e-9, 10),
    seed=st.integers(-5, 1 << 40),
    optimizer=st.sampled_from(Optimizer),
    beta1=fractions,
    beta2=fractions,
    epsilon=st.floats(1e-20, 1),
    embedding=st.sampled_from(Embedding),
    cross_layers=st.integers(1, 9),
    cin=st.lists(st.integers(1, 512), min_size=1, max_size=3).map(tuple),
    n_dense=st.integers(128, 1 << 40),
    averages=st.lists(st.builds(Averages, st.integers(1, 64), st.floats(0, 1)), max_size=2).map(tuple),
    attention=widths,
)
bounds = st.builds(
    PlanBounds,
    counts,
    counts,
    some_cores,
    some_cores,
    st.none() | numbers,
    st.none() | st.integers(1, 1 << 30),
    st.none() | st.floats(0, 1),
)
prices = st.builds(
    PriceTable,
    st.text(string.ascii_uppercase, max_size=3),
    st.none() | st.floats(0, 9),
    st.none() | st.floats(0, 9),
    st.booleans(),
    st.none() | st.floats(0, 9),
)
pins = st.builds(
    Pins,
    st.none() | counts,
    st.none() | counts,
    st.none() | cores,
    st.none() | cores,
    st.none() | memories,
    st.none() | memories,
)
words = st.lists(names, max_size=2).map(tuple)
pairs = st.lists(names.map(lambda name: f"{name}=x"), max_size=2).map(tuple)
volumes = st.builds(
    lambda mount, kind, *, read_only: Volume(f"/{mount}", read_only=read_only, **{kind: f"/{mount}"}),
    names,
    st.sampled_from(["claim", "host_path", "config_map", "secret"]),
    read_only=st.booleans(),
)
pods = st.builds(
    KubernetesSpec,
    image=texts,
    pull_policy=st.sampled_from(["", "Always", "IfNotPresent", "Never"]),
    pull_secrets=words,
    python=texts,
    volumes=st.lists(volumes, max_size=2, unique_by=lambda volume: volume.mount).map(tuple),
    env=pairs,
    env_secrets=words,
    node_selector=pairs,
    labels=pairs,
    annotations=pairs,
    tolerations=words,
    priority_class=texts,
    spread=st.booleans(),
    service_account=texts,
    code_url=texts,
    master_cpu=cores,
    master_memory_mib=st.integers(128, 4096),
    run_as_user=st.integers(1, 65535),
    operator=st.sampled_from(["", "none", "auto", "dlrover"]),
    linger_s=st.floats(1, 3600),
    ttl_s=st.none() | st.integers(0, 1 << 20),
)
programs = st.builds(
    ExternalRole, st.lists(arguments, min_size=1, max_size=3).map(tuple), image=texts, env=pairs
)
fixed_roles = st.just(()) | st.lists(
    st.builds(
        FixedRole,
        st.sampled_from(["evaluator", "reader", "chief"]),
        st.lists(arguments, min_size=1, max_size=3).map(tuple),
        cpu=cores,
        memory_mib=memories,
        gpu=gpus,
        image=texts,
        env=pairs,
        ends_job=st.none() | st.booleans(),
    ),
    max_size=3,
    unique_by=lambda role: role.name,
).map(tuple)


def _with_roles(spec: ExternalSpec, roles: tuple[FixedRole, ...]) -> ExternalSpec:
    """Return programs with other roles, where their framework has them."""
    has_chief, is_tf = spec.framework is not Framework.DDP, spec.framework is Framework.TENSORFLOW
    spec = replace(spec, dynamic_workers=is_tf and spec.n_process % 2 == 0)
    if spec.n_process == 8:
        spec = replace(spec, worker=replace(spec.worker, apart_from=("ps", "worker")))
    return replace(spec, roles=tuple(each for each in roles if has_chief or each.name != "chief"))


_foreigners = st.builds(
    ExternalSpec,
    programs,
    st.integers(1, 1 << 40),
    ps=programs,
    framework=st.sampled_from(Framework),
    chief=st.booleans(),
    n_process=st.integers(1, 8),
    port=st.integers(1024, 65534),
    counting=st.sampled_from(Counting),
    step_log=st.sampled_from(["", r"step (?P<step>\d+) loss (?P<loss>\S+)"]),
)
foreigners = st.builds(_with_roles, _foreigners, fixed_roles)


_shares = st.floats(0.01, 0.99)
tunings = st.builds(
    JobTuning,
    antdt=st.builds(AntDT, st.floats(1.01, 9), st.none() | st.floats(1e9, 1e10), _shares),
    nearchus=st.builds(
        Nearchus,
        _shares,
        numbers,
        st.floats(0.5, 1),
        st.floats(0.01, 0.5),
        st.integers(30, 99),
        _shares,
        _shares,
        st.integers(2, 30),
        numbers,
    ),
    dlrover_rm=st.builds(SimilarJobs, st.sampled_from(StartMethod), st.integers(1, 99), _shares),
    qore=st.builds(Placement, st.floats(0, 1)),
)


def _with_budget(job: JobSpec) -> JobSpec:
    """Return the job with a total budget, where its prices are known."""
    return replace(job, budget_total=7.5 + job.n_epoch) if job.is_priced else job


def _deterministic(job: JobSpec) -> JobSpec:
    """Return a job of ours that gives the same bits, where its settings allow it."""
    may = job.sync is Sync.BSP and job.n_epoch % 2 and job.early_stopping is None and not job.plan.worker.gpu
    if not may or job.device is Device.CUDA:
        return job
    none = {"learning_rate_scaling": RateScaling.NONE}
    return replace(job, deterministic=True, global_batch=job.batch_size * (1 + job.n_epoch % 7), **none)


def _asynchronous(job: JobSpec) -> JobSpec:
    """Return a job of ours, half of those with stale gradients with steps and a rate that follow."""
    is_stale = job.sync in {Sync.ASP, Sync.SSP} and job.n_epoch % 2
    if not is_stale:
        return job
    follows = job.global_batch is not None and job.batch_of(1) != job.batch_of(3)
    scaling = RateScaling.LINEAR if follows else RateScaling.NONE
    return replace(
        job,
        stale_steps=StaleSteps.NORMALISED,
        learning_rate_scaling=scaling,
        learning_rate_warmup=job.n_epoch,
    )


_jobs = st.builds(
    JobSpec,
    name=names,
    owner=texts,
    data=data,
    model=models,
    plan=plans,
    bounds=bounds,
    prices=prices,
    mode=st.sampled_from(Mode),
    batch_size=st.integers(1, 1 << 20),
    global_batch=st.none() | st.integers(1, 10**6),
    n_epoch=st.integers(1, 99),
    tags=st.lists(st.from_regex(r"[a-zA-Z0-9./:+_-]{1,30}", fullmatch=True), max_size=3, unique=True).map(
        tuple
    ),
    shard_batches=st.integers(1, 999),
    seed=st.integers(-5, 1 << 40),
    checkpoint_every_s=st.floats(0, 1e6),
    heartbeat_timeout_s=st.floats(1, 1e6),
    pins=pins,
    objective=st.sampled_from(Objective),
    policy=st.sampled_from(["throughput-model", "optimus", "fixed-plan"]),
    warm_start=st.booleans(),
    budget_per_hour=st.none() | numbers,
    link_gbit_per_s=st.none() | numbers,
    stragglers=st.sampled_from(SolutionName),
    straggler_rule=st.sampled_from(RuleName),
    straggler_window_s=numbers,
    deadline_s=st.none() | numbers,
    priority=numbers,
    sync=st.sampled_from(Sync),
    staleness=st.integers(1, 99),
    overlap=st.booleans(),
    checkpoint_url=st.sampled_from(
        ["", "s3://bucket/run 1", "file:///tmp/x", "abfs://box@account.example/x"]
    ),
    migration=st.sampled_from(Migration),
    peer_copies=st.sampled_from(PeerCopies),
    exchange=st.builds(
        ExchangeSpec,
        st.sampled_from(Precision),
        st.sampled_from(Precision),
        st.integers(1, 9),
        st.sampled_from(Encryption),
    ),
    start_from=st.none()
    | st.builds(StartFrom, st.sampled_from(["daily", "s3://bucket/daily/4"]), st.booleans()),
    kubernetes=st.just(KubernetesSpec()) | pods,
    early_stopping=st.none()
    | st.builds(
        EarlyStopping,
        st.sampled_from(Metric),
        st.integers(1, 9),
        st.floats(0, 1),
        st.none() | st.floats(0.01, 0.99),
        st.floats(0, 0.99),
    ),
    max_skipped_batches=st.integers(0, 999),
    max_restarts_per_error=st.integers(0, 999),
    gradient_clip_norm=st.none() | numbers,
    device=st.sampled_from([Device.AUTO, Device.CPU]),
    matmul_precision=st.sampled_from(MatmulPrecision),
    tuning=tunings,
).map(_with_budget)


def _as_external(job: JobSpec, spec: ExternalSpec) -> JobSpec:
    return replace(job, foreign=spec, budget_total=None)


def _external(job: JobSpec) -> JobSpec:
    """Return an external job with one of the ways in which others train; all-reduce is our own program's."""
    plan = job.plan.with_gpus((job.plan.worker.gpu, job.n_epoch % 3))
    return replace(
        job, plan=plan, budget_total=None, sync=Sync.BSP if job.sync is Sync.ALLREDUCE else job.sync
    )


def _own_device(job: JobSpec) -> JobSpec:
    """Return a job of ours, some of which insist on a GPU."""
    is_possible = job.sync is not Sync.ALLREDUCE and job.n_epoch % 3 == 0
    return replace(job, device=Device.CUDA) if is_possible else job


_moments = st.none() | st.integers(1, 4_000_000_000).map(float)
_dated = st.builds(
    lambda job, at_s: job if at_s is None else replace(job, deadline_s=None, deadline_at_s=at_s),
    _jobs,
    _moments,
)
_admissions = st.sampled_from(list(Admission))
_own = st.builds(
    lambda job, admission: _deterministic(_asynchronous(_own_device(replace(job, admission=admission)))),
    _dated,
    _admissions,
)
_external_jobs = st.builds(lambda job, spec: _external(_as_external(job, spec)), _dated, foreigners)
jobs = _own | _external_jobs


def plan_for(job: JobSpec, plan: ResourcePlan) -> ResourcePlan:
    """Return a plan, without GPUs where the job refuses them: to give the same bits, or as their price is not known."""
    is_unpriced = job.budget_total is not None and job.prices.per_hour(1.0, 1.0, gpu=1) is None
    return replace(plan, worker=replace(plan.worker, gpu=0)) if job.deterministic or is_unpriced else plan


WRITTEN = tuple(kind for kind in EXPORTERS if kind != "rayjob")  # which is only read


def fits(kind: str, job: JobSpec) -> bool:
    """Whether a kind of export can say what a job runs."""
    framework = None if job.foreign is None else job.foreign.framework
    if framework is Framework.DDP:  # whose programs need our master
        return kind in {"pods", "scaleplan"}
    is_placed = job.foreign is not None and bool(job.foreign.placed)
    if is_placed and (kind.startswith("elasticjob") or (kind, framework) == ("trainjob", Framework.TORCH)):
        return False
    roles = set() if job.foreign is None else {each.name for each in job.foreign.roles}
    torch = framework is Framework.TORCH
    if not roles <= _roles_of(kind, torch=torch):
        return False
    return {
        "tfjob": framework is not Framework.TORCH,
        "pytorchjob": framework is not Framework.TENSORFLOW,
        "trainjob": len(job.name) <= 43
        and not (framework is Framework.TENSORFLOW and job.kubernetes.priority_class),
        "jobset": len(job.name) <= 43,
    }.get(kind, True)


def _roles_of(kind: str, *, torch: bool) -> set[str]:
    """Return the roles beside worker and PS that a kind of export can say."""
    if kind.startswith("elasticjob") or (kind == "trainjob" and torch):
        return set()
    some = {"tfjob": {"chief", "evaluator"}, "pytorchjob": {"chief"}}
    beside = {"evaluator", "reader"}
    return some.get(kind, beside if kind == "jobset" and torch else beside | {"chief"})


def _fitted(kind: str, job: JobSpec) -> JobSpec:
    """Return the job, without what a kind of export cannot say: made to fit, as filtering would discard most."""
    if fits(kind, job):
        return job
    job = replace(job, name=job.name[:43].rstrip("-"))
    if job.foreign is None:
        return job
    spec = replace(
        job.foreign,
        framework=Framework.TORCH if kind == "pytorchjob" else Framework.TENSORFLOW,
        worker=replace(job.foreign.worker, apart_from=()),
        roles=(),
        dynamic_workers=False,
    )
    return replace(job, foreign=spec, kubernetes=replace(job.kubernetes, priority_class=""))


def jobs_of(kind: str) -> st.SearchStrategy[JobSpec]:
    return jobs.map(lambda job: _fitted(kind, job))


def own_jobs_of(kind: str) -> st.SearchStrategy[JobSpec]:
    """Return jobs of our own programs."""
    return _own.map(lambda job: _fitted(kind, job))


def external_jobs_of(kind: str) -> st.SearchStrategy[JobSpec]:
    """Return jobs of others' TensorFlow that have workers and PS alone."""
    specs = _foreigners.map(lambda spec: replace(spec, framework=Framework.TENSORFLOW))
    return st.builds(lambda job, spec: _fitted(kind, _external(_as_external(job, spec))), _dated, specs)


TRAIN = ("python", "/app/train.py", "--step", "$(STEP)")
TENSORFLOW = ExternalSpec(
    ExternalRole(TRAIN, image="registry/deepctr:3", env=("STEP=8",)), 80_000, ExternalRole(TRAIN)
)
TORCH = ExternalSpec(
    ExternalRole(("torchrun", "/app/train.py")), 80_000, framework=Framework.TORCH, n_process=2, port=29500
)
JOB = JobSpec("ctr-daily", owner="ada", data=DataSpec(DataFormat.PARQUET, "/data/day1.parquet"))
BEFORE = ResourcePlan(worker=RolePlan(1, 0.5, 1024), ps=RolePlan(1, 0.2, 512))
PLAN = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.4, 1024))
DECISION = Decision(Verdict.ACCEPT, "ada", 1_750_000_000.0, proposal="p2", why="faster", id="d4")
TOLD = Provenance(DECISION, Prediction(21_000, 19_500.4, 23_000, extrapolates=True), "p2", BEFORE)
OPTIONS = Options("registry/ctr:7")


@contextmanager
def no_resource_warnings() -> Iterator[None]:
    """Let the validator leave the closing of its files to the collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def readable(part: Any) -> Any:
    """Return a definition that the test server takes: it reads an empty text as nothing at all."""
    if isinstance(part, list):
        return [readable(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {k: "none" if (k, v) == ("default", "") else readable(v) for k, v in part.items()}


def real_schemas() -> ModuleType:
    """Return the validator of the real CRDs; without them the test is skipped."""
    spec = importlib.util.spec_from_file_location("crd_validate", shared("crds", "validate.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
