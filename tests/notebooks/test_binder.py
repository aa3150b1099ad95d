"""Binder installs what the notebooks import; there is no network here to try it, so that its rules are read."""

import ast
import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = (ROOT / "binder" / "requirements.txt").read_text().splitlines()


def names(requirements):
    return {re.match(r"[\w-]+", line)[0].lower() for line in requirements}


def installed_by(extra):
    """Return the distributions that an extra of ours brings by name, and those of extras that it names."""
    found = set()
    for line in PROJECT["optional-dependencies"][extra]:
        inner = re.match(rf"{PROJECT['name']}\[(.*)\]", line)
        found |= set().union(*map(installed_by, inner[1].split(","))) if inner else names([line])
    return found


def imported(path):
    """Return the packages that a notebook's cells import."""
    found = set()
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            for node in ast.walk(ast.parse(TransformerManager().transform_cell("".join(cell["source"])))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add(node.module.split(".")[0])
    return found


def editable():
    """Return the path and extras of our own package among the requirements."""
    [line] = [line for line in LINES if line.startswith("-e ")]
    path, extras = re.fullmatch(r"-e ([^\[]+)\[([\w,]+)\]", line).groups()
    return path, extras.split(",")


def test_binder_installs_this_package_from_where_pip_runs():
    """Binder runs pip in the repository's root, and pip takes `-e` from there, but `-c` from beside the file."""
    path, _ = editable()
    assert (ROOT / path).resolve() == ROOT
    constraints = [line.split()[1] for line in LINES if line.startswith("-c ")]
    assert [(ROOT / "binder" / name).resolve() for name in constraints] == [ROOT / "constraints.txt"]


@pytest.mark.more
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_what_a_notebook_imports_is_installed(path):
    _, extras = editable()
    ours = {PROJECT["name"], *names(PROJECT["dependencies"])}.union(*map(installed_by, extras))
    whose = importlib.metadata.packages_distributions()
    for package in imported(path) - set(sys.stdlib_module_names):
        assert {name.lower() for name in whose[package]} & ours, f"{package} is not among the requirements"


def test_binder_has_the_python_that_the_package_asks_for():
    version = (ROOT / "binder" / "runtime.txt").read_text().strip().removeprefix("python-")
    assert f">={version}" == PROJECT["requires-python"]


def test_constraints_pin_what_is_asked_for_with_them():
    pinned = names(line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    asked = {line for line in LINES if line and not line.startswith("-")}
    assert names(asked) <= pinned | names(PROJECT["optional-dependencies"]["torch"])
