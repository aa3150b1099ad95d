"""The templates of the pages: all of them can be read, and none of them lets a value be HTML."""

from __future__ import annotations

import ast
import fnmatch
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from jinja2 import Environment, PackageLoader, UndefinedError
from markupsafe import Markup

from dlrover_nb.dashboard.rendering import drawn, render
from dlrover_nb.widgets.blocks import Heading, Paragraph, View

DASHBOARD = Path(str(files("dlrover_nb.dashboard")))
TEMPLATES = sorted((DASHBOARD / "templates").iterdir())
ROOT = DASHBOARD.parents[1]
ELEMENT = re.compile(r"</?[a-z][a-z0-9]*(\s|>|$)")


def test_each_template_can_be_read():
    loaded = Environment(loader=PackageLoader("dlrover_nb.dashboard"), autoescape=True)
    for path in TEMPLATES:
        loaded.get_template(path.name)


def test_no_template_turns_escaping_off_or_has_a_script_or_a_handler_in_it():
    for path in TEMPLATES:
        text = path.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|Markup|\son[a-z]+\s*=|javascript:", text), path.name
        assert all(" src=" in tag for tag in re.findall(r"<script[^>]*>", text)), path.name


def test_values_are_escaped_and_blocks_are_not_twice():
    page = render("told.html", lines=[Paragraph("a < b")], address='"><b>')
    assert isinstance(page, Markup)
    assert "a &lt; b" in page
    assert 'href="&#34;&gt;&lt;b&gt;"' in page


def test_a_value_that_is_not_given_is_an_error():
    with pytest.raises(UndefinedError, match="address"):
        render("told.html", lines=[])


def test_a_view_is_drawn_as_one_and_headings_have_the_level_of_their_page():
    assert drawn(View("Title", ())) == View("Title", ()).html()
    assert "<h2" in drawn([Heading("x")], 2)


def html_in(path: Path) -> list[str]:
    """Return the texts of a module that begin or end an element; its docstrings are none of them."""
    tree = ast.parse(path.read_text())
    docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [text for text in texts if text not in docs and ELEMENT.search(text)]


documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_html_is_written_in_templates_alone():
    found = {str(path.relative_to(DASHBOARD)): html_in(path) for path in DASHBOARD.rglob("*.py")}
    assert {name: texts for name, texts in found.items() if texts} == {}


def test_the_wheel_has_every_template():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["dlrover_nb"]
    for path in TEMPLATES:
        name = str(path.relative_to(DASHBOARD.parent))
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name
