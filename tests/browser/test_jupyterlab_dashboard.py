"""The dashboard from JupyterLab: its tile in the launcher, and the verb that starts it beside a kernel."""

import re

import pytest
from support.browser.chromium import outside
from support.browser.lab_notebook import Notebook
from support.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
    pytest.mark.release,
]


def servers(lab):
    """Return the processes of a dashboard that this JupyterLab, or a kernel of it, has started."""
    return lab.family("serve")


def test_the_tile_opens_the_dashboard_below_jupyterlabs_own_address(new_page, lab):
    page = new_page()
    page.goto(f"{lab.address}lab?token={lab.token}")
    page.get_by_title(re.compile("dlrover-nb dashboard")).first.click()
    frame = page.frame_locator("iframe").first
    frame.get_by_role("heading", name="Jobs", level=1).wait_for()
    frame.get_by_role("link", name="History").click()
    frame.get_by_role("heading", name="History", level=1).wait_for()
    assert any(f"{lab.address}dlrover/history" in each.url for each in page.frames)
    (server,) = servers(lab)
    assert not server.net_connections(kind="inet"), "only this user's socket leads to it"
    refused = new_page()
    told = refused.goto(f"{lab.address}dlrover/jobs")
    assert "token" in refused.content() or told.status == 403, "JupyterLab's sign-in stands before it"


def test_the_verb_starts_it_at_a_job_and_it_ends_with_the_kernel(new_page, lab):
    cells = {
        "connect": "%load_ext dlrover_nb\n%dlrover connect local --cpus 2",
        "submit": "job = %dlrover submit quick-start --mode manual --epochs 1000",
        "serve": "%dlrover serve quick-start",
        "stop": "%dlrover stop quick-start",
    }
    notebook = Notebook(new_page(), lab, cells)
    for name in ("connect", "submit", "serve"):
        notebook.run(name)
    link = notebook.page.locator("a[href^='http://127.0.0.1:'][href*='/enter?ticket=']")
    link.wait_for()
    page = new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(link.get_attribute("href"))
    page.get_by_role("heading", name=re.compile("quick-start")).first.wait_for()
    assert page.url.endswith("/job?name=quick-start"), "no proof is left in the address"
    page.frame_locator("#live").get_by_role("button", name="Numbers").wait_for()
    assert not outside(asked)
    notebook.run("stop")
    (server,) = servers(lab)
    kernel = server.parent()
    kernel.kill()  # as the system does that runs out of memory
    until(lambda: not server.is_running(), what="the end of the dashboard")
