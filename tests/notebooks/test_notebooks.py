"""The notebooks, cell by cell: each in a kernel, a folder and a home of its own, and nothing is left of it."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import psutil
import pytest
import storing
import yaml
from kubernetes import client
from strictness import NUMBERS, differences
from support.cases import for_each
from support.kubernetes.kube import core_api, host_files
from support.waiting import LIMIT_S

from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.structs.job.kubernetes import STATE

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
HERE = Path(__file__).parent
STRICT = ("--nbval", f"--nbval-sanitize-with={HERE / 'sanitize.cfg'}")
STORE = "DLROVER_NB_STORE_NOTEBOOKS"  # set: the runs below store their outputs in the repository, and compare none
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
MOST_BYTES = 1_200_000  # of a notebook in the repository, with its pictures
STORED = {"text/plain", "text/html", "image/png"}
VARIES = "nbval-ignore-output"
REASONS = {
    VARIES: re.compile(r"^# Output varies: \w+ \w+.*\.$", re.MULTILINE),
    NUMBERS: re.compile(r"^# Numbers vary(?: by \d+ %)?: \w+ \w+.*\.$", re.MULTILINE),
}
MOST_IGNORED = 0.2  # of all cells


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="dl"))  # short: unix sockets live below it
    yield folder
    left = processes_below(folder)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)
    assert not left, [*left.values()]


@pytest.fixture
def run_cells(home, request):
    """Run a notebook in a folder of its own: with nbval against what is stored, or to store it."""

    def run(name, **variables):
        path = NOTEBOOKS / f"{name}.ipynb"
        if os.environ.get(STORE):
            storing.store(path, home, request.getfixturevalue("page"), places(home) | variables)
            return
        ran = validated(path, home, **variables)
        assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
        assert f"{len(code_cells(path))} passed" in ran.stdout

    return run


def places(home):
    """Return the variables that keep all that a notebook leaves below one folder."""
    folders = {f"XDG_{what.upper()}_HOME": str(home / what) for what in ("state", "data", "config")}
    return folders | {"IPYTHONDIR": str(home / "ipython")}


def validated(path, home, **variables):
    """Run nbval on a copy: a notebook writes beside itself, and our own pytest settings are not its."""
    shutil.copy(path, home)
    shutil.copy(HERE / "strictness.py", home / "conftest.py")
    (home / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *STRICT, f"--nbval-cell-timeout={storing.CELL_LIMIT_S:.0f}",
         "--nbval-current-env", path.name],
        cwd=home, env=os.environ | places(home) | variables, capture_output=True,
        text=True, timeout=storing.CELL_LIMIT_S + LIMIT_S / 2, check=False,
    )  # fmt: skip


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def processes_below(folder):
    """Return who was started with its state in this folder, and how."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_STATE_HOME", "").startswith(str(folder)):
                found[process] = process.cmdline()[:4]
        except psutil.Error:  # ended meanwhile, or another user's
            continue
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_as_it_ran_from_top_to_bottom_with_static_outputs(name):
    path = NOTEBOOKS / f"{name}.ipynb"
    assert path.stat().st_size <= MOST_BYTES
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [out for cell in cells for out in cell["outputs"]]
    assert {out["name"] for out in outputs if out["output_type"] == "stream"} <= {"stdout"}
    shown = [out["data"] for out in outputs if out["output_type"] != "stream"]
    assert set().union(*shown) <= STORED
    assert not any(tag in "".join(data.get("text/html", "")) for data in shown for tag in ("<svg", "<script"))
    assert any("image/png" in data for data in shown), "a chart that GitHub shows"


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_whose_output_is_not_compared_as_it_is_says_why_and_stores_one(name):
    for cell in code_cells(NOTEBOOKS / f"{name}.ipynb"):
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        assert len(tags) < 2
        assert set(tags) <= REASONS.keys(), "no cell is skipped, and none may fail"
        assert "NBVAL" not in source, "the tag, and a reason for people"
        assert tags == [tag for tag, reason in REASONS.items() if reason.search(source)], source
        assert cell["outputs"] or not tags, source


def test_few_cells_have_an_output_of_which_nothing_is_compared():
    cells = [cell for name in NAMES for cell in code_cells(NOTEBOOKS / f"{name}.ipynb")]
    ignored = [cell for cell in cells if VARIES in cell["metadata"].get("tags", [])]
    assert len(ignored) <= MOST_IGNORED * len(cells)


VIEW = """Job daily: training
===================
Try one worker more: 1.2 times as fast.

Plans, now
which  plan               USD/h,  samples/s
                        assumed
-----  ---------------  -------  ---------
now    1w x 1 + 1p x 1    0.038      1,234

Fit of 5 windows
----------------
error 2.5 %
"""


@for_each(
    ("old", "new", "is_same"),
    [
        ("1,234", "987.5", True),
        ("training", "succeeded", True),
        ("Try one worker more: 1.2 times as fast.", "Done in 3 s.", True),
        ("Fit of 5 windows", "Fit of 12 windows", True),
        ("\nnow ", "\nbest   1w x 1 + 1p x 1    0.038      1,234\nnow ", True),
        ("samples/s", "rows/s   ", False),
        ("Plans, now", "Plans     ", False),
        ("Job daily", "Job other", False),
        ("which  plan ", "plan   which", False),
        ("Fit of 5 windows\n----------------\n", "", False),
    ],
)
def test_an_outline_is_the_headings_and_tables_of_a_view_whatever_its_numbers(old, new, is_same):
    assert old in VIEW
    assert not differences([VIEW], [VIEW])
    assert (differences([VIEW], [VIEW.replace(old, new)]) == []) == is_same


