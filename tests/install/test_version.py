"""The release has one version, wherever it is named."""

import re
import tomllib
from pathlib import Path

import pytest

import dlrover_nb
from dlrover_nb.core.structs.job.kubernetes import DEFAULT_IMAGE

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = re.compile(r"dlrover-nb(?:-dashboard)?:(\d[\w.]*)")
NAMING_IMAGES = [
    "Dockerfile",
    "deploy/README.md",
    "deploy/base/defaults.yaml",
    "deploy/dashboard/server.yaml",
    "docs/how-to/kubernetes.md",
]


def test_the_package_and_the_changelog_name_it():
    assert dlrover_nb.__version__ == VERSION
    assert re.findall(r"^## (.+)$", (ROOT / "docs/changelog.md").read_text(), re.MULTILINE)[0] == VERSION


@pytest.mark.parametrize("name", NAMING_IMAGES)
def test_images_have_it(name):
    assert set(IMAGE.findall((ROOT / name).read_text())) == {VERSION}


def test_so_has_the_image_of_a_job_that_names_none():
    assert IMAGE.findall(DEFAULT_IMAGE) == [VERSION]
