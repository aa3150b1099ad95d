"""Columns of lists: which items of a row become ids, whatever the lists are stored as."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.encode import PADDING, encode_inputs, ids_of, open_ids, padded, sequence_ids
from dlrover_nb.core.data.objects.arrow_tables import as_table
from dlrover_nb.core.data.objects.stored import store_rows
from dlrover_nb.core.data.selection.inspection import take_data
from dlrover_nb.core.deadline.training_rows import n_param_of
from dlrover_nb.core.driver.job_start import traits_of
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.data.features import CategoricalColumn, SequenceInput, SequenceSpec
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Embedding
from dlrover_nb.core.structs.views.schema import Use

if TYPE_CHECKING:
    from pathlib import Path

HASH, FIXED = ModelSpec(embedding=Embedding.HASH), ModelSpec()
LISTS = [[1, 2, 3], [], None, [4], [5, None, 6, 7], [2]]
N = len(LISTS)
PLAIN = {"label": [0, 1] * 3, "item": [1, 2, 3, 4, 9, 2]}
OF_ITEM = (SequenceSpec("history", 3, embedding_of="item"),)


def data(folder: Path, history: Any, *, text: str = "", **options: Any) -> DataSpec:
    if text:
        path = folder / "rows.csv"
        path.write_text(text)
        return DataSpec(DataFormat.CSV, str(path), holdout=0.0, **options)
    path = folder / "rows.parquet"
    pq.write_table(pa.table({**PLAIN, "history": history}), path)
    return DataSpec(DataFormat.PARQUET, str(path), holdout=0.0, **options)


def refusal(spec: DataSpec, model: ModelSpec = HASH) -> str:
    with pytest.raises(DlroverError) as caught:
        make_features(spec, model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def read(spec: DataSpec, model: ModelSpec) -> Any:
    features = make_features(spec, model)
    return ShardReader(spec, features).read(0, N).ids, features


@settings(deadline=None)
@given(
    lists=st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8),
    length=st.integers(1, 8),
)
def test_the_last_items_of_each_row_stand_on_the_left_in_their_order(
    lists: list[list[int]], length: int
) -> None:
    rows = np.repeat(np.arange(len(lists)), [len(each) for each in lists])
    ids = np.array([i for each in lists for i in each], np.int64)
    got = padded(rows, ids, (len(lists), length)).tolist()
    want = [each[-length:] + [PADDING] * (length - len(each)) for each in lists]
    assert got == want


@for_each(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.list_(pa.int8()),
        pa.large_list(pa.uint32()),
        pa.list_(pa.field("element", pa.int32())),
    ],
)
def test_lists_of_numbers_are_sequences_by_their_type(tmp_path: Path, kind: pa.DataType) -> None:
    ids, features = read(data(tmp_path, pa.array(LISTS, kind)), HASH)
    column = features.categorical[0]
    assert (column.name, column.sequence) == ("history", SequenceSpec("history"))
    assert column.n_item == pytest.approx(8 / 6)
    assert ids.shape == (N, 50)
    assert ((ids != PADDING).sum(1)).tolist() == [3, 0, 0, 1, 3, 1]
    assert ids[0, 1] == ids[5, 0], "an item has one id wherever it stands"


def test_the_ids_of_items_are_those_of_a_column_of_single_ids() -> None:
    words = [["a", "b"], ["b"], [], ["é", "a", "NA", "b"]]
    column = CategoricalColumn("h", 0, 0, sequence=SequenceSpec("h", 2))
    got = sequence_ids(pa.chunked_array([words]), column, column.sequence or SequenceSpec("h"))
    single = ids_of(pa.chunked_array([["a", "b", "é"]]), CategoricalColumn("h", 0, 0)).tolist()
    a, b, _ = single
    assert got[:3].tolist() == [[a, b], [b, PADDING], [PADDING, PADDING]]


@for_each("model", [HASH, FIXED])
def test_a_history_has_the_ids_of_the_items_whose_embeddings_it_has(tmp_path: Path, model: ModelSpec) -> None:
    ids, features = read(data(tmp_path, pa.array(LISTS), sequences=OF_ITEM), model)
    assert features.sequences == (SequenceInput("history", 1, 3, target=0),)
    assert [c.name for c in features.categorical] == ["item", "history"]
    item, history = ids[:, 0], ids[:, 1:]
    assert history[0].tolist() == item[:3].tolist(), "items 1, 2, 3"
    assert history[3].tolist() == [item[3], PADDING, PADDING]
    column = features.categorical[0]
    assert features.n_table_row == column.hash_size, "one table for both"
    if model is FIXED:  # room for the items of histories, too: none collide
        assert len({*history[history != PADDING].tolist(), *item.tolist()}) == 8
    assert features.n_lookup == round(1 + 8 / 6), "padding is not looked up"


def test_estimates_count_the_items_of_a_row_and_not_its_padding(tmp_path: Path) -> None:
    spec = data(tmp_path, pa.array(LISTS), sequences=OF_ITEM)
    features = make_features(spec, FIXED)
    traits = traits_of(JobSpec("x", data=spec, model=FIXED), features)
    assert traits.embedding_dim == 2 * FIXED.row_width, "an item and 8 of 6 rows' histories, rounded"
    table = features.n_table_row * FIXED.row_width
    assert n_param_of(traits) == traits.dense_bytes // 4 + table


def test_a_history_of_texts_reads_numbers_as_their_column_does(tmp_path: Path) -> None:
    text = "label,item,history\n" + "".join(
        f"{i % 2},{item},{'|'.join(str(x) for x in each or () if x)}\n"
        for i, (item, each) in enumerate(zip(PLAIN["item"], LISTS, strict=True))
    )
    ids, features = read(data(tmp_path, None, text=text, sequences=OF_ITEM), HASH)
    assert [c.name for c in features.categorical] == ["item", "history"]
    assert ids[0, 1:].tolist() == ids[:3, 0].tolist()
    lists = encode_inputs(as_table({**PLAIN, "history": LISTS}), features)[0]
    assert np.array_equal(lists, ids)


def test_items_are_read_in_the_type_of_the_column_whose_embeddings_they_have(tmp_path: Path) -> None:
    table = pa.table({**PLAIN, "item": list(map(str, PLAIN["item"])), "history": LISTS})
    pq.write_table(table, tmp_path / "rows.parquet")
    spec = DataSpec(DataFormat.PARQUET, str(tmp_path / "rows.parquet"), holdout=0.0, sequences=OF_ITEM)
    for model in (HASH, FIXED):
        ids, _ = read(spec, model)
        assert ids[0, 1:].tolist() == ids[:3, 0].tolist(), "1, 2 and 3 are those of the texts"


def test_the_separator_of_texts_is_a_setting(tmp_path: Path) -> None:
    text = 'label,h\n1,"a, b"\n0,c\n1,\n0,"a, c"\n1,b\n0,a\n'
    spec = data(tmp_path, None, text=text, sequences=(SequenceSpec("h", 2, ", "),))
    ids, features = read(spec, HASH)
    assert ((ids != PADDING).sum(1)).tolist() == [2, 1, 0, 2, 1, 1]
    assert ids[0].tolist() == [ids[5, 0], ids[4, 0]]
    assert ids[0, 0] == open_ids(*_hash("a"))
    assert take_data(spec, HASH)[1].warnings == ()
    assert features.categorical[0].sequence == spec.sequences[0]


def _hash(word: str) -> Any:
    from dlrover_nb.core.data.encode import hash_values  # noqa: PLC0415 - one use

    return hash_values(pa.array([word])), "h"


def test_texts_that_look_like_lists_are_named(tmp_path: Path, words) -> None:
    text = "label,h\n1,a|b\n0,c|d|e\n1,\n0,a\n1,b|a\n0,a|c\n"
    (warning,) = take_data(data(tmp_path, None, text=text), HASH)[1].warnings
    assert warning == words
    assert "data.sequences" in warning


@for_each(
    ("history", "sequences", "words"),
    [
        ([[1.5]] * N, (SequenceSpec("history"),), "holds lists of double, expected whole numbers or text"),
        ([1] * N, (SequenceSpec("history"),), "must hold lists of ids, or text with '|' between"),
        (LISTS, (SequenceSpec("histories"),), "did you mean 'history'"),
        (LISTS, (SequenceSpec("history", embedding_of="items"),), "did you mean 'item'"),
        (LISTS, (SequenceSpec("history", embedding_of="label"),), "is no column of ids that is used"),
        (
            LISTS,
            (SequenceSpec("history", embedding_of="item"), SequenceSpec("item", embedding_of="history")),
            "has those of another column itself",
        ),
        (LISTS, (SequenceSpec("label"),), "the label 'label' is named in sequences"),
    ],
)
def test_what_is_no_sequence_of_ids_is_refused(
    tmp_path: Path, history: Any, sequences: tuple[SequenceSpec, ...], words: str
) -> None:
    assert words in refusal(data(tmp_path, pa.array(history), sequences=sequences))


@for_each(
    ("keys", "words"),
    [
        ({"length": 0}, "length must be >= 1"),
        ({"length": 10**6}, "length must be <= 65,536"),
        ({"separator": ""}, 'separator must be text such as "|"'),
        ({"embedding_of": "h"}, "must be another column"),
    ],
)
def test_settings_of_a_sequence_are_checked(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(DlroverError) as caught:
        SequenceSpec("h", **keys)
    assert words in str(caught.value)


def test_rows_of_several_forms_in_memory_are_one_job(tmp_path: Path) -> None:
    frame = pd.DataFrame({**PLAIN, "history": LISTS})
    want, _ = read(data(tmp_path, pa.array(LISTS), sequences=OF_ITEM), HASH)
    for rows in (frame, frame.to_dict("list"), pa.table({**PLAIN, "history": LISTS})):
        stored = store_rows(rows, tmp_path / "stored")
        again = DataSpec(DataFormat.PARQUET, str(stored), holdout=0.0, sequences=OF_ITEM)
        assert np.array_equal(read(again, HASH)[0], want)


def test_files_of_lists_of_several_widths_are_one_data_set(tmp_path: Path) -> None:
    for i, kind in enumerate((pa.int32(), pa.int64(), pa.null())):
        lists = [[]] * N if pa.types.is_null(kind) else LISTS
        pq.write_table(
            pa.table({**PLAIN, "history": pa.array(lists, pa.list_(kind))}), tmp_path / f"{i}.parquet"
        )
    spec = DataSpec(DataFormat.PARQUET, str(tmp_path), holdout=0.0, sequences=OF_ITEM)
    features = make_features(spec, HASH)
    ids = ShardReader(spec, features).read(0, 3 * N).ids
    assert np.array_equal(ids[:N], ids[N : 2 * N])
    assert (ids[2 * N :, 1:] == PADDING).all()


def test_a_description_counts_items_and_empty_lists(tmp_path: Path) -> None:
    schema = take_data(data(tmp_path, pa.array(LISTS)), HASH)[1]
    (history,) = [column for column in schema.columns if column.name == "history"]
    assert (history.use, history.type, history.n_distinct) == (Use.SEQUENCE, "int64", 7)
    assert history.missing == pytest.approx(2 / 6)


def test_lists_named_among_other_columns_are_sequences(tmp_path: Path) -> None:
    features = make_features(data(tmp_path, pa.array(LISTS), categorical=("history", "item")), HASH)
    assert [c.name for c in features.categorical] == ["history", "item"]
    assert [s.name for s in features.sequences] == ["history"]
    named = data(tmp_path, pa.array(LISTS), numeric=("item",), sequences=(SequenceSpec("history"),))
    assert [c.name for c in make_features(named, HASH).categorical] == ["history"]


HISTORY = (SequenceSpec("history"),)


@for_each(
    ("options", "words"),
    [
        ({"types": ("history=category",), "sequences": HISTORY}, "is category in types, but named in seq"),
        ({"types": ("history=number",), "sequences": HISTORY}, "is number in types, but named in sequences"),
        ({"types": ("history=number",)}, "holds no numbers but list<"),
        ({"types": ("item=number",), "sequences": OF_ITEM}, "'history' has its embeddings, which only ids"),
        ({"exclude": ("history",), "sequences": HISTORY}, "is in sequences and in exclude"),
        ({"numeric": ("history",), "sequences": HISTORY}, "'history' is named twice"),
    ],
)
def test_keys_that_contradict_sequences_are_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    assert words in refusal(data(tmp_path, pa.array(LISTS), **options))


def test_ids_by_their_type_may_be_lists_or_have_their_embeddings(tmp_path: Path) -> None:
    lists = make_features(data(tmp_path, pa.array(LISTS), types=("history=category",)), HASH)
    assert [each.name for each in lists.sequences] == ["history"]
    for more in ({}, {"categorical": ("history",)}):
        spec = data(tmp_path, pa.array(LISTS), types=("item=category",), sequences=OF_ITEM, **more)
        (history,) = make_features(spec, HASH).sequences
        assert history.target is not None


def test_nothing_is_guessed_of_lists_and_of_the_column_whose_embeddings_they_have(tmp_path: Path) -> None:
    n = 2000
    columns = {"label": [0, 1] * (n // 2), "item": range(n), "history": [[i, i + 1] for i in range(n)]}
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), tmp_path / "a.pq")
    spec = DataSpec(DataFormat.PARQUET, str(tmp_path / "a.pq"), guess=True)
    features, schema = take_data(spec, HASH)
    assert [each.name for each in features.categorical] == ["history"]
    assert len(schema.guesses) == 1  # the numbers of the rows are left out
    features, schema = take_data(replace(spec, sequences=OF_ITEM), HASH)
    assert {each.name for each in features.categorical} == {"history", "item"}
    assert schema.guesses == schema.warnings == ()


def test_items_of_texts_are_no_numbers_in_a_local_form(tmp_path: Path) -> None:
    text = "label;price;item;history\n" + "1;1,5;3,5;1,5\n0;2,5;1,5;3,5\n" * 20
    spec = data(tmp_path, None, text=text, separator=";", decimal=",", sequences=OF_ITEM)
    features, schema = take_data(spec, HASH)
    assert [each.name for each in features.numeric] == ["price"]
    assert schema.warnings == ()
    ids = ShardReader(spec, features).read(0, 2).ids
    names = [each.name for each in features.categorical]
    item, history = ids[:, names.index("item") * 3], ids[:, names.index("history")]
    assert item.tolist() == history[::-1].tolist()


def test_a_job_with_parameters_of_another_takes_its_lists_without_a_key(tmp_path: Path) -> None:
    text = "label,item,history\n" + "1,7,7|8\n0,8,8\n" * 20
    spec = data(tmp_path, None, text=text, sequences=OF_ITEM)
    trained = make_features(spec, HASH)
    again = make_features(replace(spec, sequences=(), guess=True), HASH, trained=trained)
    assert again.categorical == trained.categorical


def test_a_long_text_of_items_is_no_long_id(tmp_path: Path) -> None:
    items = "|".join(map(str, range(1000)))
    spec = data(tmp_path, None, text=f"label,history\n1,{items}\n0,{items}\n", sequences=HISTORY)
    assert take_data(spec, HASH)[1].warnings == ()


def test_items_that_are_dates_are_ids_where_a_key_says_so(tmp_path: Path) -> None:
    text = "label,item,history\n" + "1,2026-01-02,2026-01-03\n0,2026-01-03,2026-01-02\n" * 20
    spec = data(tmp_path, None, text=text, sequences=OF_ITEM, guess=True)
    features, schema = take_data(spec, HASH)
    assert {each.name for each in features.categorical} == {"history", "item"}
    assert schema.guesses == ()
