"""constraints.txt holds one pin of each package for every supported Python, and nothing else."""

import importlib.metadata
import itertools
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIG["project"]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINS = [Requirement(line) for line in LINES]
OLDEST = "3.11.0"
PYTHONS = [OLDEST, "3.11.14", "3.12.0", "3.13.0", "3.14.0"]
CUDA = re.compile(r"nvidia|cuda|triton|cudnn")


def pins_for(python):
    """Return the version that each package is pinned to on a Python of this version."""
    environment = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    applying = [pin for pin in PINS if pin.marker is None or pin.marker.evaluate(environment)]
    pins = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in applying}
    assert len(pins) == len(applying), f"two pins of one package apply to Python {python}"
    return pins


def requested():
    extras = itertools.chain(*PROJECT["optional-dependencies"].values())
    found = [Requirement(text) for text in (*PROJECT["dependencies"], *extras)]
    return [each for each in found if each.name != PROJECT["name"]]


def test_each_line_pins_one_version_and_names_no_place():
    for line, pin in zip(LINES, PINS, strict=True):
        assert re.fullmatch(r"==[\w.+]+", str(pin.specifier)), line
        assert pin.url is None
        assert "/" not in line


def test_the_package_itself_pins_nothing():
    """A pin in a dependency or an extra would break the environment of whoever installs it beside something else."""
    assert not [str(each) for each in requested() if "==" in str(each.specifier)]


@pytest.mark.parametrize("python", PYTHONS)
def test_all_that_the_package_requests_is_pinned_within_its_bounds(python):
    pins = pins_for(python)
    for request in requested():
        assert request.specifier.contains(pins[canonicalize_name(request.name)]), request


def test_what_is_pinned_for_the_oldest_python_supports_it():
    """Known for the versions that are installed here, which are nearly all of them."""
    n_known = 0
    for name, version in pins_for(OLDEST).items():
        try:
            found = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if found["Version"].partition("+")[0] == version:
            n_known += 1
            assert SpecifierSet(found["Requires-Python"] or "").contains(OLDEST), f"{name} {version}"
    assert n_known > 100


def test_torch_is_pinned_in_one_version_without_cuda():
    [metadata] = CONFIG["tool"]["uv"]["dependency-metadata"]
    assert pins_for(OLDEST)["torch"] == metadata["version"]
    assert not [line for line in LINES if CUDA.search(line) and not line.startswith("nvidia-ml-py==")]


def test_the_classifiers_are_supported_pythons_from_the_oldest_on():
    versions = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert SpecifierSet(PROJECT["requires-python"]).contains(OLDEST)
    assert OLDEST.startswith(versions[0])
    assert all(SpecifierSet(PROJECT["requires-python"]).contains(version) for version in versions)
