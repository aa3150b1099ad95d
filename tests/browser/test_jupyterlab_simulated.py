"""What a person does to JupyterLab while a (simulated) job runs: interrupts, reloads, uses no widgets at all."""

import subprocess
import sys

import pytest
from support.browser.chromium import picture, unlocked, unnamed
from support.browser.lab_notebook import Live, Notebook, write_notebook
from support.waiting import LIMIT_S, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
    pytest.mark.more,
]

CELLS = {
    "load": "%load_ext dlrover_nb",
    "connect": "%dlrover connect sim --machines 4 --speed 60",
    "submit": """%%dlrover submit ads
epochs: 100000
plan:
  worker: {count: 2, cpu: 1, memory_mib: 2048}
  ps: {count: 1, cpu: 1, memory_mib: 2048}
bounds: {max_workers: 4}""",
    "watch": "%dlrover watch ads",
    "wait": "%dlrover wait ads",
    "status": "%dlrover status ads",
}


def begin(page, lab):
    notebook = Notebook(page, lab, CELLS)
    for name in ("load", "connect", "submit", "watch"):
        notebook.run(name)
    live = Live(notebook, "watch")
    live.output.wait_for(timeout=LIMIT_S * 1000)
    live.grows()
    return notebook, live


@pytest.mark.release
def test_an_interrupted_wait_and_a_reloaded_page_leave_job_and_kernel_alone(page, lab):
    notebook, live = begin(page, lab)
    assert not unnamed(live.output.aria_snapshot())

    live.says("p1 (")
    live.button("Something else").click()
    live.output.get_by_role("slider", name="Workers").press("ArrowRight")
    unlocked(page)
    live.accepts("p1").click()
    live.says("accepted p1; it is applied")

    notebook.start("wait")
    assert notebook.is_busy("wait")
    live.grows()
    notebook.interrupt("wait")
    notebook.shows("wait", "job ads goes on; `%dlrover end ads --now` stops it")
    said = notebook.cell("wait").locator(".jp-OutputArea").inner_text()
    assert "Traceback" not in said
    assert "Error" not in said
    live.grows()

    notebook.save()
    notebook.reload()
    kept = notebook.cell("watch").locator(".dlrover-static")
    kept.locator("svg").first.wait_for()
    picture(page, "reloaded")
    assert "training" in kept.inner_text()
    notebook.run("watch")
    live.output.wait_for(timeout=LIMIT_S * 1000)
    live.grows()
    notebook.run("status")
    notebook.shows("status", "ads (simulated): training")


@pytest.mark.release
def test_a_front_end_without_widgets_shows_every_plot(page, lab):
    """nbconvert runs the cells and has no comms at all."""
    file = lab.root / "plain.ipynb"
    settle = (
        "import time\njob = %dlrover attach ads\nwhile not job.snapshot().samples_per_s:\n    time.sleep(0.1)\n"
        "time.sleep(3)  # for a curve of more than a point"
    )
    write_notebook(file, [*[CELLS[name] for name in ("load", "connect", "submit")], settle, CELLS["watch"]])
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--execute", "--to", "html", str(file),
         "--HTMLExporter.mathjax_url=", "--HTMLExporter.require_js_url="],
        check=True, capture_output=True, timeout=LIMIT_S, env=lab.environment,
    )  # fmt: skip
    page.goto(file.with_suffix(".html").as_uri())
    picture(page, "without-widgets", full_page=True)
    kept = page.locator(".dlrover-static")
    for title in ("Throughput", "Memory per node"):
        assert kept.locator("svg").filter(has_text=title).first.is_visible()
    assert "ads (simulated)" in kept.inner_text()
    assert not page.locator(".dlrover-live-on").count()


def test_sliders_weigh_a_plan_and_set_it_while_a_cell_is_busy(page, lab):
    notebook, live = begin(page, lab)
    notebook.start("wait")
    assert notebook.is_busy("wait")
    live.button("Something else").click()
    workers = live.output.get_by_role("slider", name="Workers", exact=True)
    workers.focus()
    page.keyboard.press("Home")  # fewer than now, which no proposal for speed is
    send = live.button("with 1w x").or_(live.button("to 1w x"))
    send.wait_for()
    until(send.is_enabled, what="what the plan of the sliders would bring")
    picture(page, "sliders-busy")
    unlocked(page)
    send.click()
    until(lambda: "plan 1w x" in live.head(), what="the plan of the sliders")
    assert notebook.is_busy("wait")
