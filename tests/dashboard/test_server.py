"""The server: what every address answers, and with which headers."""

import pytest

PAGES = (
    "/jobs",
    "/healthz",
    "/readyz",
    "/static/dashboard.css",
    "/no-such-page",
    "/static/none.css",
    "/live",
)


def test_the_first_page_is_the_list_of_jobs(dashboard):
    answer = dashboard.ask("/")
    assert (answer.status, answer.headers["Location"]) == (302, "/jobs")
    page = dashboard.ask("/jobs")
    assert page.status == 200
    assert "<h1>Jobs</h1>" in page.text


@pytest.mark.parametrize("path", PAGES)
def test_no_answer_lacks_the_strict_headers(dashboard, path):
    answer = dashboard.ask(path)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'self'" in answer.headers["Content-Security-Policy"]
    assert ("unsafe-inline' 'unsafe-eval" in answer.headers["Content-Security-Policy"]) == (path == "/live")
    assert (answer.headers["Cache-Control"] == "no-store") == (
        not (path.startswith("/static") and answer.status == 200)
    )
    assert "Server" not in answer.headers
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/no-such-page", "GET", 404),
        ("/jobs", "PATCH", 403),
        ("/static/none.css", "GET", 404),
        ("/live/static/js/none.js", "GET", 404),
        ("/live/autoload.js", "GET", 404),
        ("/live/metadata", "GET", 404),
        ("/healthz", "DELETE", 405),
    ],
)
def test_an_error_is_a_page_of_ours_without_a_traceback(dashboard, path, method, status):
    answer = dashboard.ask(path, method=method)
    assert answer.status == status
    assert f"<h1>{status} " in answer.text
    assert "dashboard.css" in answer.text
    assert "Traceback" not in answer.text


def test_the_process_lives_and_is_ready_once_its_clusters_were_heard(dashboard):
    assert (dashboard.ask("/healthz").status, dashboard.ask("/healthz").text) == (200, "ok\n")
    assert (dashboard.ask("/readyz").status, dashboard.ask("/readyz").text) == (200, "ok\n")
