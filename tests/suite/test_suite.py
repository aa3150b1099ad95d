"""The suite itself: what is selected has a result, what is missing is told, what is flaky is named, and what is dear is known."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import crowd

from suite import costs
from suite.costs import Cost
from suite.parts import FIRST_TIER
from suite.passed import last_passes

SUITE = Path(__file__).parent
PLUGINS = ("missing", "costs", "parts", "progress", "reruns", "passed")
SETTINGS = "[pytest]\npythonpath = tests\ntestpaths = tests\nmarkers =\n" + "".join(
    f"  {name}\n" for name in ("more", "release", "release_variants", "pods", "browser", "ray", "kube")
)
WORKERS = ("-n", "2", "--dist", "loadgroup")


@pytest.fixture
def folder(tmp_path):
    """Make a small suite with the plugins of this one."""
    own = tmp_path / "tests" / "suite"
    own.mkdir(parents=True)
    for name in ("__init__", *PLUGINS):
        shutil.copy(SUITE / f"{name}.py", own)
    names = [f"suite.{name}" for name in PLUGINS]
    (tmp_path / "tests" / "conftest.py").write_text(f"pytest_plugins = {names}\n")
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    return tmp_path


def run(folder, *arguments, text, **variables):
    """Write the only test file of a suite and run it; return its exit code and its lines."""
    (folder / "tests" / "test_it.py").write_text(text)
    return again(folder, *arguments, **variables)


def again(folder, *arguments, **variables):
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTEST", "DLROVER_NB_REQUIRE"))
    }
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a second each
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=env | variables, capture_output=True, text=True, check=False
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


TIERS = """
import pytest
def test_cheap(): pass
@pytest.mark.more
def test_dear(): pass
@pytest.mark.release
def test_very_dear(): pass
@pytest.mark.release_variants("2")
@pytest.mark.parametrize("n", [1, 2])
def test_of_variants(n): pass
"""


@pytest.mark.more
def test_each_tier_is_what_its_marks_say_and_the_same_each_time(folder):
    for selection, count in ((FIRST_TIER, 2), ("more", 1), ("release", 2), ("", 5)):
        code, lines = run(folder, "-m", selection, *WORKERS, text=TIERS)
        assert code == 0
        assert f"{count} passed" in lines[-1]


def test_a_file_of_a_later_tier_is_not_even_imported_by_the_first(folder):
    text = "import pytest\npytestmark = [pytest.mark.more]\nraise RuntimeError('imported')\n"
    (folder / "tests" / "test_later.py").write_text(text)
    assert run(folder, "-m", FIRST_TIER, text=TIERS)[0] == 0
    assert again(folder, "-m", "more")[0] != 0


MISSING = """
from suite.missing import missing, shared
def test_cluster(): missing("kube")
def test_nodes(): missing("pods")
def test_data(): shared("data", "of", "nobody")
def test_plain(): pass
"""


@pytest.mark.more
def test_what_is_missing_is_skipped_and_one_table_says_what_would_run_it(folder):
    code, lines = run(folder, *WORKERS, text=MISSING)
    assert code == 0
    assert any("1  needs kube: make kube" in line for line in lines)
    assert any("1  needs shared: data/of/nobody" in line for line in lines)
    assert "1 passed, 3 skipped" in lines[-1]


@pytest.mark.more
def test_what_is_required_fails_where_it_is_missing_and_a_cluster_means_its_nodes(folder):
    code, lines = run(folder, *WORKERS, text=MISSING, DLROVER_NB_REQUIRE="kube, chromium")
    assert code == 1
    assert "2 failed, 1 passed, 1 skipped" in lines[-1]


def test_a_required_tool_that_does_not_exist_is_refused(folder):
    code, lines = run(folder, text=TIERS, DLROVER_NB_REQUIRE="kubernetes")
    assert code not in (0, 1)
    assert any("REQUIRE takes axe, chromium" in line and "kubernetes" in line for line in lines)


ONCE = """
import subprocess, sys
from pathlib import Path
def test_real():
    subprocess.run([sys.executable, "-c", ""])
    once = Path("once")
    first = not once.exists()
    once.touch()
    assert not first
