"""The release, as a stranger gets it: sdist and wheel, installed apart from this checkout, up to a first plan."""

import json
import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest
from support.waiting import LIMIT_S

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[2]
JOB = (
    "submit",
    "first",
    "--epochs",
    "200",
    "--workers",
    "1",
    "--worker-cpu",
    "0.5",
    "--ps",
    "1",
    "--ps-cpu",
    "0.25",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Make the release of a copy of what git knows."""
    source = tmp_path_factory.mktemp("release") / "source"
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    done = subprocess.run(
        ["make", "release", f"VENV={ROOT / '.venv'}"], cwd=source, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("PASSED") == 2  # of `twine check`
    [wheel] = (source / "dist").glob("*.whl")
    return wheel


def test_its_page_leads_to_the_repository_from_anywhere(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        page = archive.read(name).decode()
    assert "](docs/" not in page
    assert page.count("/blob/main/docs/") > 10
    assert {line.split(",")[0] for line in page.splitlines() if line.startswith("Project-URL")} == {
        f"Project-URL: {each}" for each in ("Source", "Documentation", "Changelog", "Issues")
    }


@pytest.mark.timeout(1200)
def test_it_comes_to_a_first_plan_in_an_empty_home(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, f"{wheel}[torch]"], check=True, cwd=tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "DLROVER_NB_ADDRESS": "local"}

    def run(*words):
        command = [tmp_path / "venv/bin/dlrover-nb", *words]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(*JOB)
    try:
        run("show", "first", "--wait", "--for", "proposal", "--timeout", str(int(LIMIT_S)))
        plans = json.loads(run("plan", "first", "--json"))
    finally:
        run("end", "first", "--delete", "--force")
    assert plans["open_proposal"] == "p1"
