"""Every entry of every live legend has its sample: at first, and after whatever draws parts of a figure anew."""

from dataclasses import replace

import pytest
from support.browser.chromium import picture
from support.browser.looks import is_painted, legends
from support.jobs.masters import Master
from support.waiting import until
from test_themes_browser import SWITCH, THEMES

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.widgets.charts import PAGES
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.live_view import LiveView

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
]

# The places of the crosses in data, and that of a marker with this title in the window.
CROSS = """() => Bokeh.documents.flatMap(doc => [...doc._all_models.values()])
  .filter(m => m.type === 'ColumnDataSource' && m.data.color && m.data.high && !m.data.label)
  .map(m => [...m.data.x].join()).join(' ')"""
PLACE = """title => {
  const views = [], visit = view => { views.push(view); for (const v of view.children_views?.() ?? []) visit(v) }
  for (const root of Object.values(Bokeh.index)) visit(root)
  for (const view of views) {
    const data = view.model.data_source?.data
    const at = data?.words?.findIndex(words => words.startsWith(title)) ?? -1
    if (at < 0 || !view.glyph) continue
    const box = view.plot_view.canvas_view.el.getBoundingClientRect()
    return [box.x + view.coordinates.x_scale.compute(data.x[at]), box.y + view.coordinates.y_scale.compute(data.y[at])]
  }
}"""


@pytest.mark.release
def test_each_entry_of_a_legend_has_its_sample(serve, page):
    master = Master()
    whole = master.state
    master.state = replace(whole, front=None, curves=(), proposals=(), memory=(), fit=None)
    page.goto(serve(LiveView(JobHandle("quick-start", master, user="ada"), Poller()).panel))
    view = page.locator(".dlrover-live").first
    view.wait_for()
    all_drawn(view, "measured")
    page.get_by_role("button", name="Plans", exact=True).click()
    with master.lock:
        master.state = replace(whole, at_s=master.state.at_s + 1)
    all_drawn(view, "proposal")

    for theme in ("dark", "light"):
        page.evaluate(SWITCH, THEMES[theme])
        until(lambda theme=theme: is_painted(view, theme), f"figures in the {theme} theme")
        all_drawn(view, "pick")
    page.get_by_role("button", name="Something else").click()
    move_the_cross(page, lambda: page.get_by_role("slider", name="Workers").press("ArrowRight"))
    all_drawn(view, "what if")
    move_the_cross(page, lambda: page.mouse.click(*page.evaluate(PLACE, "cheapest")))
    all_drawn(view, "what if")
    picture(page, "legends")

    master.step("p2", ProposalStatus.APPLIED)
    until(lambda: "proposal" not in legends(view)[0], "the end of the proposal")
    master.pass_time()
    all_drawn(view, "now")
    page.set_viewport_size({"width": 700, "height": 1500})
    all_drawn(view, "now")


@pytest.mark.release
@pytest.mark.more
def test_the_legends_of_each_page_have_samples(serve, page):
    page.goto(serve(LiveView(JobHandle("quick-start", Master(), user="ada"), Poller()).panel))
    view = page.locator(".dlrover-live").first
    for name in PAGES:
        button = page.get_by_role("button", name=name, exact=True)
        button.click()
        all_drawn(view, "measured")


def move_the_cross(page, move):
    before = page.evaluate(CROSS)
    assert before
    move()
    until(lambda: page.evaluate(CROSS) != before, "another place of the cross")


def all_drawn(view, label):
    """Wait for an entry of this label; then every entry has a sample."""

    def is_so():
        labels, blank = legends(view)
        return label in labels and not blank

    until(is_so, lambda: f"samples of all entries with {label!r} (entries, blank ones: {legends(view)})")
