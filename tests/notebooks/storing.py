"""Outputs of a notebook as the repository stores them: text, tables, and a picture of every chart.

A chart is SVG within HTML, which GitHub does not show: it removes inline SVG, styles and scripts. So an output with
a chart is stored as a PNG beside its text, drawn by the Chromium of the browser tests. Live views, scripts and
emptied lines of a wait are dropped: a saved notebook needs none of them.
"""

from __future__ import annotations

import io
import os
import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbclient import NotebookClient
from PIL import Image
from support.waiting import LIMIT_S

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from playwright.sync_api import Page

CHART = "<svg"
AS_HOME, AS_USER = "/home/ada", "ada"  # in place of the folder and the user of the run
# What pods of the test cluster mount is told by an export: in place of this checkout and its Python.
ELSEWHERE = (
    (str(Path(__file__).parents[2]), f"{AS_HOME}/dlrover-nb"),
    (sys.prefix, "/opt/venv"),
    (sys.base_prefix, "/opt/python"),
)
CELL_LIMIT_S = 3 * LIMIT_S  # fifty simulated jobs take minutes beside other tests
WIDTH_PX = 960
N_COLOR = 64  # of a picture: charts are flat, and a palette makes them a third of the size
DROPPED = ("<script", "_Layout(")  # Panel's layout, live and in words


def store(path: Path, home: Path, page: Page, env: dict[str, str]) -> None:
    """Run a notebook in a folder of its own, and write it back with its outputs."""
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(
        book, timeout=round(CELL_LIMIT_S), kernel_name="python3", resources={"metadata": {"path": str(home)}}
    )
    client.execute(env=os.environ | env | {"LOGNAME": AS_USER})
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.metadata.pop("execution", None)  # the times at which it ran
            cell.outputs = [kept for output in cell.outputs if (kept := _kept(output, str(home), page))]
    nbformat.write(book, path)


def _kept(output: NotebookNode, home: str, page: Page) -> NotebookNode | None:
    """Return an output as it is stored; None for one that is not."""
    if output.output_type == "stream":
        output.text = _moved(output.text, home)
        return output
    data = {mime: _moved(text, home) for mime, text in output.data.items() if mime.startswith("text/")}
    if not any(data.values()) or any(sign in text for sign in DROPPED for text in data.values()):
        return None
    if CHART in data.get("text/html", ""):
        data["image/png"] = b64encode(picture(page, data.pop("text/html"))).decode()
    output.data = nbformat.from_dict(data)
    return output


def _moved(text: str, home: str) -> str:
    """Return a text in which the folders of this machine are those of a reader."""
    for here, there in ((home, AS_HOME), *ELSEWHERE):
        text = text.replace(here, there)
    return text


def picture(page: Page, html: str) -> bytes:
    """Return HTML as a PNG in few colors, in the light theme."""
    page.set_viewport_size({"width": WIDTH_PX, "height": 400})
    page.set_content(f'<body style="margin:0;padding:8px;background:white">{html}</body>')
    png = io.BytesIO()
    Image.open(io.BytesIO(page.screenshot(full_page=True))).quantize(N_COLOR).save(png, "png", optimize=True)
    return png.getvalue()
