"""The search of the built documentation: everyday words bring the page of a task among the first three hits."""

import functools
import http.server
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.waiting import until

pytestmark = [
    pytest.mark.release,
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
]

ROOT = Path(__file__).parents[2]
EVERYDAY = "how-to/everyday.html"
TASKS = {
    "resume": f"{EVERYDAY}#resume-a-job",
    "resume a job": f"{EVERYDAY}#resume-a-job",
    "restart after reboot": f"{EVERYDAY}#resume-a-job",
    "continue after crash": EVERYDAY,
    "cost limit": f"{EVERYDAY}#limit-the-cost",
    "limit cost": f"{EVERYDAY}#limit-the-cost",
    "spend": "how-to/job-file.html#limit-what-a-job-may-spend",
    "budget": "how-to/job-file.html#limit-what-a-job-may-spend",
    "s3": f"{EVERYDAY}#s3-and-other-object-stores",
    "object store": f"{EVERYDAY}#s3-and-other-object-stores",
    "s3 bucket": f"{EVERYDAY}#s3-and-other-object-stores",
    "why was this proposed": "explanation/why-this-plan.html",
    "why this plan": "explanation/why-this-plan.html",
    "papermill": f"{EVERYDAY}#run-a-notebook-without-a-person-papermill",
    "run notebook in a pipeline": EVERYDAY,
    "VS Code": f"{EVERYDAY}#vs-code",
    "vscode": f"{EVERYDAY}#vs-code",
    "colab": f"{EVERYDAY}#vs-code",
    "JupyterHub": f"{EVERYDAY}#jupyterhub-and-other-proxies",
    "jupyterhub prefix": f"{EVERYDAY}#jupyterhub-and-other-proxies",
    "behind a proxy": f"{EVERYDAY}#jupyterhub-and-other-proxies",
    "agent": f"{EVERYDAY}#let-an-agent-propose-mcp-jupyter-ai",
    "MCP": f"{EVERYDAY}#let-an-agent-propose-mcp-jupyter-ai",
    "jupyter ai": f"{EVERYDAY}#let-an-agent-propose-mcp-jupyter-ai",
}
NO_WORD = "qqzzxx"
HITS = """() => {
  const hits = []
  const visit = element => {
    if (element.tagName === 'A' && element.getRootNode() !== document) hits.push(element.href)
    for (const child of [...(element.shadowRoot?.children ?? []), ...element.children]) visit(child)
  }
  visit(document.body)
  return hits
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the documentation apart from the one that a developer may look at, and serve it; give the address."""
    if find_spec("zensical") is None:
        pytest.skip("zensical builds the site; it is in the extra docs")
    folder = tmp_path_factory.mktemp("site")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    config = config.replace("docs_dir: build/docs", "docs_dir: docs").replace("build/site", "site")
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    for words in (
        (str(ROOT / "tools/docs_reference.py"), str(folder / "docs")),
        ("-m", "zensical", "build", "--config-file", str(folder / "mkdocs.yml")),
    ):
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True, timeout=600)
    handler = functools.partial(_Quiet, directory=str(folder / "site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_args):
        """Write nothing."""


def test_everyday_words_bring_the_page_of_a_task_among_the_first_three(site, page):
    page.goto(f"{site}index.html")
    page.get_by_role("button", name="Search").first.click()
    missed = []
    for words, wanted in TASKS.items():
        searched(page, NO_WORD)
        until(lambda: not page.evaluate(HITS), what="no hits")  # so that those of the last words are gone
        searched(page, words)
        hits = until(functools.partial(settled, page), what=f"hits for {words!r}")
        first = [hit.removeprefix(site) for hit in hits[:3]]
        if wanted not in first:
            missed.append(f"{words!r}: {first}")
    assert not missed, "\n".join(missed)


def searched(page, words):
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type(words)


def settled(page):
    """Return the hits once two looks in a row see the same: the search answers from a thread of its own."""
    hits = page.evaluate(HITS)
    page.wait_for_timeout(200)
    return hits if hits == page.evaluate(HITS) else []
