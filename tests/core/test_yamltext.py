from __future__ import annotations

from datetime import date

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.yamltext import load_documents, to_yaml


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back_from_yaml(text: str) -> None:
    assert yaml.safe_load(to_yaml({"a": text})) == {"a": text}


@for_each(
    "text",
    [
        *(
            "1e-3",
            "4e1",
            "6e12345",
            "12e03",
            "1e+3",
            "0o17",
            "0x1f",
            "0b1",
            "0777",
            "08",
            "1_0",
            ".5",
            "5.",
            "+1",
        ),
        *("-.5e3", "1:30", "yes", "Off", "y", "N", "null", "~", ".inf", ".NaN", "inf", "2001-1-1", "<<", "="),
        *("2001-01-01 1:2:3", "", " ", "-", "- a", "a: b", "#"),
    ],
)
def test_text_that_some_reader_takes_for_another_type_is_quoted(text: str) -> None:
    written = to_yaml({"a": text})
    assert written[3] in "'\"", written
    assert read_by_each(written) == [{"a": text}] * 2


@given(st.text("0123456789abefxoXOEyYnN_.:+-~<= ", max_size=8))
@settings(deadline=None)
def test_a_text_is_one_for_readers_of_both_versions_of_yaml(text: str) -> None:
    assert read_by_each(to_yaml({text: [text]})) == [{text: [text]}] * 2


def read_by_each(text: str) -> list[object]:
    """Read a text by an independent reader of YAML 1.2, and as YAML 1.1."""
    reader, older = YAML(typ="safe", pure=True), YAML(typ="safe", pure=True)
    older.version = (1, 1)
    return [reader.load(text), older.load(text)]


def test_yaml_keeps_the_order_and_repeats_shared_values() -> None:
    shared = {"cpu": "1"}
    text = to_yaml({"b": shared, "a": shared}, {"c": "ü"})
    assert text == "b:\n  cpu: '1'\na:\n  cpu: '1'\n---\nc: ü\n"


def test_aliases_are_read_as_what_they_stand_for() -> None:
    assert load_documents("a: &x [1, 2]\nb: *x\n---\n- 3") == [{"a": [1, 2], "b": [1, 2]}, [3]]


@pytest.mark.parametrize(
    "text",
    [
        "&a [*a]",
        "a: &a {b: *a}",
        "a: &a [" + "1, " * 1000 + "]\nb: &b [" + "*a, " * 30 + "]\nc: [" + "*b, " * 40 + "]",
    ],
    ids=["list", "group", "many"],
)
def test_aliases_that_multiply_without_end_are_refused(text: str, error_words) -> None:
    with error_words(InvalidValueError):
        load_documents(text)


def test_groups_that_merge_each_other_without_end_are_refused_before_they_are_merged(error_words) -> None:
    lines = ["a: &a {k: 1}"]
    for n in range(60):  # 2^60 values, by some lines
        before = f"b{n - 1}" if n else "a"
        lines.append(f"b{n}: &b{n}\n  <<: [*{before}, *{before}]")
    with error_words(InvalidValueError):
        load_documents("\n".join(lines))


def test_merged_groups_are_read() -> None:
    assert load_documents("a: &a {k: 1, j: 2}\nb: {<<: *a, k: 3}") == [
        {"a": {"k": 1, "j": 2}, "b": {"k": 3, "j": 2}}
    ]


@for_each(
    ("text", "value"),
    [
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("010", "010"),
        ("0b1", "0b1"),
        ("1:30.5", "1:30.5"),
        ("12", 12),
        ("-1_000", -1000),
        ("+7", 7),
        ("0", 0),
        ("1.5", 1.5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        (".inf", float("inf")),
        ("yes", True),
        ("2026-01-02", date(2026, 1, 2)),
    ],
)
def test_numbers_are_decimal(text: str, value: object) -> None:
    assert load_documents(f"n: {text}") == [{"n": value}]
