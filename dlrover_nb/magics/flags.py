"""The arguments of the verbs, as data: the table of verbs puts them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.client.handle import Until
from dlrover_nb.core.export import EXPORTERS
from dlrover_nb.core.structs.job import DataFormat, Embedding, Metric, Migration, Mode, Optimizer, Sync
from dlrover_nb.magics.words import columns, number, one_of, setting, whole, widths, yes_no

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.magics.words import Parser


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a verb: its names (a flag's begin with a dash) and what argparse is told of it."""

    names: tuple[str, ...]
    options: Mapping[str, object]

    def add_to(self, parser: Parser) -> None:
        """Let a parser read it."""
        parser.add_argument(*self.names, **self.options)  # type: ignore[arg-type]  # as argparse takes them


def _argument(*names: str, **options: object) -> Argument:
    return Argument(names, options)


SIZE_FLAGS: tuple[tuple[str, str, Callable[[str], float], str, str], ...] = (
    ("--workers", "plan.worker.count", whole, "N", "number of workers"),
    ("--ps", "plan.ps.count", whole, "N", "number of parameter servers"),
    ("--worker-cpu", "plan.worker.cpu", number, "CORES", "cores of each worker"),
    ("--ps-cpu", "plan.ps.cpu", number, "CORES", "cores of each parameter server"),
    ("--worker-memory", "plan.worker.memory_mib", whole, "MIB", "memory of each worker"),
    ("--ps-memory", "plan.ps.memory_mib", whole, "MIB", "memory of each parameter server"),
)


_mode = one_of("mode", Mode)
SUBMIT_FLAGS: tuple[tuple[str, str, Callable[[str], object], str, str], ...] = (
    ("--data", "data.path", str, "FILE", "rows to train on; left out: the census rows that ship"),
    (
        "--format",
        "data.format",
        one_of("format", DataFormat),
        "FORMAT",
        "census, parquet, criteo, numpy or own",
    ),
    ("--label", "data.label", str, "COLUMN", "column with 0 or 1"),
    ("--numeric", "data.numeric", columns, "A,B", "number columns; none named: all, by type"),
    ("--categorical", "data.categorical", columns, "A,B", "columns of ids"),
    ("--exclude", "data.exclude", columns, "A,B", "columns to leave out"),
    ("--holdout", "data.holdout", number, "SHARE", "share of rows kept for evaluation"),
    ("--mode", "mode", _mode, "MODE", "who decides: manual, suggest or auto"),
    ("--batch-size", "batch_size", whole, "N", "samples of one mini-batch"),
    ("--epochs", "epochs", whole, "N", "passes over the rows"),
    ("--seed", "seed", whole, "N", "of the order of rows"),
    ("--model", "model.name", str, "MODEL", "wide_deep, dcn_v2, xdeepfm, or your own: a name"),
    ("--embedding-dim", "model.embedding_dim", whole, "N", "width of an embedding"),
    ("--hidden", "model.hidden", widths, "A,B", "widths of the deep part's layers"),
    ("--cross-layers", "model.cross_layers", whole, "N", "cross layers of dcn_v2"),
    ("--cin", "model.cin", widths, "A,B", "feature maps of xdeepfm's layers"),
    ("--embedding", "model.embedding", one_of("embedding", Embedding), "KIND", "fixed tables, or hash"),
    ("--hash-size", "model.hash_size", whole, "N", "most rows of one column of fixed tables"),
    ("--optimizer", "model.optimizer", one_of("optimizer", Optimizer), "NAME", "sgd, adagrad or adam"),
    ("--learning-rate", "model.learning_rate", number, "X", "of the optimizer"),
    ("--beta1", "model.beta1", number, "X", "of adam"),
    ("--beta2", "model.beta2", number, "X", "of adam"),
    ("--epsilon", "model.epsilon", number, "X", "of adam"),
    ("--sync", "sync", one_of("sync", Sync), "KIND", "asp, bsp or ssp: how far workers may run ahead"),
    ("--staleness", "staleness", whole, "N", "the bound of ssp, in iterations"),
    ("--overlap", "overlap", yes_no, "YES|NO", "whether a worker computes while gradients travel"),
    ("--migration", "migration", one_of("migration", Migration), "KIND", "seamless or restart"),
    ("--checkpoint-url", "checkpoint_url", str, "URL", "where checkpoints are kept"),
    ("--early-stopping", "early_stopping.metric", one_of("metric", Metric), "METRIC", "auc or log_loss"),
    ("--patience", "early_stopping.patience", whole, "N", "passes without gain before training ends"),
    ("--min-gain", "early_stopping.min_gain", number, "X", "what counts as a gain"),
    *SIZE_FLAGS,
)


def _table(
    flags: tuple[tuple[str, str, Callable[[str], object], str, str], ...], *, by_path: bool
) -> tuple[Argument, ...]:
    """Return the arguments of a table of flags; `by_path` keeps each under its path in a job file."""
    return tuple(
        _argument(flag, type=kind, metavar=metavar, help=text, **({"dest": path} if by_path else {}))
        for flag, path, kind, metavar, text in flags
    )


