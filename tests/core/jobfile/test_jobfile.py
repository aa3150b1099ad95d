"""Job files: the round trip, and one clear line for each mistake."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from support.cases import for_each
from support.jobs.exports import jobs, names

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import WRITTEN_AS, dump_job, job_from, known_keys, known_values, parse_job
from dlrover_nb.core.models.built_in import MODELS
from dlrover_nb.core.structs.data.features import SequenceSpec
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Device
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import RolePlan

FAST = settings(deadline=None, phases=[Phase.generate], database=None, max_examples=1000)


def _is_plain(spec: JobSpec) -> bool:
    """Whether the data's path is written as a path object writes it; the file's reader makes it so."""
    return not spec.data.path or str(Path(spec.data.path)) == spec.data.path


@pytest.mark.more
@settings(deadline=None, max_examples=100)
@given(jobs.filter(_is_plain))
def test_a_job_written_and_read_is_the_same_job(spec: JobSpec) -> None:
    assert parse_job(dump_job(spec)) == spec


FIELDS = {key: field for field, key in WRITTEN_AS.items()}


def _leaves(group: str = "") -> list[str]:
    """Return the paths of all keys of a job file that hold a value and not a group."""
    paths = [f"{group}.{key}" if group else key for key in known_keys(group)]
    return [leaf for path in paths for leaf in (_leaves(path) if known_keys(path) else [path])]


def _at(spec: JobSpec, path: str) -> object:
    value: object = spec
    for key in path.split("."):
        value = getattr(value, FIELDS.get(key, key), None)
    return value


@pytest.mark.more
def test_the_law_above_draws_every_field() -> None:
    left, default = set(_leaves()), JobSpec("unnamed")

    def is_the_last(spec: JobSpec) -> bool:
        left.difference_update([path for path in left if _at(spec, path) != _at(default, path)])
        return not left

    with suppress(NoSuchExample):
        find(jobs.filter(_is_plain), is_the_last, settings=FAST)
    assert not left


def test_a_name_is_enough() -> None:
    assert parse_job("name: quick-start") == JobSpec("quick-start")


def test_a_job_without_gpus_is_written_as_releases_that_know_none_read_it() -> None:
    plain, gpus = JobSpec("x"), parse_job("name: x\nplan: {worker: {gpu: 1}}\ndevice: cuda")
    assert "gpu" not in dump_job(plain)
    assert "device" not in dump_job(plain)
    assert (gpus.plan.gpus, gpus.device) == ((1, 0), Device.CUDA)
    assert parse_job(dump_job(gpus)) == gpus


def test_a_group_given_in_part_keeps_the_other_defaults() -> None:
    spec = parse_job("name: x\nplan: {worker: {count: 3}}\nmodel: {learning_rate: 1e-3, hidden: 64}\n")
    default = JobSpec("x")
    assert spec.plan.worker == RolePlan(3, default.plan.worker.cpu, default.plan.worker.memory_mib)
    assert spec.plan.ps == default.plan.ps
    assert spec.model == ModelSpec(learning_rate=0.001, hidden=(64,))


def test_a_tuple_of_python_is_the_same_as_a_list() -> None:
    lists, tuples = ({"name": "ads", "bounds": {"worker_cpus": kind((0.5, 1))}} for kind in (list, tuple))
    assert job_from(tuples) == job_from(lists)


def test_pins_budget_deadline_and_quota_are_read() -> None:
    spec = parse_job(
        "name: x\n"
        "pins: {worker_memory_mib: 24576, ps: 2}\n"
        "budget_per_hour: 1.5\n"
        "budget_total: 40\n"
        "deadline_s: 7200\n"
        "bounds: {quota_cpu: 8, quota_memory_mib: 65536}\n"
    )
    assert spec.pins == Pins(ps=2, worker_memory_mib=24_576)
    assert (spec.budget_per_hour, spec.budget_total, spec.deadline_s) == (1.5, 40.0, 7200.0)
    assert (spec.bounds.quota_cpu, spec.bounds.quota_memory_mib) == (8.0, 65_536)


def test_null_is_no_budget_no_pin_and_an_unknown_price() -> None:
    spec = parse_job("name: x\nbudget_per_hour:\npins: {ps: null}\nprices: {cpu_hour: null}")
    assert spec.budget_per_hour is None
    assert not spec.pins
    assert spec.prices == PriceTable(cpu_hour=None, assumed=False)


def test_a_price_that_the_user_gives_is_not_assumed() -> None:
    assert not parse_job("name: x\nprices: {cpu_hour: 0.05}").prices.assumed
    assert parse_job("name: x\nprices: {currency: EUR}").prices.assumed


def test_a_relative_path_starts_from_the_files_folder_and_tells_the_format() -> None:
    read = parse_job("name: x\ndata: {path: day1.parquet, label: click}", base=Path("/jobs")).data
    assert read == DataSpec(DataFormat.PARQUET, "/jobs/day1.parquet", "click", guess=True)
    assert parse_job("name: x\ndata: {path: ~/a.tsv}").data.path == str(Path.home() / "a.tsv")


def test_a_folder_without_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(InvalidValueError, match=r"no file of the folder .* has a known extension; set it to"):
        job_from({"name": "x", "data": {"path": str(tmp_path)}})


def test_sequences_are_written_as_groups_by_their_column_or_as_names() -> None:
    head = "name: x\ndata: {path: /a.csv, "
    want = (SequenceSpec("h", 9, embedding_of="item"), SequenceSpec("tags"))
    for text in (
        "sequences: {h: {length: 9, embedding_of: item}, tags: null}}",
        "sequences: [{column: h, length: 9, embedding_of: item}, tags]}",
    ):
        spec = parse_job(head + text)
        assert spec.data.sequences == want
        assert parse_job(dump_job(spec)) == spec
    assert parse_job(head + "sequences: tags}").data.sequences == want[1:]


def test_the_url_of_a_format_is_passed_on_unchanged() -> None:
    text = "name: x\ndata: {format: parquet, path: 's3://bucket/day1'}"
    assert parse_job(text, base=Path("/jobs")).data.path == "s3://bucket/day1"


@pytest.mark.more
@for_each(
    ("text", "message"),
    [
        ("name: x\nplan: {worker: [", "malformed YAML in line 2, column 17"),
        ("name: x\n\tmode: auto", "malformed YAML in line 2, column 1"),
        ("name: a\nname: b", "malformed YAML in line 2, column 1: duplicate key 'name'"),
        ("name: x\nlabel: \x01", "malformed YAML: special characters are not allowed"),
        ("name: !!python/object:os.system x", "malformed YAML in line 1, column 7"),
        ("? [a]\n: b", "malformed YAML in line 1, column 3"),
        ("name: 2001-99-99", "malformed YAML: month must be in 1..12"),
        ("[" * 5000, "malformed YAML: maximum recursion depth"),
        ("name: x\ndata: {path: a.csv, sequences: {h: 5}}", "data.sequences.h must be a group such as"),
        ("name: x\ndata: {path: a.csv, sequences: {h: {longth: 5}}}", "did you mean length"),
        ("name: x\ndata: {path: a.csv, sequences: [h, h]}", "data: sequences name column 'h' twice"),
        ("name: x\ndata: {path: a.csv, sequences: {h: {length: 0}}}", "data.sequences[0]: length must be"),
        ("name: x\ndata: {holdout: 1" + "0" * 400 + "}", "data.holdout must be a number"),
        ("- a\n- b", "a job file holds keys and values such as `name: my-job`, got a list"),
        ("mode: auto", "the job has no name; add `name: my-job`"),
        ("name: x\nbatchsize: 2", "unknown key 'batchsize'; did you mean batch_size?"),
        ("name: x\nn_epoch: 2", "unknown key 'n_epoch'; did you mean epochs?"),
        ("name: x\nplan: {worker: {cpus: 1}}", "unknown key in plan.worker 'cpus'; did you mean cpu?"),
        ("name: x\n7: 2", "unknown key '7'; choose from name, owner"),
        ("name: x\nbatch_size: many", "batch_size must be a whole number, got 'many'"),
        ("name: x\nbatch_size: 2.5", "batch_size must be a whole number, got 2.5"),
        ("name: x\nepochs: true", "epochs must be a whole number, got True"),
        ("name: x\nepochs:", "epochs must be a whole number, got nothing"),
        ("name: no", "name must be text (in quotes where YAML asks), got False"),
        ("name: x\ndata: {holdout: [1]}", "data.holdout must be a number, got a list"),
        ("name: x\nbounds: {ps_cpus: [1, x]}", "bounds.ps_cpus[1] must be a number, got 'x'"),
        ("name: x\ndata: [day1.parquet]", "data must be a group of format, path, label"),
        (
            "name: x\ndata: day1.csv.zip",
            "is a .zip file, which is not read; unpack it, or compress its text with",
        ),
        ("name: x\nlabel: click", "unknown key 'label'; did you mean data.label or kubernetes.labels?"),
        ("name: x\nlr: 1", "unknown key 'lr'; did you mean model.learning_rate?"),
        ("name: x\nmodel: {batch_size: 2}", "unknown key in model 'batch_size'; did you mean batch_size?"),
        ("name: x\nkubernetes: {labels: {a: 1.10}}", "kubernetes.labels.a must be text (in quotes where"),
        ("name: x\nmode: autp", "unknown mode 'autp'; did you mean auto?"),
        ("name: x\nmode: 3", "mode must be one of manual, suggest, auto, got 3"),
        (
            "name: x\ndata: {path: day1.rows}",
            "data.format is missing, and the extension of 'day1.rows' is unknown; set it to one of",
        ),
        ("name: x\nplan: {ps: {count: 0}}", "plan.ps: node count must be >= 1, got 0"),
        ("name: x\ndata: {holdout: 2}", "data: holdout must be in [0, 1), got 2.0"),
        ("name: x\nbudget_total: -1", "budget_total must be > 0, got -1"),
        ("name: x\nbudget_total: lots", "budget_total must be a number, got 'lots'"),
        (
            "name: x\nbudget_total: 5\nprices: {cpu_hour: null}",
            "budget_total needs prices.cpu_hour and prices.gib_hour, got 5 with an unknown price",
        ),
        (
            "name: x\nbudget_total: 5\nplan: {worker: {gpu: 1}}",
            "budget_total needs prices.cpu_hour and prices.gib_hour (and prices.gpu_hour, for its GPUs), got 5",
        ),
        ("name: x\nplan: {ps: {gpu: 1}}", "plan.ps.gpu must be 0, as our parameter servers compute on cores"),
        ("name: x\nplan: {worker: {gpu: 0.5}}", "plan.worker.gpu must be a whole number, got 0.5"),
        ("name: x\ndevice: gpu", "unknown device 'gpu'; did you mean cpu?"),
        ("name: x\nbudget_per_hour: -1", "budget_per_hour must be > 0, got -1"),
        ("name: x\nbudget_per_hour: lots", "budget_per_hour must be a number, got 'lots'"),
        ("name: x\ndeadline_s: .nan", "deadline_s must be > 0, got nan"),
        ("name: x\npins: {workers: 0}", "pins: workers must be >= 1, got 0; a job needs at least 1"),
        ("name: x\npins: {worker: 2}", "unknown key in pins 'worker'; did you mean workers?"),
        ("name: x\npins: {ps: 1.5}", "pins.ps must be a whole number, got 1.5"),
        ("name: x\nbounds: {quota_cpu: [2]}", "bounds.quota_cpu must be a number, got a list"),
        ("name: x\nstragglers: antdt", "unknown stragglers 'antdt'; did you mean antdt-nd or antdt-dd?"),
        (
            "name: x\nstragglers: 7",
            "stragglers must be one of antdt-nd, antdt-dd, backup-workers, adjust-lr, lb-bsp, none, got 7",
        ),
        (
            "name: x\nstragglers: kill",
            "unknown stragglers 'kill'; choose from antdt-nd, antdt-dd, backup-workers, adjust-lr, lb-bsp, none",
        ),
        ("name: x\nstraggler_window_s: 0", "straggler_window_s must be > 0, got 0"),
        ("name: x\nsync: bps", "unknown sync 'bps'; did you mean bsp?"),
        ("name: x\nstaleness: 0", "staleness must be >= 1, got 0"),
        (
            "name: x\nsync: bsp\nstale_steps: normalised",
            "stale_steps normalised is for sync asp or ssp, got bsp",
        ),
        (
            "name: x\nlearning_rate_scaling: linear",
            "which are the same for any number of workers in asp without a global_batch",
        ),
        (
            "name: x\ndeterministic: true\nglobal_batch: 1024",
            "deterministic needs sync bsp and a model of ours, got sync asp; set sync: bsp",
        ),
        (
            "name: x\nsync: bsp\ndeterministic: true",
            "deterministic needs global_batch, the rows of one step, as a multiple of batch_size 512, got None",
        ),
        (
            "name: x\nsync: bsp\ndeterministic: true\nglobal_batch: 1000",
            "deterministic needs global_batch, the rows of one step, as a multiple of batch_size 512, got 1000",
        ),
        (
            "name: x\nsync: bsp\ndeterministic: true\nglobal_batch: 512\nplan: {worker: {gpu: 1}}",
            "deterministic computes on cores, as sums on GPUs have no fixed order, got workers with GPUs",
        ),
        (
            "name: x\nsync: bsp\ndeterministic: true\nglobal_batch: 512\nearly_stopping: {metric: auc}",
            "deterministic trains all passes, as the moment of early stopping depends on time",
        ),
        (
            "name: x\nsync: bsp\ndeterministic: true\nglobal_batch: 512\nlearning_rate_scaling: linear",
            "which are the same for any number of workers in bsp with a global_batch",
        ),
        ("name: x\noverlap: 1", "overlap must be true or false, got 1"),
        ("name: x\nmigration: fast", "unknown migration 'fast'; choose from seamless, restart"),
        ("name: x\nmodel: {optimizer: adm}", "unknown model.optimizer 'adm'; did you mean adam?"),
        ("name: x\nmodel: {beta1: 1}", "model: beta1 must be in [0, 1), got 1.0"),
        ("name: x\nmodel: {cin: [8, 0]}", "model: cin layer width must be >= 1, got 0"),
        ("name: x\nmodel: {cin: []}", "model: cin layers must be >= 1, got 0"),
        ("name: x\nmodel: {cross_layers: 0}", "model: cross_layers must be >= 1, got 0"),
        (
            "name: x\nearly_stopping: {metric: acc}",
            "unknown early_stopping.metric 'acc'; did you mean auc?",
        ),
        ("name: x\nearly_stopping: {patience: 0}", "early_stopping: early stopping patience must be >= 1"),
        (
            "name: x\nearly_stopping: yes",
            "early_stopping must be a group of metric, patience, min_gain, target, decline",
        ),
        ("name: X", "job name must be 1-52 lower-case letters"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_job(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_early_stopping_is_off_unless_asked_for() -> None:
    assert parse_job("name: x\nearly_stopping:").early_stopping is None
    assert parse_job("name: x\nearly_stopping: {}").early_stopping == EarlyStopping()
    stopping = parse_job("name: x\nearly_stopping: {metric: log_loss, patience: 3}").early_stopping
    assert stopping == EarlyStopping(Metric.LOG_LOSS, 3)


def test_words_that_may_stand_at_a_key_are_known_for_completion() -> None:
    assert known_values("model.optimizer") == ("sgd", "adagrad", "adam")
    assert known_values("early_stopping.metric") == ("auc", "log_loss", "loss")
    assert known_values("overlap") == ("true", "false")
    assert known_values("model.name") == tuple(sorted(MODELS))
    assert known_values("batch_size") == known_values("name") == known_values("model.nope.x") == ()


def test_keys_of_groups_are_known_for_completion() -> None:
    assert known_keys()[:2] == ("name", "owner")
    assert "epochs" in known_keys()
    assert known_keys("plan.ps") == ("count", "cpu", "memory_mib", "gpu")
    assert known_keys("early_stopping") == ("metric", "patience", "min_gain", "target", "decline")
    assert known_keys("name") == known_keys("plan.nope") == ()


@pytest.mark.more
@settings(deadline=None, max_examples=100)
@given(
    st.one_of(
        st.text(max_size=8), st.recursive(st.text(max_size=5), lambda c: st.dictionaries(names, c)).map(repr)
    )
)
def test_any_text_is_a_job_or_a_refusal(text: str) -> None:
    try:
        spec = parse_job(text)
    except InvalidValueError:
        return
    assert parse_job(dump_job(spec)) == spec


@for_each(
    ("text", "start"),
    [
        ("start_from: daily", StartFrom("daily")),
        ("start_from: {source: daily@17.5, rows: true}", StartFrom("daily@17.5", rows=True)),
        ("start_from: s3://bucket/daily/4", StartFrom("s3://bucket/daily/4")),
        ("start_from: ./old/run", StartFrom("/jobs/old/run")),
        ("start_from: null", None),
    ],
)
def test_a_start_is_a_run_a_folder_or_a_url(text: str, start: StartFrom | None) -> None:
    assert parse_job(f"name: x\n{text}", base=Path("/jobs")).start_from == start


def test_rows_without_a_run_are_refused(error_words) -> None:
    with error_words(InvalidValueError):
        parse_job("name: x\nstart_from: {rows: true}")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("data: day1.parquet", "data: {path: day1.parquet}"),
        ("kubernetes: {labels: {team: ads, a/b: c}}", "kubernetes: {labels: [team=ads, a/b=c]}"),
        ("kubernetes: {env: {A: 'b=c'}}", "kubernetes: {env: [A=b=c]}"),
        (
            "external: {framework: ddp, n_sample: 9, worker: {command: python t.py --sep '|' \"a b\"}}",
            "external: {framework: ddp, n_sample: 9, worker: {command: [python, t.py, --sep, '|', a b]}}",
        ),
    ],
)
def test_what_other_tools_write_is_taken_too(text: str, same: str) -> None:
    assert parse_job(f"name: x\n{text}") == parse_job(f"name: x\n{same}")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python t.py && rm x", "command runs without a shell"),
        ("python t.py --out $HOME/x", "command runs without a shell"),
        ('python t.py --out "$HOME/x"', "command runs without a shell"),
        ("python t.py > log", "write command: [sh, -c, 'exec ...']"),
        ('python "t.py', "command must have all of its quotes closed"),
        (["python t.py"], "write command: [python, t.py], or the text without brackets"),
    ],
)
def test_a_command_that_no_program_would_understand_is_refused(command: str, message: str) -> None:
    content = {"framework": "ddp", "n_sample": 9, "worker": {"command": command}}
    with pytest.raises(InvalidValueError) as caught:
        job_from({"name": "x", "external": content})
    assert message in str(caught.value)
