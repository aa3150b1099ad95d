"""What is logged: one event on one line, and no secret."""

import io
import json
import logging

import pytest

from dlrover_nb.dashboard.log import FORMATS, set_up


@pytest.fixture(params=FORMATS)
def logged(request):
    """Give a function that logs a message and returns what was written."""
    stream = io.StringIO()
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in (None, "dlrover_nb", "bokeh.server.util")}
    handler = set_up(request.param, stream)

    def log(message, *args, **extra):
        logging.getLogger("dlrover_nb.dashboard.test").info(message, *args, extra=extra)
        return stream.getvalue()

    yield log
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_an_event_is_one_line_whatever_a_stranger_has_chosen(logged):
    text = logged("a sign-in of %s failed", "eve\nERROR forged line\r\n", person_tried="x\ny")
    assert text.count("\n") == 1
    assert "eve" in text


def test_credentials_are_taken_out(logged):
    text = logged("asked https://ada:secret-word@host and Authorization: Bearer abcdefghijklmnop")
    assert "secret-word" not in text
    assert "abcdefghijklmnop" not in text


def test_json_lines_can_be_read(logged):
    text = logged("ö %s", "x", request="r1", person="ada", unknown="left out")
    if not text.startswith("{"):
        assert "request='r1'" in text
        return
    event = json.loads(text)
    assert (event["message"], event["request"], event["person"], event["level"]) == (
        "ö x",
        "r1",
        "ada",
        "info",
    )
    assert "unknown" not in event
