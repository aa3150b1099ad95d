"""Shares in texts: one form everywhere, with a space, and no sign before zero."""

import ast
import re
from pathlib import Path

import pytest

import dlrover_nb
from dlrover_nb.core.basics.percents import chance_words, fraction, percent, signed_fraction, signed_percent

BARE = re.compile(r"%$")  # of a format: `{share:.0%}` writes 21%


def test_a_part_of_an_auc_has_the_digits_that_matter_and_no_sign_at_zero() -> None:
    assert (fraction(0.0124), fraction(0.003), fraction(0.00042)) == ("0.012", "0.003", "0.0004")
    assert (signed_fraction(-0.0031), signed_fraction(0.00042)) == ("-0.003", "+0.0004")
    assert signed_fraction(-0.00001) == signed_fraction(0.0) == "0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (percent(0.214), "21 %"),
        (percent(0.214, 1), "21.4 %"),
        (percent(-0.001), "0 %"),
        (signed_percent(0.214), "+21 %"),
        (signed_percent(-0.0004, 1), "+0.0 %"),
        (chance_words(0.004), "< 1 %"),
        (chance_words(0.5), "50 %"),
        (chance_words(0.999), "> 99 %"),
    ],
)
def test_a_share_is_written_with_a_space_and_no_sign_before_zero(text: str, words: str) -> None:
    assert text == words


def test_no_text_of_the_package_formats_a_share_by_itself() -> None:
    package = Path(dlrover_nb.__file__).parent
    bare = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FormattedValue)
        and node.format_spec is not None
        and BARE.search(ast.unparse(node.format_spec).strip("f'\""))
    ]
    assert bare == []
