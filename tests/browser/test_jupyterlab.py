"""The main job in a real JupyterLab: a real browser, a real kernel, a real Ray, real training."""

import re
import subprocess
import sys

import pytest
from support.browser.chromium import picture, unlocked, unnamed
from support.browser.lab_notebook import Live, Notebook
from support.waiting import LIMIT_S, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.ray,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
]

JOB = """%%dlrover submit quick-start
epochs: 200
plan:
  worker: {count: 1, cpu: 0.5, memory_mib: 1024}
  ps: {count: 1, cpu: 0.25, memory_mib: 512}
bounds: {max_workers: 3, max_ps: 2, worker_cpus: [0.5], ps_cpus: [0.25]}
mode: suggest"""
BUSY = """import pathlib, time
while not pathlib.Path("go on").exists():
    time.sleep(0.1)
'the busy cell is done'"""
CELLS = {
    "load": "%load_ext dlrover_nb",
    "connect": "%dlrover connect ray",
    "submit": JOB,
    "watch": "%dlrover watch quick-start",
    "busy": BUSY,
    "kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "load again": "%load_ext dlrover_nb",
    "connect again": "%dlrover connect ray",
    "attach": "%dlrover attach quick-start",
    "status": "%dlrover status quick-start",
    "plans": "%dlrover plans quick-start",
    "watch again": "%dlrover watch quick-start",
    "stop": '%dlrover stop quick-start --why "seen enough"',
}


@pytest.mark.release
@pytest.mark.more
def test_a_job_from_launch_over_accept_and_a_killed_kernel_to_a_saved_notebook(new_page, lab):
    notebook = Notebook(new_page(), lab, CELLS)
    live = launch_and_watch(notebook)
    accept_the_first_proposal(live)
    a_busy_cell_leaves_the_view_alive(notebook, live)
    overridden = override_a_proposal(live)
    before = trained(live), live.n_point()
    the_job_outlives_a_killed_kernel(notebook, before)
    content = stop_and_save(notebook)
    read_without_a_kernel(new_page(), notebook, content, overridden)


def launch_and_watch(notebook):
    notebook.run("load")
    notebook.run("connect")
    notebook.run("submit")
    notebook.run("watch")
    live = Live(notebook, "watch")
    live.output.wait_for(timeout=LIMIT_S * 1000)
    until(lambda: live.n_point() >= 3, "a curve")
    live.grows()
    assert live.output.locator("canvas:visible").count() >= 1
    picture(notebook.page, "job-running")
    return live


def accept_the_first_proposal(live):
    live.says("p1 (experiment) waits for your decision")
    live.accepts("p1").scroll_into_view_if_needed()
    picture(live.page, "front")
    unlocked(live.page)
    live.accepts("p1").click()
    assert re.search(r"applied (after a pause of|without a pause)", live.says("accepted p1; it is applied"))
    until(lambda: markers(live) == 2, what="the second plan's marker")
    picture(live.page, "after-accept")


def markers(live):
    return live.page.evaluate(
        """() => Math.max(...Bokeh.documents.flatMap(doc => [...doc._all_models.values()]
        .filter(m => m.type === 'ColumnDataSource' && m.data.align && m.data.dash && m.data.low).map(m => m.data.x.length)))"""
    )


def a_busy_cell_leaves_the_view_alive(notebook, live):
    notebook.start("busy")
    until(lambda: notebook.is_busy("busy"), what="the busy cell")
    live.grows()
    live.button("Numbers").click()
    live.output.get_by_text("Throughput over time").first.wait_for()
    assert notebook.is_busy("busy")
    live.button("Plans").click()
    notebook.file.with_name("go on").touch()


