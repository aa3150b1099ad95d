"""A live view in JupyterLab whose page misses messages, on the line or asleep: it ends as a fresh view of the job."""

import re
import signal
import time

import psutil
import pytest
from support.browser.chromium import picture
from support.browser.lab_notebook import Live, Notebook
from support.waiting import LIMIT_S, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # playwright's event loop warns of itself
    pytest.mark.release,  # every loss is tried without a browser, by widgets/test_delivery.py
]

FROZEN_S = 120  # JupyterLab's server gives a silent page up after 90 s
ACCEPTED_AFTER_S = 30
SLOW_MS, SLOW_S = 2_000, 60  # of a message, three of which are a drawing; until the job ends
CELLS = {
    "load": "%load_ext dlrover_nb",
    "connect": "%dlrover connect sim --machines 4 --speed 60",
    "submit": """%%dlrover submit ads
epochs: 100000
plan:
  worker: {count: 1, cpu: 1, memory_mib: 2048}
  ps: {count: 1, cpu: 1, memory_mib: 2048}
bounds: {max_workers: 4}""",
    "watch": "%dlrover watch ads",
    "accept": "%dlrover accept ads p1",
    "accept later": f"""import threading
job = %dlrover attach ads
threading.Timer({ACCEPTED_AFTER_S}, job.accept, ["p1"]).start()""",
    "stop later": f"""import threading
job = %dlrover attach ads
threading.Timer({SLOW_S}, job.stop).start()""",
    "stop": "%dlrover stop ads",
    "afresh": "%dlrover watch ads",
}
IS_OLD = "() => Bokeh.documents.some(doc => doc.dlrover_link?.is_old())"
GENERATION = """() => Math.max(...Bokeh.documents.flatMap(doc => [...doc._all_models.values()])
  .map(model => model.dlrover_at?.[0] ?? 0))"""
IS_OFF = "button => button.getRootNode().host.inert"
# What each view on the page draws: the columns of every glyph that can be seen, by the title of its figure. What is on
# a page that is not shown is as it was when that page was last seen.
DRAWN = """() => Bokeh.documents.filter(doc => doc.dlrover_link).map(doc => {
  const columns = ({glyph, data_source: {data}}) => Object.entries(glyph.attributes)
    .filter(([, spec]) => spec?.field in data).map(([name, spec]) => [name, Array.from(data[spec.field])])
  const has_any = column => column.some(value => value !== '' && !Number.isNaN(value))
  const shown = model => model.visible === false ? []
    : model.type === 'Figure' ? [model] : (model.children ?? []).flatMap(shown)
  return doc.roots().flatMap(shown).map(figure => [figure.title.text, figure.renderers.filter(each => each.visible && each.data_source)
    .map(each => [each.glyph.type, columns(each)])
    .filter(([, drawn]) => drawn.some(([name, column]) => /^y|top|high/.test(name) && has_any(column)))
    .map(each => JSON.stringify(each)).sort()]).sort()
})"""
# Each message of the kernel is taken in for as many milliseconds.
SLOW = """ms => {
  for (const doc of Bokeh.documents) {
    for (const kernel of [...doc._all_models.values()].filter(model => model.dlrover_at)) {
      const takes = kernel.dlrover_takes
      kernel.dlrover_takes = function (at) {
        const is_taken = takes.call(this, at), end = performance.now() + (is_taken ? ms : 0)
        while (performance.now() < end) {}
        return is_taken
      }
    }
  }
}"""
UNEQUAL = """() => Bokeh.documents.flatMap(doc => [...doc._all_models.values()])
  .filter(model => model.type === 'ColumnDataSource').map(source => Object.values(source.data).map(each => each.length))
  .filter(lengths => new Set(lengths).size > 1)"""


class Line:
    """What is between the page and JupyterLab's server; while it loses, what the kernel sends to views is lost."""

    def __init__(self, page):
        self.loses, self.n_lost = False, 0
        page.route_web_socket(re.compile("/api/kernels/"), self._connect)

    def _connect(self, page_end):
        server_end = page_end.connect_to_server()

        def carry(message):
            raw = message if isinstance(message, bytes) else message.encode()
            if self.loses and b"comm_msg" in raw:
                self.n_lost += 1
            else:
                page_end.send(message)

        server_end.on_message(carry)


def begin(page, lab):
    """Return a notebook and its live view, which has a proposal to accept."""
    notebook = Notebook(page, lab, CELLS)
    for name in ("load", "connect", "submit", "watch"):
        notebook.run(name)
    live = Live(notebook, "watch")
    live.output.wait_for(timeout=LIMIT_S * 1000)
    live.grows()
    live.accepts("p1").wait_for()
    open_nodes(live)
    return notebook, live


def open_nodes(live):
    """Open a page with charts: without one, a view draws the first chart alone."""
    live.button("Nodes").click()


def becomes_whole(page, live):
    """Wait until the view was sent whole, and shows what is over as such."""
    until(lambda: page.evaluate(GENERATION) and not page.evaluate(IS_OLD), "the whole picture")
    until(lambda: not live.accepts("p1").count(), "a view in which the accepted proposal is over")
    live.grows()
    until(lambda: not live.output.get_by_text("This view is old").is_visible(), "a view that is up to date")


def equals_a_fresh_view(page, notebook):
    """Check that the view that missed messages and one that begins now draw the same of the job."""
    notebook.run("stop")  # so that both come to rest
    until(lambda: "stopped" in Live(notebook, "watch").head(), "the end in the view")
    notebook.run("afresh")
    afresh = Live(notebook, "afresh")
    afresh.output.wait_for(timeout=LIMIT_S * 1000)
    open_nodes(afresh)
    until(lambda: is_drawn_twice(page), lambda: f"the same picture twice: {differences(page)}")
    assert page.evaluate(UNEQUAL) == []


def is_drawn_twice(page):
    views = page.evaluate(DRAWN)
    return len(views) == 2 and views[0] == views[1] and len(views[0]) >= 3


def differences(page):
    """Return the titles of the charts that differ: their numbers are thousands."""
    first, second = page.evaluate(DRAWN)
    return [(a[0], b[0]) for a, b in zip(first, second, strict=False) if a != b]


def test_messages_lost_on_the_line_leave_no_wrong_picture(page, lab):
    line = Line(page)
    notebook, live = begin(page, lab)
    line.loses = True
    notebook.run("accept")
    live.output.get_by_text("This view is old").wait_for()
    assert line.n_lost
    assert live.accepts("p1").evaluate(IS_OFF)
    picture(page, "lost-old")
    line.loses = False
    becomes_whole(page, live)
    equals_a_fresh_view(page, notebook)
    picture(page, "lost-mended", full_page=True)


def test_a_browser_that_sleeps_for_two_minutes_wakes_to_no_wrong_picture(page, lab):
    notebook, live = begin(page, lab)
    notebook.run("accept later")
    browser = [each for each in psutil.Process().children(recursive=True) if "chrom" in each.name()]
    for each in browser:
        each.send_signal(signal.SIGSTOP)
    try:
        time.sleep(FROZEN_S)
    finally:
        for each in browser:
            each.send_signal(signal.SIGCONT)
    becomes_whole(page, live)
    equals_a_fresh_view(page, notebook)
    picture(page, "frozen-mended", full_page=True)


def test_a_page_that_takes_in_less_than_is_sent_does_not_fall_further_behind(page, lab):
    notebook, live = begin(page, lab)
    notebook.run("stop later")
    page.evaluate(SLOW, SLOW_MS)
    time.sleep(SLOW_S)  # six minutes of messages
    until(lambda: "stopped" in live.head(), "the end in the view")