def test_that_passes(): pass
"""


@pytest.mark.more
@pytest.mark.parametrize(
    "options", [(), WORKERS, (*WORKERS, "-p", "syrupy")], ids=["one process", "workers", "with snapshots"]
)
def test_a_real_test_that_fails_once_passes_alone_and_is_named_with_both_logs(folder, options):
    code, lines = run(folder, "--run-failures-alone", *options, text=ONCE)
    assert code == 0
    assert "1 passed, 1 flaky" in lines[-1]
    assert any("failed, and passed alone" in line for line in lines)
    first, second = sorted((folder / "build" / "flaky").iterdir())
    assert "assert not first" in first.read_text()
    assert "1 passed" in second.read_text()


def test_without_the_option_a_real_test_fails_at_once(folder):
    code, lines = run(folder, text=ONCE)
    assert code == 1
    assert "1 failed, 1 passed" in lines[-1]


@pytest.mark.more
@pytest.mark.parametrize(
    ("old", "new"), [('    subprocess.run([sys.executable, "-c", ""])\n', ""), ("test_real", "test_ledger")],
    ids=["a pure test", "a test of the ledger"],
)  # fmt: skip
def test_what_must_not_be_noise_is_never_run_again(folder, old, new):
    code, lines = run(folder, "--run-failures-alone", *WORKERS, text=ONCE.replace(old, new))
    assert code == 1
    assert "1 failed, 1 passed" in lines[-1]


LEFT = """
import pytest
from pathlib import Path
class Connection:
    def __del__(self):
        if not Path("once").exists():
            Path("once").touch()
            raise ValueError("left open")
@pytest.mark.filterwarnings("error")
def test_pure(): Connection()
"""


@pytest.mark.more
def test_a_failure_in_a_finalizer_is_run_again(folder):
    code, lines = run(folder, "--run-failures-alone", *WORKERS, text=LEFT)
    assert code == 0
    assert "1 flaky" in lines[-1]


@pytest.mark.more
def test_a_test_that_fails_alone_too_fails_the_run(folder):
    text = ONCE.replace("once.touch()", "pass")
    code, lines = run(folder, "--run-failures-alone", *WORKERS, text=text)
    assert code == 1
    assert "1 failed, 1 passed" in lines[-1]


def test_a_run_that_left_something_out_is_no_success(folder):
    text = "import os\ndef test_a(): pass\ndef test_b(): pass\n"
    plugin = "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item):\n    return 'test_b' in item.name or None\n"
    (folder / "tests" / "leaves_out.py").write_text(plugin)
    code, lines = run(folder, "-p", "leaves_out", *WORKERS, text=text, PYTHONPATH=str(folder / "tests"))
    assert code == 1
    assert any("1 selected tests have no result" in line for line in lines)


@pytest.mark.more
def test_a_worker_process_that_dies_fails_the_run_and_the_others_go_on(folder):
    text = "import os\ndef test_a(): pass\ndef test_b(): os._exit(3)\n"
    code, lines = run(folder, *WORKERS, text=text)
    assert code == 1
    assert "1 failed, 1 passed" in lines[-1]


@pytest.mark.more
def test_a_run_that_is_resumed_leaves_out_what_passed_at_the_same_state(folder):
    text = "from pathlib import Path\ndef test_a(): pass\ndef test_b(): assert Path('there').exists()\n"
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / ".git" / "info" / "exclude").write_text("build\nthere\n__pycache__\n")
    assert run(folder, "--note-passes", *WORKERS, text=text)[0] == 1
    assert set(last_passes(folder / "build" / "passed.tsv")) == {"tests/test_it.py::test_a"}
    (folder / "there").touch()
    code, lines = again(folder, "--note-passes", "--resume", *WORKERS)
    assert code == 0
    assert "1 passed" in lines[-1]
    code, lines = run(folder, "--resume", *WORKERS, text=f"{text}\n# changed")
    assert "2 passed" in lines[-1]


@pytest.mark.more
def test_costs_are_measured_and_shared_by_the_variants_of_a_test(folder):
    text = "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_busy(n): sum(range(3_000_000))\ndef test_idle(): pass\n"
    journal = folder / "costs.jsonl"
    for workers in ((), WORKERS):
        assert run(folder, f"--record-costs={journal}", *workers, text=text)[0] == 0
    functions = costs.measured(journal)
    busy, idle = functions["tests/test_it.py::test_busy"], functions["tests/test_it.py::test_idle"]
    assert busy.cpu_s > idle.cpu_s >= 0.0  # a short test may fall between two looks of the kernel
    assert busy.wall_s > 0
    table = costs.rows({"tests/a.py::test_x": Cost(1.0, 3.0), "tests/a.py::test_y": Cost(0.1, 0.2)})
    assert table == {"tests/a.py": Cost(0.1, 0.2), "tests/a.py::test_x": Cost(1.0, 3.0)}
    path = folder / "costs.tsv"
    costs.write(table, path)
    assert costs.read(path) == table
    tests = ["tests/a.py::test_x[1]", "tests/a.py::test_x[2]@ray", "tests/a.py::test_y", "tests/a.py::test_z"]
    assert costs.spread(tests, table) == dict(zip(tests, (1.5, 1.5, 0.1, 0.1), strict=True))


def test_a_wait_is_as_much_longer_as_more_processes_want_the_cores():
    assert crowd(0.1, 1, 2) == 1.0
    assert crowd(4.0, 3, 2) == 3.5
