"""From the start of JupyterLab to the first moving plot, as ``make lab`` does it, in a real browser.

`notebook.py` runs it. The cells are the quick start's own, up to the live view; the notebook's other cells
are left out, so that each is on the page. Each stage ends when a person would see it: the server answers, the
notebook's kernel is idle, Ray is connected, the job is submitted, the throughput chart has two points of
which one is above zero, the first proposal has its button. JupyterLab, its kernel and Ray get folders of
their own, as at a first start.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import nbformat
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUICK_START = Path(__file__).parents[1] / "notebooks" / "00_quickstart.ipynb"
LIMIT_S = 300.0
POLL_S = 0.1
KEY_S = 3.0  # a key that shows nothing by then was lost
FIRST_KEY_S = 0.5  # of the first cell, which may run twice: while the kernel connects, keys are lost most
# What JupyterLab asks now and then, by a race of its own, and how a person answers.
QUESTIONS = {"Select Kernel": "Select", "File Changed": "Overwrite"}
# Words of the code cells, one each.
STAGES = {"load": "%load_ext", "connect": "connect", "submit": "submit", "watch": "--live"}
# The announcements fetch from the web and cover the page.
QUIET = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
ACCEPT = re.compile(r"^(Do|Try) it \(p1\)$")
IS_MOVING = """() => (window.Bokeh?.documents ?? []).flatMap(doc => [...doc._all_models.values()])
  .filter(m => m.type === 'ColumnDataSource' && m.data.measured)
  .some(m => m.data.measured.length > 1 && m.data.measured.some(rate => rate > 0))"""


def to_first_plot(browser: Any, folder: Path) -> dict[str, float]:
    """Return the seconds from the start to the end of each stage, and to the moving plot."""
    home = folder / "lab"
    environment = _environment(home)
    _write_cells(home / "work" / "quick-start.ipynb")
    began_s = time.monotonic()
    ends: dict[str, float] = {}

    def note(stage: str) -> None:
        ends[f"lab_{stage}_s"] = round(time.monotonic() - began_s, 1)

    with _lab(home, environment) as address, closing(browser.new_page()) as page:
        note("server")
        page.set_viewport_size({"width": 1400, "height": 1600})
        page.goto(address)
        _until(lambda: _is_idle(page), "an idle kernel")
        note("page")
        _run(page, 0)
        for number, stage in enumerate([*STAGES][1:], start=1):
            _run(page, number)
            _until(lambda n=number: _has_run(page, n), f"the cell with {stage}")
            note(stage)
        _until(lambda: page.evaluate(IS_MOVING), "a moving plot")
        note("to_plot")
        accept = page.get_by_role("button", name=ACCEPT).first
        _until(accept.is_visible, "the sentence of a proposal")
        note("to_proposal")
    return ends


def _write_cells(path: Path) -> None:
    """Write the quick start's cells up to the live view, without the text between them."""
    notebook = nbformat.read(QUICK_START, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"][: len(STAGES)]
    assert all(word in cell.source for word, cell in zip(STAGES.values(), code, strict=True)), (
        "the quick start has changed"
    )
    notebook.cells = code
    nbformat.write(notebook, path)


def _environment(home: Path) -> dict[str, str]:
    settings = home / "config" / "labconfig" / "page_config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(QUIET))
    (home / "work").mkdir()
    jupyter = {f"JUPYTER_{what.upper()}_DIR": str(home / what) for what in ("config", "data", "runtime")}
    folders = {f"XDG_{what.upper()}_HOME": str(home / what) for what in ("config", "data", "state")}
    return os.environ | jupyter | folders | {"HOME": str(home), "IPYTHONDIR": str(home / "ipython")}


@contextmanager
def _lab(home: Path, environment: dict[str, str]) -> Iterator[str]:
    """Start JupyterLab, yield the notebook's address, and end all that was started from it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, token = f"http://127.0.0.1:{port}/", secrets.token_hex(16)
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
    ]
    options = [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home / 'work'}"]
    with (home / "lab.log").open("wb") as log:
        server = psutil.Popen(
            [*command, *options], env=environment, cwd=home / "work", stdout=log, stderr=log
        )
    try:
        _until(lambda: _answers(f"{address}api?token={token}"), "JupyterLab")
        yield f"{address}lab/tree/quick-start.ipynb?token={token}"
    finally:
        _end(server, environment)
        shutil.rmtree(home, ignore_errors=True)


def _end(server: psutil.Popen, environment: dict[str, str]) -> None:
    family = [*server.children(), server]
    for process in family:
        process.terminate()
    for process in psutil.wait_procs(family, timeout=10)[1]:
        process.kill()
    shutdown = [sys.executable, "-m", "dlrover_nb.cli", "shutdown", "--force"]
    subprocess.run(shutdown, env=environment, check=False, capture_output=True, timeout=LIMIT_S)


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _run(page: Any, number: int) -> None:
    """Press until the cell runs: JupyterLab loses a key at times while the kernel connects."""

    def has_begun() -> bool:
        return bool(_prompt(page, number).strip("[]: "))

    def pressed() -> bool:
        _answer_questions(page)
        page.locator(".jp-CodeCell").nth(number).locator(".cm-content").click()
        page.keyboard.press("Control+Enter")
        end_s = time.monotonic() + (KEY_S if number else FIRST_KEY_S)
        while not has_begun() and time.monotonic() < end_s:
            time.sleep(POLL_S)
        return has_begun()

    _until(pressed, f"the start of cell {number}")


def _answer_questions(page: Any) -> None:
    for question, answer in QUESTIONS.items():
        if page.locator(".jp-Dialog").filter(has_text=question).count():
            page.locator(".jp-Dialog button").get_by_text(answer, exact=True).first.click()


def _prompt(page: Any, number: int) -> str:
    return str(page.locator(".jp-CodeCell").nth(number).locator(".jp-InputPrompt").inner_text())


def _has_run(page: Any, number: int) -> bool:
    return any(character.isdigit() for character in _prompt(page, number))


def _is_idle(page: Any) -> bool:
    return bool(page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").count())


def _until(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end_s:
            raise SystemExit(f"{what} did not come about within {LIMIT_S:g} s")
        time.sleep(POLL_S)
