"""That prices are assumed is said once in a view, by the first block that names money."""

from __future__ import annotations

import pytest
from support.jobs import builders as b

from dlrover_nb.core.structs.plan.prices import ARE_ASSUMED, ASSUMED
from dlrover_nb.widgets.blocks import Facts, Lead, Paragraph, Table, Verbatim, View
from dlrover_nb.widgets.jobs.plans import plans_view
from dlrover_nb.widgets.jobs.status import status_view
from dlrover_nb.widgets.past.html_report import report_html
from dlrover_nb.widgets.said_once import said_once

COST = Facts((("cost", f"1 USD/h, {ASSUMED}"),))
TABLE = Table("Plans", ("plan", f"USD/h, {ASSUMED}"), (("1w", "2"),), f"Cheapest first. {ARE_ASSUMED}")


def test_the_first_block_says_it_and_no_other():
    once = list(said_once((Paragraph("Nothing."), COST, TABLE, Verbatim(ASSUMED)), Verbatim))
    assert once[:2] == [Paragraph("Nothing."), COST]
    assert once[2] == Table("Plans", ("plan", "USD/h"), (("1w", "2"),), "Cheapest first.")
    assert once[3] == Verbatim(ASSUMED), "what others wrote stays as it is"


def test_a_block_that_does_not_say_it_stays_the_same_object():
    """To rebuild a table of thousands of rows took a seventh of the time of its HTML."""
    rows = tuple((f"job-{i}", "1 USD/h") for i in range(3))
    quiet = Table("Jobs", ("job", "cost"), rows, "Cheapest first.")
    last = Table("Jobs", ("job", "cost"), (*rows, ("job-3", f"2 USD/h, {ASSUMED}")))
    (_, same, without) = said_once((COST, quiet, last), Verbatim)
    assert same is quiet
    assert without == Table("Jobs", ("job", "cost"), (*rows, ("job-3", "2 USD/h")))


def test_the_sentence_of_a_view_says_it_for_all_below():
    (_, facts) = said_once((Lead("Add one worker.", f"The change takes 2 s. {ARE_ASSUMED}"), COST), Verbatim)
    assert facts == Facts((("cost", "1 USD/h"),))


@pytest.mark.parametrize(
    "shown",
    [
        lambda job: plans_view(job).html(),
        lambda job: plans_view(job).text(),
        lambda job: status_view(job, b.series()).html(),
        lambda job: report_html(job, b.series()).replace("(assumed; set your own in the job file)", ""),
    ],
)
def test_views_of_a_job_say_it_at_most_once(shown):
    words = shown(b.snapshot())
    assert words.count(ASSUMED) + words.count(ARE_ASSUMED) == 1


def test_a_view_of_own_prices_does_not_say_it():
    assert View("Costs", (Facts((("cost", "1 USD/h"),)),)).text().count("assumed") == 0