@for_each(
    ("now", "most", "is_same"),
    [
        ("AUC 0.93 of 1,100 rows", None, True),
        ("AUC 0.93 of 1,100 rows", 0.1, True),
        ("AUC 0.93 of 1,400 rows", 0.1, False),
        ("loss 0.93 of 1,000 rows", None, False),
        ("AUC 0.93 of 1,000 rows, 3 lost", None, False),
    ],
)
def test_a_text_without_headings_is_its_words_and_its_numbers_up_to_a_share(now, most, is_same):
    assert (differences(["AUC 0.9 of 1,000 rows"], [now], most) == []) == is_same
    assert differences(["AUC 0.9"], []), "a text is missing"


@pytest.mark.more
def test_mistakes_in_magics_and_charts_without_a_picture_are_noticed_wherever_they_are(home, tmp_path):
    text = nbformat.v4.new_output("stream", name="stdout", text="1\n")
    chart = "from IPython.display import HTML\nHTML('<svg></svg>')"
    faulty = {
        "%load_ext dlrover_nb": None,
        "print(1)": text,
        "print(2)": text,
        "# Numbers vary: they are drawn.\nprint(2)": text,
        "# Numbers vary by 10 %: they are drawn.\nprint(3)": text,
        "%dlrover nosuch": None,
        chart: text,
    }
    cells = [
        nbformat.v4.new_code_cell(
            source, execution_count=i, outputs=[stored] if stored else [],
            metadata={"tags": [NUMBERS] if "vary" in source else [] if "print" in source else [VARIES]},
        )
        for i, (source, stored) in enumerate(faulty.items(), start=1)
    ]  # fmt: skip
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "faulty.ipynb")
    said = validated(tmp_path / "faulty.ipynb", home).stdout
    assert "4 failed, 3 passed" in said
    assert "expected 1 up to 10%, got 3" in said
    assert "Cell outputs differ" in said
    assert "UsageError: " in said
    assert "Cell draws a chart and stores no picture" in said


@pytest.mark.parametrize(
    "name",
    [
        "01_model_and_front",
        pytest.param("02_memory_and_oom", marks=pytest.mark.more),
        pytest.param("03_many_jobs", marks=pytest.mark.release),  # minutes of CPU time
    ],
)
def test_every_cell_of_a_simulated_notebook_runs(name, run_cells, home):
    run_cells(name)
    history = list(home.rglob("history.db"))
    assert not history, "nothing of a simulation enters the history"


@pytest.mark.more
def test_every_cell_of_the_policy_lab_runs_on_a_history_of_its_own(run_cells, home):
    run_cells("06_policy_lab")
    assert (home / "last-month.db").exists()
    assert not list(home.rglob("history.db")), "the history of the user is not touched"


@pytest.mark.more
@pytest.mark.ray
def test_every_cell_of_the_quick_start_runs_and_leaves_its_results(run_cells, home):
    run_cells("00_quickstart")
    text = (home / "elasticjob.yaml").read_text()
    *rest, document = yaml.safe_load_all(text)
    exported = read_export(text)
    assert check([*rest, document]) == ()
    assert [each["kind"] for each in rest][:2] == ["ConfigMap", "Secret"], "all that the job needs"
    assert exported.provenance.decision.why == "as advised"
    replicas = {role: spec["replicas"] for role, spec in document["spec"]["replicaSpecs"].items()}
    plan = exported.plan
    assert replicas == {"worker": plan.worker.count, "ps": plan.ps.count, "dlrover-master": 1}
    report = (home / "quick-start.html").read_text()
    assert "succeeded" in report
    assert "what does one more of each bring?" in report
    assert report.count("<svg") >= 4


@pytest.mark.release
@pytest.mark.ray
def test_every_cell_of_the_own_model_runs(run_cells):
    run_cells("04_own_model")


@pytest.mark.release
@pytest.mark.kube
@pytest.mark.pods
def test_every_cell_of_the_job_on_kubernetes_runs_and_leaves_nothing(nodes, namespace, run_cells, home):
    place = namespace(nodes)
    core = core_api(nodes)
    core.create_namespaced_config_map(place, defaults_of(home))
    run_cells("05_kubernetes", KUBECONFIG=str(kubeconfig_at(place, nodes, home)))
    batch = client.BatchV1Api(core.api_client)
    assert batch.list_namespaced_job(place).items == []
    ours = "dlrover-nb/job=on-kubernetes"
    assert core.list_namespaced_secret(place, label_selector=ours).items == []


def defaults_of(home):
    """Return what an administrator sets for a namespace: images, and a folder for the state of jobs."""
    state = home / "pods"
    state.mkdir()
    for folder in (home, state):
        folder.chmod(0o777)
    files = host_files()
    volumes = [*files["volumes"], {"mount": STATE, "host_path": str(state)}]
    text = yaml.safe_dump(files | {"volumes": volumes})
    return {"metadata": {"name": "dlrover-nb"}, "data": {"defaults.yaml": text}}


def kubeconfig_at(place, cluster, home):
    """Return a kubeconfig whose current namespace is this one."""
    told = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    told["contexts"][0]["context"]["namespace"] = place
    path = home / "kubeconfig"
    path.write_text(yaml.safe_dump(told))
    return path
