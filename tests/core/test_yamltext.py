from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.yamltext import load_documents, to_yaml


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back_from_yaml(text: str) -> None:
    assert yaml.safe_load(to_yaml({"a": text})) == {"a": text}


def test_yaml_keeps_the_order_and_repeats_shared_values() -> None:
    shared = {"cpu": "1"}
    text = to_yaml({"b": shared, "a": shared}, {"c": "ü"})
    assert text == "b:\n  cpu: '1'\na:\n  cpu: '1'\n---\nc: ü\n"


def test_aliases_are_read_as_what_they_stand_for() -> None:
    assert load_documents("a: &x [1, 2]\nb: *x\n---\n- 3") == [{"a": [1, 2], "b": [1, 2]}, [3]]


@pytest.mark.parametrize(
    "text", ["&a [*a]", "a: &a {b: *a}", "a: &a [1]\nb: &b [*a, *a]\n" + "c: [" + "*b, " * 300_000 + "]"]
)
def test_aliases_that_multiply_without_end_are_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"at most 1,000,000 values, got more"):
        load_documents(text)
