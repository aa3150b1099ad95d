"""What is logged: one event on one line, and no secret."""

import io
import json
import logging

import pytest
from support.waiting import until

from dlrover_nb.core.client.handle import user_name
from dlrover_nb.dashboard.frame.log import FORMATS, access, set_up


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


def test_a_request_is_logged_with_its_person_and_a_plain_status_whichever_handler_answers(dashboard, caplog):
    paths = ["/jobs", "/api/v1/clusters"]

    def rows():
        return [record for record in caplog.records if record.name == access.name]

    with caplog.at_level(logging.INFO, logger=access.name):
        for n, path in enumerate(paths, 1):
            assert dashboard.ask(path).status == 200
            until(lambda n=n: len(rows()) == n, what="the line of the log")  # it follows the answer
    assert [(row.path, row.person, repr(row.status)) for row in rows()] == [
        (path, user_name(), "200") for path in paths
    ]


def test_a_demo_does_not_bury_its_address_under_what_its_jobs_decide():
    stream, logger = io.StringIO(), logging.getLogger("dlrover_nb")
    before = {name: logging.getLogger(name).level for name in (None, "dlrover_nb", "bokeh.server.util")}
    handler = set_up("text", stream, level=logging.WARNING)
    try:
        logger.info("feed-dwell: d1 accept p1 by auto")
        logger.warning("a file cannot be written")
    finally:
        logging.getLogger().removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
    assert "accept p1" not in stream.getvalue()
    assert "cannot be written" in stream.getvalue()