def override_a_proposal(live):
    """Set the sliders to a plan that nobody proposes, read what that would bring, ask for it, return what it overrode.

    What is measured decides which plan the second proposal is, and whether a third takes its place meanwhile.
    """
    until(
        lambda: re.search(r"\bp[2-9]\d* \(", live.said()),
        what=lambda: f"a proposal after p1 in {live.said()}",
    )
    live.button("Something else").click()
    now = re.search(r"plan (\d)w x 0.5 \+ (\d)p x 0.25", live.head())
    known = (tuple(map(int, now.groups())), (n_shown(live, "Workers"), n_shown(live, "PS")))
    n_worker, n_ps = next(plan for plan in ((3, 1), (2, 1), (1, 2)) if plan not in known)
    slide(live, "Workers", n_worker)
    slide(live, "PS", n_ps)
    words = f"{n_worker}w x 0.5 + {n_ps}p x 0.25"
    wanted = live.button(re.compile(rf"^Override p\d+ with {re.escape(words)}$"))
    until(lambda: wanted.count() and wanted.is_enabled(), what=lambda: f"{words} in {buttons(live)}")
    assert not unnamed(live.output.aria_snapshot())
    live.output.get_by_role("slider").first.scroll_into_view_if_needed()
    picture(live.page, "sliders")
    unlocked(live.page)
    overridden = re.search(r"p\d+", wanted.inner_text()).group()
    wanted.click()
    live.says(f"instead of {overridden}; it is applied")
    until(lambda: f"plan {words}" in live.head(), what="the plan of the override")
    return overridden


def buttons(live):
    return live.output.get_by_role("button").all_inner_texts()


def n_shown(live, name):
    """Return the number on a slider."""
    slider = live.output.get_by_role("slider", name=name, exact=True)
    return int(slider.get_attribute("aria-valuetext").split()[0])


def slide(live, name, value):
    """Move a slider from the keyboard until it says the value; while the page is late, a press does nothing."""
    slider = live.output.get_by_role("slider", name=name, exact=True)

    def is_there():
        before = n_shown(live, name)
        if before != value:
            slider.press("ArrowRight" if before < value else "ArrowLeft")
        return before == value

    until(is_there, what=lambda: f"{value} on slider {name}, now {n_shown(live, name)}")


def trained(live):
    """Return the percentage in the head line."""
    return float(re.search(r"([\d.]+) % trained", live.head()).group(1))


def the_job_outlives_a_killed_kernel(notebook, before):
    """Attach from a new kernel, which draws the curve from the job's start on."""
    done_before, n_point_before = before
    notebook.cell("kill").locator(".cm-content").click()
    notebook.page.keyboard.press("Control+Enter")
    notebook.page.get_by_role("dialog").get_by_role("button", name="OK").click(timeout=LIMIT_S * 1000)
    notebook.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(
        timeout=LIMIT_S * 1000
    )
    for name in ("load again", "connect again", "attach", "status", "plans"):
        notebook.run(name)
    head = notebook.shows("status", "training")
    assert float(re.search(r"([\d.]+) %: ", head).group(1)) > done_before
    notebook.run("watch again")
    live = Live(notebook, "watch again")
    live.output.wait_for(timeout=LIMIT_S * 1000)
    until(lambda: live.n_point() >= n_point_before, "the whole curve")
    picture(notebook.page, "attached")


def stop_and_save(notebook):
    notebook.run("stop")
    until(lambda: "stopped" in Live(notebook, "watch again").head(), what="the end in the view")
    kept = notebook.cell("watch again").locator(".dlrover-static")  # renewed a moment after what is live
    until(lambda: "stopped" in kept.text_content(), what="the end in the copy that is saved")
    return notebook.save()


def read_without_a_kernel(page, notebook, content, overridden):
    assert notebook.file.stat().st_size < 1_000_000
    outputs = [output for cell in content["cells"] for output in cell["outputs"]]
    assert not [
        o for o in outputs if "application/javascript" in o.get("data", {})
    ]  # 3 MB of no use any more
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "html", str(notebook.file),
         "--HTMLExporter.mathjax_url=", "--HTMLExporter.require_js_url="],
        check=True, capture_output=True, timeout=LIMIT_S,
    )  # fmt: skip
    page.goto(notebook.file.with_suffix(".html").as_uri())
    picture(page, "saved-without-kernel", full_page=True)
    last_view = page.locator(".dlrover-static").last
    for title in ("Throughput", "Memory per node", "Pareto front"):
        assert last_view.locator("svg").filter(has_text=title).first.is_visible()
    for words in ("stopped by", "samples/s", "accept p1", f"override {overridden}", "Predicted and measured"):
        assert words in last_view.inner_text()
