"""The checkpoint that a job begins from: found by each of its names, compared, never told with its secrets."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import numpy as np
import pytest

from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.errors import CheckpointError, DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.master.own.state.state import ORIGIN, train_split
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.find_checkpoint import find_checkpoint
from dlrover_nb.core.rundir.job_file import JobFile, write_job
from dlrover_nb.core.rundir.origin import origin_of
from dlrover_nb.core.rundir.same_model import differences
from dlrover_nb.core.runtime.checkpoints import Image, Layout, read_url, write_url
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec, NumericColumn, SequenceSpec
from dlrover_nb.core.structs.job.job import DataSpec, JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.secrets import for_storage, without_secrets
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.job.trained import Trained
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root, part_url
from dlrover_nb.core.structs.views.events import PhaseChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = DataSpec(DataFormat.PARQUET, "/data/day.parquet")
FEATURES = FeatureSpec(
    "label", (NumericColumn("age", 3.0, 1.5),), (CategoricalColumn("site", 0, 64),), 4000, 400
)
SPEC = JobSpec("daily", data=DATA, batch_size=10, shard_batches=4)
BEGAN_S = 1_750_000_000.0
BUCKET = "memory://origin-tests"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    yield tmp_path
    memory = fsspec.filesystem("memory")
    if memory.exists("/origin-tests"):
        memory.rm("/origin-tests", recursive=True)


def run(
    name: str,
    *,
    numbers: tuple[int, ...] = (1, 2),
    spec: JobSpec = SPEC,
    told: bool = True,
    at_s: float = 9.0,
) -> Path:
    """Make the run folder of a job that wrote these checkpoints, the last after 100 rows."""
    folder = jobs_folder() / name
    folder.mkdir(parents=True)
    write_job(folder, JobFile(spec, FEATURES, BEGAN_S, "ipc://x", "p", "s"))
    kept = CheckpointFolder(
        folder, spec.checkpoint_url, trained=Trained(spec.model, spec.data, FEATURES) if told else None
    )
    root = checkpoint_root(spec.checkpoint_url, str(folder))
    ledger = ShardLedger(train_split(spec, FEATURES))
    for number in numbers:
        shard = ledger.grant("w")
        assert shard is not None
        ledger.complete("w", shard.lease)
        kept.prepare(number, 0)
        url = part_url(root, number, 0)
        written = write_url(url, Layout(Image({}, {"a": np.full(3, number)})).chunks())
        kept.write(Manifest(number, at_s, 1, (0, 0), ((url, written.sha256),), 3, 4, ledger.checkpoint()))
    return folder


def begun(source: object, spec: JobSpec = SPEC, *, rows: bool = False, folder: Path | None = None) -> str:
    """Return the place that a job begins from; its parts must be readable."""
    origin = origin_of(replace(spec, start_from=StartFrom(str(source), rows)), FEATURES, folder=folder)
    assert origin is not None
    for url, sha256 in origin.checkpoint.manifest.files:
        read_url(url, sha256)
    assert origin.checkpoint.number == ORIGIN
    return origin.began_from.place


def refused(kind: type[DlroverError], words: str, source: object, spec: JobSpec = SPEC) -> str:
    with pytest.raises(kind, match=words) as caught:
        begun(source, spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_job_names_its_newest_run_with_a_checkpoint_and_never_itself() -> None:
    old, _, own = (
        run("daily-20260101T000000-000"),
        run("daily-20260102T000000-000", numbers=()),
        run("daily-20260103T000000-000"),
    )
    assert begun("daily", folder=own) == f"checkpoint 2 of {old.name}"
    assert begun("daily") == f"checkpoint 2 of {own.name}"


def test_a_run_is_named_by_its_folder_its_id_and_its_path() -> None:
    folder = run("daily-20260101T000000-000")
    for source in (
        folder.name,
        f"daily@{BEGAN_S + 0.8:.3f}",
        folder,
        folder / "checkpoints",
        folder / "checkpoints/2",
    ):
        assert begun(source).startswith("checkpoint 2 of")
    assert begun(folder / "checkpoints" / "1").startswith("checkpoint 1 of")
    refused(NotFoundError, "no run 'daily@5.000' with a checkpoint", "daily@5.000")


def test_a_url_is_enough_and_other_runs_are_asked_for_by_name() -> None:
    first = run("daily-20260101T000000-000", spec=replace(SPEC, checkpoint_url=BUCKET))
    shutil.rmtree(first)
    for source in (BUCKET, f"{BUCKET}/{first.name}", f"{BUCKET}/{first.name}/2/"):
        assert begun(source).startswith("checkpoint 2 of memory://")
    run("daily-20260102T000000-000", spec=replace(SPEC, checkpoint_url=BUCKET))
    refused(NotFoundError, "checkpoints of 2 runs; add the run's name: daily-2026", BUCKET)
    refused(NotFoundError, "no complete checkpoint at memory://nowhere", "memory://nowhere")
    refused(CheckpointError, "cannot read nothing://x", "nothing://x")


def test_a_checkpoint_that_was_copied_elsewhere_is_read_there(home: Path) -> None:
    folder = run("daily-20260101T000000-000")
    shutil.copytree(folder / "checkpoints" / "2", home / "copy")
    shutil.rmtree(folder)
    assert begun(home / "copy") == f"checkpoint 2 of {home / 'copy'}"


def test_a_run_whose_folder_is_gone_is_found_by_the_history(home: Path) -> None:
    spec = replace(SPEC, checkpoint_url=BUCKET)
    shutil.rmtree(run("daily-20260101T000000-000", spec=spec, at_s=BEGAN_S + 50))
    shutil.rmtree(run("daily-20260102T000000-000", numbers=(5,), spec=spec, at_s=BEGAN_S + 5000))
    store = HistoryStore()
    for at_s in (BEGAN_S, BEGAN_S + 4000):
        store.remember("daily", at_s, spec)
        store.remember("daily", at_s + 1100, PhaseChanged(at_s + 1100, JobPhase.SUCCEEDED))
    store.close()
    assert begun("daily") == f"checkpoint 5 of daily@{BEGAN_S + 4000:.3f}"
    assert begun(f"daily@{BEGAN_S:.3f}") == f"checkpoint 2 of daily@{BEGAN_S:.3f}"
    refused(NotFoundError, "did you mean daily", "dayly")


def test_a_run_of_release_0_1_is_described_by_its_folder_alone() -> None:
    folder = run("daily-20260101T000000-000", told=False)
    assert begun("daily").startswith("checkpoint 2")
    refused(CheckpointError, "of release 0.1, which did not note the model", folder / "checkpoints")


def test_parts_get_a_second_name_in_the_run_folder_and_outlive_the_run(home: Path) -> None:
    old = run("daily-20260101T000000-000")
    here = home / "state" / "new"
    origin = origin_of(replace(SPEC, start_from=StartFrom("daily")), FEATURES, folder=here)
    shutil.rmtree(old)
    assert origin is not None
    ((url, sha256),) = origin.checkpoint.manifest.files
    assert Path(url).is_relative_to(here)
    assert read_url(url, sha256).arrays["a"].tolist() == [2, 2, 2]


def test_scales_tables_and_the_order_of_columns_are_those_of_the_checkpoint(words) -> None:
    run("daily-20260101T000000-000")
    new = replace(
        FEATURES,
        numeric=(NumericColumn("age", 7, 1),),
        categorical=(CategoricalColumn("site", 0, 8),),
        n_train=99,
    )
    origin = origin_of(replace(SPEC, start_from=StartFrom("daily")), new)
    assert origin is not None
    assert origin.features == replace(FEATURES, n_train=99)
    assert origin.began_from.n_sample == 0
    assert str(origin.began_from) == words


def test_rows_go_on_in_the_same_data_alone(words, error_words) -> None:
    run("daily-20260101T000000-000")
    spec = replace(SPEC, start_from=StartFrom("daily", rows=True))
    origin = origin_of(spec, FEATURES)
    assert origin is not None
    assert str(origin.began_from) == words
    with error_words(InvalidValueError):
        origin_of(replace(spec, data=replace(DATA, path="/data/next.parquet")), FEATURES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"embedding_dim": 8}, "model.embedding_dim was 16, here it is 8"),
        ({"hidden": (8, 4)}, "model.hidden was 256,128,64, here it is 8,4"),
        ({"optimizer": "adam"}, "model.optimizer was adagrad, here it is adam"),
        ({"hash_size": 128}, "model.hash_size was 65536, here it is 128"),
        ({"name": "dcn_v2"}, "model.name was wide_deep, here it is dcn_v2"),
        ({"embedding": "hash"}, "model.embedding was fixed, here it is hash"),
    ],
)
def test_another_model_is_refused_with_what_differs(changes: dict[str, object], words: str) -> None:
    run("daily-20260101T000000-000")
    spec = replace(SPEC, model=replace(SPEC.model, **changes))  # type: ignore[arg-type]
    told = refused(InvalidValueError, words, "daily", spec)
    assert told.endswith("make them the same, or leave start_from out")


def test_rates_and_seeds_may_differ_and_columns_may_not(words) -> None:
    trained = Trained(SPEC.model, DATA, FEATURES)
    assert not differences(trained, ModelSpec(learning_rate=1.0, seed=5, beta1=0.5), FEATURES)
    other = replace(
        FEATURES,
        label="clicked",
        numeric=(),
        categorical=(*FEATURES.categorical, CategoricalColumn("b", 64, 2)),
    )
    assert differences(trained, SPEC.model, other) == words


def test_a_column_of_lists_is_another_one_than_that_of_single_ids() -> None:
    a, *_ = FEATURES.categorical
    lists = [replace(a, name="b", sequence=SequenceSpec("b", 3, embedding_of=of)) for of in ("", a.name)]
    kinds = [replace(FEATURES, categorical=(a, b)) for b in (replace(a, name="b"), *lists)]
    for old, new in product(kinds, kinds):
        assert bool(differences(Trained(SPEC.model, DATA, old), SPEC.model, new)) == (old is not new)
    shorter = replace(lists[0], sequence=SequenceSpec("b", 2))
    assert not differences(
        Trained(SPEC.model, DATA, kinds[1]), SPEC.model, replace(FEATURES, categorical=(a, shorter))
    )


def test_no_secret_of_the_address_is_told_or_stored() -> None:
    source = "s3://ada:pl4nt3d-secret@bucket/daily"
    spec = replace(SPEC, start_from=StartFrom(source))
    with pytest.raises(DlroverError) as caught:
        find_checkpoint(source.replace("s3", "nothing"))
    assert not re.search("pl4nt3d", str(caught.value))
    assert "pl4nt3d" not in str(for_storage(spec))
    bare, left = without_secrets(spec)
    assert bare.start_from == StartFrom("s3://bucket/daily")
    assert left == ("the credentials of start_from.source",)
