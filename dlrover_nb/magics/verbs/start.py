"""Verbs that lead to a running job: connect, submit, and what shows its state."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.api.views.unmanaged_view import UnmanagedJobView
from dlrover_nb.core.commands.requests import path_of_size
from dlrover_nb.core.extensions import DATA_SOURCES, OPTIMIZERS, names
from dlrover_nb.core.structs.job.early_stopping import Metric
from dlrover_nb.core.structs.job.spec_choices import (
    DataFormat,
    Device,
    Embedding,
    Migration,
    Mode,
    Optimizer,
    RateScaling,
    StaleSteps,
    Sync,
)
from dlrover_nb.core.structs.training.checkpoints import PeerCopies
from dlrover_nb.magics.flags import JOB, flags_of
from dlrover_nb.magics.parser import columns, number, one_of, sequences, setting, whole, widths, yes_no
from dlrover_nb.magics.verb import MAGIC, Verb, argument
from dlrover_nb.magics.verbs.command_verbs import SIZE_FIELDS, argument_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from dlrover_nb.api.cluster import Cluster
    from dlrover_nb.api.job import Job
    from dlrover_nb.api.views.job_views import JobsView, StatusView
    from dlrover_nb.api.views.load_view import LoadView
    from dlrover_nb.core.connect.kinds import Options
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.flags import FlagTable
    from dlrover_nb.magics.verb import Values
    from dlrover_nb.widgets.live.live_view import LiveView

_log = logging.getLogger(__name__)

CONNECT = (
    argument(
        "kind", metavar="KIND", nargs="?", default="ray", help="ray, kubernetes, local, or sim (simulated)"
    ),
    argument(
        "address", metavar="ADDRESS", nargs="?", help="of an existing Ray; default: a Ray on this machine"
    ),
    argument("--cpus", type=number, metavar="N", help="cores of a Ray that is started here; default: all"),
    argument("--machines", type=whole, metavar="N", help="number of simulated machines"),
    argument("--speed", type=number, metavar="X", help="simulated seconds per second"),
    argument("--context", metavar="CONTEXT", help="of the kubeconfig; default: its current one"),
    argument("--namespace", metavar="NAMESPACE", help="where jobs run; default: that of the context"),
)
SUBMIT_FLAGS: FlagTable = (
    (
        "--data",
        "data.path",
        str,
        "FILE",
        "rows to train on: a file, folder, pattern or URL; default: the census rows of the package",
    ),
    (
        "--format",
        "data.format",
        one_of("format", DataFormat, partial(names, DATA_SOURCES)),
        "FORMAT",
        "of the rows; default: by the extension of the file",
    ),
    ("--label", "data.label", str, "COLUMN", "column with the label, 0 or 1"),
    ("--numeric", "data.numeric", columns, "A,B", "number columns; default: chosen by type"),
    ("--categorical", "data.categorical", columns, "A,B", "columns of ids; default: chosen by type"),
    ("--exclude", "data.exclude", columns, "A,B", "columns to ignore"),
    (
        "--types",
        "data.types",
        columns,
        "A=TYPE,B=TYPE",
        "types of single columns: number, category or time; all others stay as they are",
    ),
    (
        "--sequences",
        "data.sequences",
        sequences,
        "A,B: {KEY: VALUE}",
        "columns with lists of ids, and their length, separator and embedding_of; default: chosen by type",
    ),
    ("--separator", "data.separator", str, "MARK", "between fields of a CSV file; default: found in it"),
    ("--decimal", "data.decimal", str, "MARK", "decimal mark of numbers in text, such as ,"),
    ("--thousands", "data.thousands", str, "MARK", "between thousands of numbers in text: . , ' or a blank"),
    (
        "--guess",
        "data.guess",
        yes_no,
        "YES|NO",
        "take likely ids as ids, and leave dates and row numbers out, where no flag names them; default: yes",
    ),
    ("--holdout", "data.holdout", number, "SHARE", "share of rows kept for evaluation"),
    ("--mode", "mode", one_of("mode", Mode), "MODE", "who decides: manual, suggest or auto"),
    ("--tags", "tags", columns, "A,B", "words of your own to find the job by in lists"),
    (
        "--budget-total",
        "budget_total",
        number,
        "MONEY",
        "most that the job may spend; then it saves and stops; default: no limit",
    ),
    (
        "--budget-per-hour",
        "budget_per_hour",
        number,
        "MONEY",
        "most that a plan may cost an hour; default: no limit",
    ),
    ("--batch-size", "batch_size", whole, "N", "samples of one mini-batch"),
    (
        "--global-batch",
        "global_batch",
        whole,
        "N",
        "samples that the workers share; default: each has its own batch",
    ),
    ("--epochs", "epochs", whole, "N", "passes over the rows"),
    ("--seed", "seed", whole, "N", "seed of the order of rows"),
    ("--model", "model.name", str, "MODEL", "wide_deep, dcn_v2, xdeepfm, din, or the name of your own"),
    ("--embedding-dim", "model.embedding_dim", whole, "N", "width of an embedding"),
    ("--hidden", "model.hidden", widths, "A,B", "widths of the deep part's layers"),
    ("--cross-layers", "model.cross_layers", whole, "N", "cross layers of dcn_v2"),
    ("--cin", "model.cin", widths, "A,B", "feature maps of xdeepfm's layers"),
    ("--attention", "model.attention", widths, "A,B", "widths of din's activation unit"),
    ("--embedding", "model.embedding", one_of("embedding", Embedding), "KIND", "fixed tables, or hash"),
    ("--hash-size", "model.hash_size", whole, "N", "maximum rows of one column of a fixed table"),
    (
        "--optimizer",
        "model.optimizer",
        one_of("optimizer", Optimizer, partial(names, OPTIMIZERS)),
        "NAME",
        "sgd, adagrad or adam",
    ),
    ("--learning-rate", "model.learning_rate", number, "X", "step size of the optimizer"),
    ("--beta1", "model.beta1", number, "X", "of adam"),
    ("--beta2", "model.beta2", number, "X", "of adam"),
    ("--epsilon", "model.epsilon", number, "X", "of adam"),
    (
        "--sync",
        "sync",
        one_of("sync", Sync),
        "KIND",
        "asp, bsp, ssp or gba: how workers keep together; or allreduce, without PS",
    ),
    (
        "--deterministic",
        "deterministic",
        yes_no,
        "YES|NO",
        "the same bits whatever happens to workers and PS; with sync bsp and global_batch",
    ),
    ("--staleness", "staleness", whole, "N", "bound of ssp, and age from which gba counts less, in steps"),
    (
        "--learning-rate-scaling",
        "learning_rate_scaling",
        one_of("learning_rate_scaling", RateScaling),
        "KIND",
        "none, sqrt or linear: how the learning rate follows the rows of a step when workers change",
    ),
    (
        "--learning-rate-warmup",
        "learning_rate_warmup",
        whole,
        "N",
        "steps in which the learning rate reaches its new value",
    ),
    (
        "--stale-steps",
        "stale_steps",
        one_of("stale_steps", StaleSteps),
        "KIND",
        "plain, or normalised: shorter steps for older gradients (asp, ssp)",
    ),
    ("--overlap", "overlap", yes_no, "YES|NO", "whether a worker computes while gradients travel"),
    ("--worker-gpu", "plan.worker.gpu", whole, "N", "GPUs of each worker, in every plan"),
    (
        "--device",
        "device",
        one_of("device", Device),
        "WHERE",
        "workers compute: auto (on the GPU that a worker has), cpu or cuda",
    ),
    ("--migration", "migration", one_of("migration", Migration), "KIND", "seamless or restart"),
    (
        "--checkpoint-url",
        "checkpoint_url",
        str,
        "URL",
        "of checkpoints; default: in the run folder",
    ),
    (
        "--peer-copies",
        "peer_copies",
        one_of("peer_copies", PeerCopies),
        "WHEN",
        "copy checkpoints in memory to other nodes: auto, always or never",
    ),
    (
        "--from",
        "start_from.source",
        str,
        "RUN|URL",
        "begin with the parameters of a run (job, folder, id) or URL; default: untrained parameters",
    ),
    (
        "--early-stopping",
        "early_stopping.metric",
        one_of("metric", Metric),
        "METRIC",
        "auc or log_loss (of held-out rows), or loss (of training); default: never end early",
    ),
    (
        "--patience",
        "early_stopping.patience",
        whole,
        "N",
        "passes (of loss: tenths of one) without gain before training ends",
    ),
    ("--min-gain", "early_stopping.min_gain", number, "X", "smallest improvement that counts"),
    (
        "--target",
        "early_stopping.target",
        number,
        "X",
        "value of the metric at which training ends; default: no target",
    ),
    ("--decline", "early_stopping.decline", number, "SHARE", "of all gained so far that counts as a gain"),
)
FILES = (".yaml", ".yml")
SUBMIT = (
    argument("name", metavar="NAME|FILE", nargs="?", help="name of the job, or its job file (.yaml)"),
    argument("--file", metavar="FILE", help="job file (YAML); flags override it"),
    *flags_of(SUBMIT_FLAGS),
    *(argument_of(field, path_of_size(field.name)) for field in SIZE_FIELDS),
    argument(
        "--warm-start",
        action="store_true",
        help="start with the final plan of similar jobs, where there are any",
    ),
    argument(
        "--from-rows",
        action="store_true",
        help="go on where that run stopped in the same data; without it all rows are trained",
    ),
    argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="any key of a job file"
    ),
    argument("--wait", action="store_true", help="block until the job has ended; exit code 1 if it failed"),
)


CLUSTER = (
    argument(
        "--hours", type=number, default=24.0, metavar="N", help="how far back samples are shown; default: 24"
    ),
    argument("--record", action="store_true", help="write this sample to the history"),
)


def job_default(path: str) -> object:
    """Return the default of a key of a job file; None for a flag that is none."""
    from dlrover_nb.core.jobfile import default_at, known_keys  # noqa: PLC0415 - for the help alone

    group, _, key = path.rpartition(".")
    return default_at(path) if key in known_keys(group) else None


def connect_default(name: str) -> object:
    """Return the default of a flag of `connect`."""
    from dlrover_nb.core.backends.simulated import assumptions  # noqa: PLC0415 - for the help alone

    return {"machines": assumptions.N_MACHINE, "speed": assumptions.SPEED}.get(name)


def connect(commands: Commands, *, kind: str, address: str | None, **options: Unpack[Options]) -> Cluster:
    """Start or join a cluster."""
    return commands.connect(kind, address, **options)


def name_and_file(name: object, file: object) -> tuple[object, object]:
    """Return the job and the job file that a line names: no name of a job ends as a file of YAML does."""
    if file is None and isinstance(name, str) and (name == "-" or Path(name).suffix in FILES):
        return None, name
    return name, file


def settings_of(values: Values) -> Values:
    """Collect the flags that are keys of a job file in ``settings``, as (path, value); the last one wins."""
    job, file = name_and_file(values["name"], values["file"])
    paths = [path for _, path, *_ in SUBMIT_FLAGS] + [path_of_size(field.name) for field in SIZE_FIELDS]
    given = [(path, values[path]) for path in paths if values[path] is not None]
    name = [("name", job)] if job else []
    warm = [("warm_start", True)] if values["warm_start"] else []
    rows = [("start_from.rows", True)] if values["from_rows"] else []
    named: object = values["set"]
    assert isinstance(named, list)
    return {
        "file": file,
        "settings": (*named, *name, *given, *warm, *rows),
        "wait": values["wait"],
    }


def submit(
    commands: Commands,
    *,
    file: str | None,
    settings: tuple[tuple[str, object], ...],
    wait: bool,
    cell: str | None,
) -> Job | StatusView:
    """Start a job, and wait for its end with ``--wait``."""
    from dlrover_nb.api.job import Job  # noqa: PLC0415 - see the package
    from dlrover_nb.api.views.job_views import SubmittedView  # noqa: PLC0415 - see the package
    from dlrover_nb.magics.submission import own_code, spec_of  # noqa: PLC0415 - see the package

    commands.check_can_submit()
    spec = spec_of(file, settings, cell, commands.namespace)
    with contextlib.nullcontext() if wait or not commands.is_shown else _guesses_in_view():
        job = commands.cluster(start=True).submit(spec, **own_code(spec, commands.namespace))
    commands.session.note_submitted(spec.name)
    follow = f"{MAGIC} show {spec.name} --live follows it"
    handle = job.handle
    first = SubmittedView(spec, follow, job.schema, handle.bounds, handle.deadline)
    if wait:
        for text in first.doubts:
            _log.warning("job %s: %s", spec.name, text)
        return commands.wait(job)
    return Job(handle, job.poller, first)


@contextlib.contextmanager
def _guesses_in_view() -> Iterator[None]:
    """Log no guesses about columns: the view of the job says them."""
    log = logging.getLogger("dlrover_nb.core.runtime.node.preflight")  # which logs nothing else
    log.addFilter(_nothing)
    try:
        yield
    finally:
        log.removeFilter(_nothing)


def _nothing(_: logging.LogRecord) -> bool:
    return False


def cluster(commands: Commands, *, hours: float, record: bool) -> LoadView:
    """Show the machines: who holds them, what is idle and used, and the recent past."""
    return commands.cluster().load(hours=hours, record=record)


def jobs(commands: Commands) -> JobsView:
    """List jobs."""
    return commands.jobs()


def status(commands: Commands, *, job: str | None) -> StatusView | UnmanagedJobView:
    """Show a job's state."""
    handle = commands.any_job(job)
    if isinstance(handle, UnmanagedJobView):
        return handle
    shown = handle.status()
    commands.session.note_shown(shown.snapshot)
    return shown


def watch(commands: Commands, *, job: str | None) -> LiveView:
    """Follow a job live."""
    handle = commands.job(job)
    commands.session.shown.pop(handle.name, None)  # from now on the live view shows what is open
    return handle.watch()


VERBS = (
    Verb("connect", "start or join where jobs run", connect, CONNECT, "ray", default_of=connect_default),
    Verb(
        "submit",
        "start a job, from flags, YAML or Python",
        submit,
        SUBMIT,
        "quick-start --workers 2 --mode suggest",
        (settings_of,),
        takes_cell=True,
        exits_by_phase=True,
        default_of=job_default,
    ),
    Verb("cluster", "show what machines have, who holds it, and what is used", cluster, CLUSTER, "--hours 6"),
    Verb("jobs", "list jobs", jobs),
    Verb("status", "show a job's state", status, (JOB,), "quick-start"),
    Verb("watch", "follow a job live", watch, (JOB,), "quick-start"),
)