JOB = _argument("job", metavar="JOB", nargs="?", help="its name; not needed while one job runs")
PROPOSAL = _argument("proposal", metavar="PROPOSAL", nargs="?", help="its id, such as p3")
WHY = _argument("--why", metavar="TEXT", default="", help="reason, kept with the decision")
SIZES = _table(SIZE_FLAGS, by_path=False)
ANSWER = (JOB, PROPOSAL, WHY)
OUTPUT_HELP = "file to write"
FORCE = _argument("--force", action="store_true", help="overwrite it")
OUTPUT = (_argument("-o", "--output", metavar="FILE", required=True, help=OUTPUT_HELP), FORCE)
CONNECT = (
    _argument("kind", metavar="KIND", nargs="?", default="ray", help="ray, kubernetes, or sim: nothing real"),
    _argument("address", metavar="ADDRESS", nargs="?", help="of a Ray; left out: this machine"),
    _argument("--cpus", type=number, metavar="N", help="cores that a Ray of our own offers"),
    _argument("--machines", type=whole, metavar="N", help="of a simulated cluster"),
    _argument("--speed", type=number, metavar="X", help="simulated seconds in a second"),
    _argument("--context", metavar="CONTEXT", help="of the kubeconfig; left out: its current one"),
    _argument("--namespace", metavar="NAMESPACE", help="where jobs go; left out: the context's"),
)
SUBMIT = (
    _argument("name", metavar="NAME", nargs="?", help="of the job"),
    _argument("--file", metavar="FILE", help="job file (YAML); flags win over it"),
    *_table(SUBMIT_FLAGS, by_path=True),
    _argument(
        "--warm-start", action="store_true", help="begin on what jobs like it ended with, if there are any"
    ),
    _argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="any key of a job file"
    ),
    _argument("--wait", action="store_true", help="block until it has ended; exit code 1 when it failed"),
)
MODE = _argument("mode", metavar="MODE", type=_mode, help="manual, suggest or auto")
CLEAR = _argument("--clear", action="store_true", help="let go of what is fixed so far")
NODE = _argument("node", metavar="NODE", nargs="?", help="its name, such as worker-0; left out: all nodes")
N_LINE = _argument("-n", "--lines", type=whole, metavar="N", default=100, help="how many lines; 100")
RUN = _argument("--run", metavar="RUN", help="id of a run; left out: the newest")
SCORE = (
    _argument("--owner", metavar="WHO", help="whose jobs; left out: everybody's"),
    _argument("--days", type=number, metavar="N", help="plans of the last N days; left out: all"),
)
EXPORT = (
    JOB,
    _argument(
        "--kind",
        metavar="KIND",
        type=one_of("kind of export", EXPORTERS),
        default="elasticjob",
        help=f"one of {', '.join(EXPORTERS)}; elasticjob-0 is the older schema",
    ),
    _argument("--plan", metavar="PLAN", default="current", help="current, or a proposal's id"),
    _argument("-o", "--output", metavar="FILE", help=OUTPUT_HELP),
    FORCE,
    _argument("--auto-scale", action="store_true", help="let DLRover plan again; else this plan stays"),
    _argument("--check", action="store_true", help="say what it was held against: the real schemas"),
    _argument("--image", metavar="IMAGE", help="of the pods"),
    _argument("--namespace", metavar="NAMESPACE", help="where the job goes"),
)
IMPORT = (
    _argument("file", metavar="FILE", help="YAML that was exported, edited or not"),
    _argument("--check", action="store_true", help="only hold it against the real schemas"),
    _argument("--submit", action="store_true", help="start its job, on its plan"),
    _argument("--apply", action="store_true", help="scale the running job of that name to its plan"),
)
DECISION = _argument("decision", metavar="DECISION", nargs="?", help="the latest as you saw it, such as d3")
PREDICT = (
    _argument("job", metavar="JOB", help="its name, also after its end, or its run folder"),
    _argument("rows", metavar="ROWS", help="file with the columns that were trained on"),
    *OUTPUT,
)
WAIT = (
    JOB,
    _argument("--timeout", type=number, metavar="SECONDS", help="give up waiting after this long"),
    _argument(
        "--for",
        dest="until",
        metavar="WHAT",
        type=one_of("thing to wait for", Until),
        default=Until.END,
        help="end (of the job), or proposal",
    ),
)
SHARDS = (
    JOB,
    _argument("--retry", type=whole, metavar="SHARD", help="train it again, its rows are mended"),
    _argument("--skip", type=whole, metavar="SHARD", help="go on without it"),
    WHY,
)
DELETE = (
    _argument("job", metavar="JOB", help="its name"),
    _argument("--force", action="store_true", help="even while it runs"),
)
SHUTDOWN = (_argument("--force", action="store_true", help="even while jobs run"),)
DEMO = (_argument("--out", metavar="FOLDER", default="demo-output", help="where results are written"),)
HELP = (_argument("verb", metavar="VERB", nargs="?", help="one verb"),)
