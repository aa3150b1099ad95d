import pytest
from chromium import outside, unnamed

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
