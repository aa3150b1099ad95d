"""The page *Decisions*: filters in the address, pages, predicted against measured, the chain, exports."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from dataclasses import replace
from urllib.parse import quote

import pytest
from support.browser.chromium import broken_rules, picture, unnamed
from support.browser.looks import cut_off
from support.cases import for_each
from support.conformance.audit import ROW
from support.dashboard.dashboards import ADMIN, NOBODY, VIEWER, fetch, serving
from support.history.history_records import OUTCOME, SPEC
from support.jobs.builders import HOSTILE

from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.decisions.commands import Action, Entry, Stage
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.pages.chain_state import ChainWatch
from dlrover_nb.dashboard.pages.decisions import N_LINE, comparable_words, measured_words

AT_S = 1_790_000_000.0
RED = Person("red", grants=(Grant(AccessRole.VIEWER, "red"),))


@pytest.fixture
def team(tmp_path):
    core = connect("sim", machines=2)
    made = Team(
        {"sim": WatchedCluster(core)}, lambda: AT_S + 3600, url=f"sqlite:///{tmp_path / 'history.db'}"
    )
    yield made
    made.close()
    core.shutdown(force=True)


@pytest.fixture
def told(team):
    """An audit of four commands, of which one was measured, one has no outcome, and one is of a namespace."""
    team.history.remember("clicks", AT_S, SPEC)
    team.history.remember("clicks", AT_S, replace(OUTCOME, decision="d7"))
    row = replace(
        ROW, job="clicks", run=f"clicks@{AT_S:.3f}", key="k1", subject="p1", predicted_samples_per_s=100.0,
        low=80.0, high=120.0, plan_before="1w", plan_after="2w",
    )  # fmt: skip
    team.audit.claim(row)
    team.audit.append(replace(row, stage=Stage.DONE, answer="d7"))
    team.audit.claim(replace(row, key="k2", person="bob", action=Action.STOP, entry=Entry.API, subject=""))
    team.audit.append(
        replace(row, key="", stage=Stage.REFUSED, person="vic", answer="needs operator", job="views")
    )
    team.audit.append(replace(row, key="", stage=Stage.REFUSED, person="eve", namespace="red", job="secret"))
    return team


@pytest.fixture
def address(told):
    with serving(told, ADMIN, VIEWER, NOBODY, RED) as found:
        yield found


def seqs(page):
    """Return the row numbers that a page shows."""
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return [int(n) for n in re.findall(r"<tr><td[^>]*>(\d+)</td>", body)]


def test_both_rows_of_a_command_are_one_line_with_prediction_and_measurement(address):
    status, _, page = fetch(f"{address}/decisions")
    assert status == 200
    assert seqs(page) == [5, 4, 3, 1]
    assert "100 samples/s (80-120)" in page
    assert "110 samples/s, inside the band" in page
    assert "done: d7" in page
    assert "asked; no outcome is on record" in page


def test_a_measurement_is_judged_as_the_prediction_sees_it_and_shown_as_it_ran(words):
    busy = replace(OUTCOME, measured_samples_per_s=55.0, host_share=0.5)
    assert comparable_words(busy) == words
    assert measured_words(busy) == words
    assert measured_words(OUTCOME) == "110 samples/s"
    assert comparable_words(None) == measured_words(None) == "-"


@pytest.mark.more
@for_each(
    ("query", "found"),
    [
        ("job=views", [4]),
        ("person=ada", [1]),
        ("entry=api", [3]),
        ("action=stop", [3]),
        ("stage=asked", [3]),
        ("stage=done", [1]),
        ("stage=refused&person=vic", [4]),
        ("since=24h", [5, 4, 3, 1]),
        ("since=2100-01-01", []),
        ("before=3", [1]),
    ],
)
def test_the_address_holds_the_filter_and_the_form_shows_it(address, query, found):
    _, _, page = fetch(f"{address}/decisions?{query}")
    assert seqs(page) == found
    name, value = query.split("&")[0].split("=")
    if name in {"job", "person", "since"}:
        assert f'name="{name}" value="{value}"' in page
    elif name != "before":
        assert f'value="{value}" selected' in page


@for_each("query", ["entry=x", "action=x", "stage=x", "since=x", "before=x", "before=²"])
def test_a_wrong_filter_says_what_would_be_right(address, query):
    status, _, page = fetch(f"{address}/decisions?{quote(query, safe='=')}")
    assert status in {400, 503}
    assert "must be" in page or "expected" in page


def test_people_see_the_commands_of_namespaces_where_they_have_a_role(address):
    assert seqs(fetch(f"{address}/decisions", "red")[2]) == [5]
    status, _, page = fetch(f"{address}/decisions", "nora")
    assert status == 403
    assert "secret" not in page
    status, _, text = fetch(f"{address}/decisions.jsonl", "red")
    assert [json.loads(line).get("seq") for line in text.splitlines()] == [5, None]
    assert fetch(f"{address}/decisions.csv", "nora")[0] == 403


def test_pages_go_by_row_numbers_and_hold_each_command_once(told):
    for i in range(2 * N_LINE):
        told.audit.append(
            replace(ROW, key="", stage=Stage.REFUSED, namespace="red" if i % 3 else "", job="j")
        )
    with serving(told, ADMIN, RED) as address:
        for person, n_all in (
            ("ada", 4 + 2 * N_LINE),
            ("red", 1 + sum(bool(i % 3) for i in range(2 * N_LINE))),
        ):
            found, path = [], "/decisions"
            while path:
                _, _, page = fetch(address + path, person)
                found += seqs(page)
                older = re.search(r'href="([^"]+before=\d+)"', page)
                path = older[1].replace("&amp;", "&") if older else ""
            assert len(found) == len(set(found)) == n_all
            assert found == sorted(found, reverse=True)


def test_the_export_streams_all_rows_and_csv_has_no_formula(address, told):
    told.audit.append(replace(ROW, key="", stage=Stage.REFUSED, why='=cmd|"/c calc"!A0', person="@eve"))
    status, headers, text = fetch(f"{address}/decisions.csv")
    assert (status, headers["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert headers["Content-Disposition"] == 'attachment; filename="decisions.csv"'
    head, *rows, last = csv.reader(text.splitlines())
    assert len(rows) == 6
    assert rows[-1][head.index("why")].startswith("'=cmd")
    assert rows[-1][head.index("person")] == "'@eve"
    assert last[1] == told.audit.head()[1]
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row)
    *lines, _ = fetch(f"{address}/decisions.jsonl?person=ada")[2].splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2]
    assert fetch(f"{address}/decisions.jsonl?entry=x")[0] == 400


def test_the_state_of_the_chain_is_told_and_a_forged_row_is_named(address, told, tmp_path):
    page = fetch(f"{address}/decisions")[2]
    seq, digest = told.audit.head()
    assert f"Every row is as it was written: verified up to row {seq} of {seq}, head {digest[:12]}" in page
    connection = sqlite3.connect(tmp_path / "history.db")
    with connection:
        connection.execute("update audit set record = replace(record, 'eve', 'ada') where seq = 5")
    connection.close()
    page = fetch(f"{address}/decisions?again=1")[2]
    assert "NOT as it was written" in page
    assert "row 5 does not match its hash" in page


def test_a_long_chain_is_read_part_by_part_and_is_sound_at_the_end(told):
    watch = ChainWatch()
    states = [watch.read_on(told.audit, most=2) for _ in range(4)]
    assert [state.seq for state in states] == [2, 4, 5, 5]
    assert not any(state.faults for state in states)


def test_nothing_that_somebody_typed_becomes_part_of_the_page(told):
    evil = replace(ROW, key="", stage=Stage.REFUSED, person=HOSTILE, job=HOSTILE, why=HOSTILE, answer=HOSTILE)
    told.audit.append(evil)
    with serving(told) as address:
        page = fetch(f"{address}/decisions?job={quote(HOSTILE)}")[2]
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.more
@pytest.mark.browser
@pytest.mark.filterwarnings("default")
def test_the_filter_works_in_a_browser_and_stands_in_the_address(address, new_page, axe):
    page = new_page()
    page.goto(f"{address}/decisions")
    page.get_by_label("Through").select_option("api")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**entry=api**")
    assert page.get_by_role("row").count() == 2
    assert page.get_by_label("Through").input_value() == "api"
    page.get_by_role("link", name="Clear").click()
    page.wait_for_url(f"{address}/decisions")
    assert page.get_by_role("row").count() == 5
    assert broken_rules(page, axe) == []
    assert not unnamed(page.locator("main").aria_snapshot())
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (360, 1400):
            page.set_viewport_size({"width": width, "height": 1100})
            assert cut_off(page.locator("main")) == []
            picture(page, f"decisions-{scheme}-{width}", full_page=True)
