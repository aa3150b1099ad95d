"""What a notebook's page sends to its kernel: Panel's link with our fixes, in Chromium, and a kernel that is played."""

from __future__ import annotations

import panel as pn
import pytest

from dlrover_nb.widgets.live.browser.scripts import FIXES

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
    pytest.mark.more,
]

PLAYED = """
timeout => {
  window.sent = [];
  window.PyViz = {comm_manager: {
    register_target: (plot, comm, take) => { window.take = take; },
    get_client_comm: (plot, comm, on_ack) => {
      window.acknowledge = () => on_ack({metadata: {msg_type: 'Ready'}});
      return {active: true, send: message => window.sent.push(message.content?.events.map(e => e.new) ?? [message])};
    },
  }};
  const named = name => Bokeh.Models.get(name);
  const page = new Bokeh.documents[0].constructor();
  window.field = new (named('TextInput'))();
  window.link = new (named('panel.models.comm_manager.CommManager'))(
    {plot_id: 'plot', comm_id: 'to-page', client_comm_id: 'to-kernel', timeout, debounce: 1});
  page.add_root(window.field);
  page.add_root(window.link);
  Object.assign(window.link, {_event_buffer: [], _blocked: false});  // the roots themselves are no changes
}
"""
AN_HOUR = 3_600_000
FEED = """
([value, generation, numbers]) => {
  window.PyViz.plot_index = {plot: true};
  const change = {kind: 'ModelChanged', model: {id: field.id}, attr: 'value', new: value};
  const frames = ['{"msgid": "1", "msgtype": "PATCH-DOC"}', '{}', JSON.stringify({events: [change]})];
  for (const n of numbers) {
    take({metadata: {dlrover: [generation, n]}, content: {data: frames[(n - 1) % 3]}});
  }
}
"""  # the frames of a message of the kernel, without those that are lost


@pytest.fixture
def link(serve, new_page):
    """Return what plays a page whose link waits so long (ms) for an answer of the kernel."""

    def begin(timeout_ms):
        page = new_page()
        page.goto(serve(pn.Column("a page with Panel's scripts")))
        page.wait_for_function("() => window.Bokeh?.documents.length")
        page.evaluate(FIXES)
        page.evaluate(PLAYED, timeout_ms)
        return page

    return begin


def sends(page, *messages):
    page.wait_for_function(
        "wanted => JSON.stringify(window.sent) === JSON.stringify(wanted)", arg=[[each] for each in messages]
    )


def test_what_waits_for_an_answer_is_sent_when_it_comes_each_change_as_a_message(link):
    page = link(AN_HOUR)
    page.evaluate("() => { field.value = 'a' }")
    sends(page, "a")
    page.evaluate("() => { field.value = 'b'; field.value = 'c' }")
    sends(page, "a")
    page.evaluate("() => acknowledge()")
    sends(page, "a", "b", "c")


def test_a_press_is_sent_though_the_answer_to_the_change_before_was_lost(link):
    page = link(50)
    page.evaluate("() => { field.value = 'a'; field.value = 'b' }")
    sends(page, "a", "b")
    page.evaluate("() => { link._blocked = true; link._timeout = Infinity; field.value = 'press' }")
    sends(page, "a", "b", "press")


def test_a_change_that_cannot_be_sent_keeps_no_other_one_back(link):
    page = link(AN_HOUR)
    page.evaluate(
        "() => { field.value = 'a'; link._event_buffer.push({document: null}); field.value = 'press' }"
    )
    sends(page, "a", "press")


def test_what_comes_from_the_kernel_is_not_sent_back(link):
    page = link(50)
    page.evaluate(
        """() => {
          const change = {kind: 'ModelChanged', model: {id: field.id}, attr: 'value', new: 'from the kernel'};
          window.PyViz.plot_index = {plot: true};
          const message = {content: {events: [change]}, buffers: new Map()};
          link._receiver.consume = () => { link._receiver.message = message };
          link.msg_handler({metadata: {}, content: {data: 'x'}});
        }"""
    )
    page.wait_for_function("() => field.value === 'from the kernel'")
    page.evaluate("() => { field.value = 'by the user' }")
    sends(page, "by the user")


def test_a_page_that_misses_a_frame_takes_no_more_and_asks_until_it_is_sent_everything(link):
    page = link(50)

    def feed(value, generation, *numbers):
        page.evaluate(FEED, [value, generation, numbers])
        return page.evaluate("() => [field.value, link.dlrover_lost]")

    assert feed("a", 0, 1, 2, 3) == ["a", None]
    assert feed("b", 0, 4, 6) == ["a", True]
    sends(page, {"dlrover": [0, 4]})
    assert feed("c", 0, 7, 8, 9) == ["a", True]
    assert feed("d", 1, 2, 3) == ["a", True], "half a picture is none"
    assert feed("e", 2, 1, 2, 3) == ["e", False]
    assert feed("f", 2, 4, 5, 6) == ["f", False]
    page.evaluate("() => { field.value = 'press' }")
    page.wait_for_function("() => window.sent.flat().includes('press')")


def test_a_page_that_cannot_take_a_message_asks_for_everything(link):
    page = link(50)
    page.evaluate("() => { window.known = field.id; field = {id: 'p0'} }")
    page.evaluate(FEED, ["about a model that was lost", 0, [1, 2, 3]])
    sends(page, {"dlrover": [0, 3]})
