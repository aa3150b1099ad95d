"""A notebook in JupyterLab as a person uses it, and the live view in it."""

import contextlib
import json
import re

import nbformat
from playwright.sync_api import TimeoutError  # noqa: A004 - playwright's name

from support.waiting import LIMIT_S, until

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
N_POINT = """() => Math.max(0, ...(window.Bokeh?.documents ?? []).flatMap(doc => [...doc._all_models.values()]
  .filter(m => m.type === 'ColumnDataSource' && m.data.measured)
  .map(m => m.data.measured.length)))"""

QUESTIONS = {  # that JupyterLab asks now and then, by a race of its own, and how a person answers
    "File Changed": "Overwrite",  # it takes a late save of its own for another's
    "Select Kernel": "Select",  # it runs a cell before it knows the kernel that it has just started
}


def write_notebook(path, sources):
    """Write a notebook of these cells."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL}), path)


class Notebook:
    """A notebook in the browser, its cells by name."""

    def __init__(self, page, lab, cells):
        self.page, self.lab, self.file, self.names = page, lab, lab.root / "job.ipynb", [*cells]
        write_notebook(self.file, cells.values())
        page.goto(f"{lab.address}lab/tree/job.ipynb?token={lab.token}")
        self.wait_for_kernel()
        until(self._is_awake, "the kernel's first answer")

    def wait_for_kernel(self):
        self.page.locator(".jp-CodeCell").first.wait_for(timeout=LIMIT_S * 1000)
        until(self.is_idle, "an idle kernel")

    def _is_awake(self):
        """Ask the first cell (which may run twice) again and again: JupyterLab loses what it asks while connecting."""
        first = self.names[0]
        self._press_run(first)
        for _ in range(4):
            if not self.is_busy(first):
                break
            self.page.wait_for_timeout(1000)
        return self.has_run(first)

    def reload(self):
        """Load the page again; the kernel lives on."""
        self.page.reload()
        self.wait_for_kernel()

    def theme(self):
        """Return "light" or "dark": what the page says of itself."""
        is_light = self.page.locator("body").get_attribute("data-jp-theme-light")
        return "light" if is_light == "true" else "dark"

    def switch_theme(self, name):
        """Choose a theme from the menu."""
        self.page.get_by_role("menuitem", name="Settings", exact=True).click()
        for label in ("Theme", f"JupyterLab {name.title()}"):
            self.page.locator(".lm-Menu-itemLabel").get_by_text(label, exact=True).click()
        until(lambda: self.theme() == name, f"the {name} theme")

    def cell(self, name):
        return self.page.locator(".jp-CodeCell").nth(self.names.index(name))

    def start(self, name):
        """Run a cell."""
        before = self.prompt(name)
        self._press_run(name)
        until(lambda: self.prompt(name) != before, what=f"the start of cell {name}")

    def _press_run(self, name):
        asked = self.page.locator(".jp-Dialog")
        until(lambda: self._has_answered(asked), lambda: f"the end of {asked.all_inner_texts()}")
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_timeout(1000)

    @staticmethod
    def _has_answered(asked):
        """Answer what JupyterLab asks, unless it takes its question back meanwhile; return whether it asks no more.

        A button is found by the text that is seen: some have another name for screen readers.
        """
        for question, answer in QUESTIONS.items():
            if asked.filter(has_text=question).count():
                with contextlib.suppress(TimeoutError):
                    asked.locator("button").get_by_text(answer, exact=True).first.click(timeout=5000)
        return not asked.count()

    def prompt(self, name):
        return self.cell(name).locator(".jp-InputPrompt").inner_text()

    def is_busy(self, name):
        return self.prompt(name) == "[*]:"

    def has_run(self, name):
        return re.search(r"\d", self.prompt(name)) is not None

    def is_idle(self):
        return self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").count() > 0

    def run(self, name):
        self.start(name)
        until(lambda: self.has_run(name), lambda: f"the end of cell {name}, where {self.state(name)},")
        assert "Traceback" not in self.cell(name).inner_text()

    def state(self, name):
        """Describe what a cell waits for, as far as it can be seen from outside."""
        return f"the cell shows {self.cell(name).inner_text()!r} and {self.lab.state()}"

    def shows(self, name, words):
        """Wait until a cell shows these words: its output arrives after its number."""
        cell = self.cell(name)
        return until(lambda: words in cell.inner_text() and cell.inner_text(), f"{words!r} below cell {name}")

    def interrupt(self, name):
        """Interrupt the kernel from the keyboard, as for a cell that takes too long."""
        self.cell(name).locator(".cm-content").click()
        for key in ("Escape", "i", "i"):
            self.page.keyboard.press(key)
        until(lambda: not self.is_busy(name), what=f"the interrupt of cell {name}")

    def save(self):
        """Save, and return what stands in the file."""
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        until(self.is_saved, what="the saving")
        return json.loads(self.file.read_text())

    def is_saved(self):
        return self.page.locator(".jp-mod-dirty").count() == 0


class Live:
    """The live view in a cell's output."""

    def __init__(self, notebook, name):
        self.page, self.output = notebook.page, notebook.cell(name).locator(".dlrover-live-on")

    def said(self):
        return " ".join(self.output.get_by_role("status").aria_snapshot().split())

    def says(self, words):
        def told():
            return f"{words!r} in the live view, which says {self.said()!r},"

        return until(lambda: words in self.said() and self.said(), told)

    def head(self):
        return self.output.get_by_text("% trained").first.inner_text()

    def button(self, name):
        return self.output.get_by_role("button", name=name)

    def accepts(self, proposal):
        """Return the button that accepts a proposal: what it says is by whether that is a trial."""
        return self.button(re.compile(rf"^(Do|Try) it \({proposal}\)$"))

    def n_point(self):
        return self.page.evaluate(N_POINT)

    def grows(self, n=2):
        at = self.n_point()
        until(lambda: self.n_point() >= at + n, "a longer curve")
