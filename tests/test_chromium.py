import asyncio

import psutil
import pytest
from support.browser.chromium import outside, unnamed

SNAPSHOT = """- main:
  - button "Accept p1"
  - 'button "Override: p1" [disabled]'
  - slider "Workers": "3"
  - textbox: words
  - button [disabled]
  - table:
    - row "a b"
  - spinbutton
"""


def test_controls_without_a_name_are_found_and_named_ones_are_not():
    assert [line.strip() for line in unnamed(SNAPSHOT)] == [
        "- textbox: words",
        "- button [disabled]",
        "- spinbutton",
    ]


@pytest.mark.parametrize(
    "url", ["https://cdn.bokeh.org/x.js", "http://127.0.0.1.example.org/", "wss://fonts.example.org/"]
)
def test_another_host_is_outside(url):
    ours = [
        "http://127.0.0.1:5006/",
        "ws://127.0.0.1:5006/ws",
        "data:image/png;base64,",
        "blob:http://127.0.0.1/1",
        "file:///a",
    ]
    assert outside([*ours, url]) == [url]


@pytest.mark.browser
@pytest.mark.filterwarnings("default")  # playwright's event loop warns of itself
class TestOneForAll:
    @pytest.mark.more
    def test_the_next_test_has_the_same_chromium_without_what_the_last_one_opened(self, chromium):
        with chromium.turn() as first:
            first.new_page()
        with chromium.turn() as second:
            assert second is first
            assert not second.contexts

    @pytest.mark.more
    def test_a_chromium_that_was_closed_or_killed_is_replaced_for_the_next_test(self, chromium):
        with chromium.turn() as closed:
            closed.close()
        with chromium.turn() as killed:
            killed.new_page()
            for process in psutil.Process().children(recursive=True):
                if "chromium" in process.name():
                    process.kill()
        with chromium.turn() as browser:
            page = browser.new_page()
            page.set_content("<p>it lives</p>")
            assert page.inner_text("p") == "it lives"

    @pytest.mark.more
    def test_between_two_tests_with_a_browser_others_run_event_loops(self, chromium):
        with chromium.turn() as browser:
            browser.new_page()
        assert asyncio.run(asyncio.sleep(0, "done")) == "done"
        with chromium.turn() as browser:
            browser.new_page()
