from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.yamltext import to_yaml


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back_from_yaml(text: str) -> None:
    assert yaml.safe_load(to_yaml({"a": text})) == {"a": text}


def test_yaml_keeps_the_order_and_repeats_shared_values() -> None:
    shared = {"cpu": "1"}
    text = to_yaml({"b": shared, "a": shared}, {"c": "ü"})
    assert text == "b:\n  cpu: '1'\na:\n  cpu: '1'\n---\nc: ü\n"
