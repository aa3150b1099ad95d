"""`Cluster.submit` with data and model as people type them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from support.cases import for_each
from support.jobs.cluster_double import MemoryCluster

from dlrover_nb.api import Cluster
from dlrover_nb.api.inputs.job_of_submit import job_of, settings_of
from dlrover_nb.api.views.job_views import SubmittedView
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.exchange_spec import Encryption, ExchangeSpec
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.magics.verbs.start import SUBMIT_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAME = pd.DataFrame({"clicked": np.arange(200) % 2, "site": ["a", "b"] * 100, "price": np.arange(200) / 7})


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return MemoryCluster()


def submitted(memory: MemoryCluster, *job: Any, **given: Any) -> JobSpec:
    name = Cluster(memory).submit(*job, **given).name
    return memory.links[name].state.spec


@pytest.mark.parametrize("path", ["rows.parquet", Path("rows.parquet"), "./rows.parquet"])
def test_a_path_is_data_from_here(memory: MemoryCluster, path: str | Path) -> None:
    spec = submitted(memory, data=path, label="clicked", model="dcn_v2", workers=2, epochs=3)
    rows = str(Path.cwd() / "rows.parquet")
    assert spec.data == DataSpec(DataFormat.PARQUET, rows, label="clicked", guess=True)
    assert (spec.name, spec.model.name, spec.plan.worker.count, spec.n_epoch) == ("rows", "dcn_v2", 2, 3)
    assert memory.own == [(None, None)]


def test_rows_in_memory_are_written_once(memory: MemoryCluster) -> None:
    specs = [submitted(memory, "ads", data=rows, label="clicked") for rows in (FRAME, FRAME.copy())]
    specs.append(submitted(memory, "ads", data={"path": FRAME, "label": "clicked", "exclude": ["price"]}))
    assert {spec.data.path for spec in specs} == {specs[0].data.path}
    assert pq.read_table(specs[0].data.path).to_pylist() == FRAME.to_dict("records")
    assert specs[2].data.exclude == ("price",)
    columns = submitted(memory, data={"label": [0, 1], "path": ["a", "b"]})
    assert pq.read_table(columns.data.path).column_names == ["label", "path"]
    assert columns.name == "job"


def test_a_group_of_keys_is_no_table(memory: MemoryCluster) -> None:
    spec = submitted(memory, data={"path": "a.csv", "numeric": ["x"], "holdout": 0.5}, model={"hidden": [8]})
    assert (spec.data.format, spec.data.numeric, spec.data.holdout) == (DataFormat.CSV, ("x",), 0.5)
    assert spec.model.hidden == (8,)


def test_types_of_columns_are_a_mapping_whatever_their_names(memory: MemoryCluster, error_words) -> None:
    types = {"x.0": "number", "a=b": "category"}
    pairs = ("x.0=number", "a=b=category")
    for given in ({"data": {"path": "a.csv", "types": types}}, {"data": "a.csv", "types": types}):
        assert submitted(memory, **given).data.types == pairs
    job = {
        "name": "b",
        "data": {"path": "a.csv", "types": types, "separator": "\\t", "decimal": ",", "guess": False},
    }
    data = submitted(memory, job, types={"c": "time"}).data
    assert (data.types, data.separator, data.decimal, data.guess) == (("c=time",), "\t", ",", False)
    with error_words(InvalidValueError):
        submitted(memory, data="a.csv", types={"c": "integer"})
    with error_words(InvalidValueError):
        submitted(memory, data="a.csv", decimal=",", thousands=",")


@pytest.mark.parametrize(
    ("data", "paths", "name"),
    [
        (["a.csv", Path("day/*.csv.gz")], ["{here}/a.csv", "{here}/day/*.csv.gz"], "a"),
        ("june-clicks/*.csv.gz", ["{here}/june-clicks/*.csv.gz"], "june-clicks"),
        ("s3://bucket/clicks/*.csv", ["s3://bucket/clicks/*.csv"], "clicks"),
        ("https://example.org/b.csv.gz?sig=1", ["https://example.org/b.csv.gz?sig=1"], "b"),
        ({"path": ["a.csv", "b.csv"]}, ["{here}/a.csv", "{here}/b.csv"], "a"),
    ],
)
def test_several_files_patterns_and_urls_are_data(
    memory: MemoryCluster, data: Any, paths: list[str], name: str
) -> None:
    spec = submitted(memory, data=data)
    assert spec.data.paths == tuple(path.format(here=Path.cwd()) for path in paths)
    assert (spec.data.format, spec.name) == (DataFormat.CSV, name)


def test_a_folder_has_the_format_of_its_files(memory: MemoryCluster) -> None:
    Path("rows").mkdir()
    for file in ("rows/a.tsv.zst", "rows/_SUCCESS", "rows/.hidden.csv"):
        Path(file).touch()
    assert submitted(memory, data="rows").data.format == DataFormat.TSV
    Path("rows/b.npz").touch()
    with pytest.raises(InvalidValueError, match=r"several formats \(numpy, tsv\)"):
        submitted(memory, "again", data="rows")


def test_code_of_ones_own_stays_code(memory: MemoryCluster) -> None:
    submitted(memory, "a", data="package.rows:Rows", model="package.nets:Net")
    submitted(memory, "b", data=dict, model=list)
    assert memory.own == [("package.nets:Net", "package.rows:Rows"), (list, dict)]


def test_data_takes_the_place_of_the_jobs(memory: MemoryCluster) -> None:
    job = JobSpec("ads", data=DataSpec("parquet", "/data/a.parquet", label="y"))
    assert submitted(memory, job, data="/b.csv").data == DataSpec("csv", "/b.csv", label="y")
    same = {"name": "ads", "data": {"format": "criteo", "path": "/data/day_0"}}
    assert submitted(memory, same, data="/data/day_1").data == DataSpec("criteo", "/data/day_1", guess=True)
    own = {"name": "ads", "model": {"name": "package.nets:Net"}}
    assert submitted(memory, own, model="wide_deep").model.code == ""


def test_a_job_without_a_name_is_named_after_its_file(memory: MemoryCluster) -> None:
    names = [submitted(memory, data=path).name for path in ("Day_1 (a).csv", "day-1 a.csv", "7.csv", None)]
    assert names == ["day-1-a", "day-1-a-2", "job", "job-2"]
    assert submitted(memory, data="7.csv", name="seven").name == "seven"
    assert submitted(memory, "ads").name == "ads"


def test_keys_are_named_as_the_flags_of_the_command_line() -> None:
    for flag, path, *_ in SUBMIT_FLAGS:
        keyword = flag.removeprefix("--").replace("-", "_")
        if keyword in {
            "early_stopping",
            "patience",
            "min_gain",
            "target",
            "decline",
            "data",
            "model",
            "from",
        }:
            continue  # groups, keys of a group that is off by default, and a word of Python
        keyword += "_mib" * keyword.endswith("_memory")
        assert settings_of({keyword: 1}) == ((path, 1),)


@for_each(
    ("given", "message"),
    [
        ({"model": "dcnv2"}, "unknown model 'dcnv2'; did you mean dcn_v2?"),
        ({"worker": 2}, "unknown key 'worker'; did you mean workers?"),
        ({"data": "rows.xls"}, "data.format is missing, and the extension of .*rows.xls' is unknown"),
        ({"data": FRAME["site"]}, "expected a DataFrame, got a Series"),
        ({"data": FRAME.rename(columns={"site": 3})}, "column names must be text, got 3"),
        ({"learning_rat": 2}, "did you mean learning_rate"),
    ],
)
def test_a_mistake_starts_nothing(memory: MemoryCluster, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Cluster(memory).submit("ads", **given)
    assert memory.links == {}


@pytest.fixture
def simulated() -> Iterator[Cluster]:
    cluster = Cluster(connect("sim"))
    yield cluster
    cluster.shutdown(force=True)


def test_the_answer_shows_what_was_taken(memory: MemoryCluster, simulated: Cluster) -> None:
    frame = FRAME.assign(user_id=np.arange(200) % 9, paid=[f"{i},5" for i in range(200)], empty=np.nan)
    job = simulated.submit(data=frame, label="clicked")
    assert job.schema is not None
    assert (job.schema.n_train, job.schema.positive) == (180, 0.5)
    for text in (str(job), job._repr_mimebundle_()["text/html"]):
        for said in (
            "200: 180 to train, 20 to evaluate",
            "50.0 % are 1",
            "user_id",
            "looks like ids, so it is taken as ids",
            "holds numbers written as",
            "all rows",
        ):
            assert said in text
    assert "exclude: [empty]" in str(job)
    assert simulated.job(job.name).schema is None, "found again, it shows its state"


def test_a_start_is_a_run_by_its_name_alone_and_overrides_that_of_a_file(tmp_path: Path) -> None:
    assert job_of("next", settings_of({"start_from": "daily"})).start_from == StartFrom("daily")
    file = tmp_path / "job.yaml"
    file.write_text("name: next\nstart_from: daily\n")
    given = [("start_from.source", "weekly"), ("start_from.rows", True)]
    assert job_of(file, given).start_from == StartFrom("weekly", rows=True)


def test_a_submit_warns_of_a_network_that_may_read_what_it_carries(words) -> None:
    trusted = JobSpec("one", exchange=ExchangeSpec(encryption=Encryption.NONE))
    text = " ".join(str(SubmittedView(trusted)).split())
    assert text == words
    assert "network" not in str(SubmittedView(JobSpec("one")))
