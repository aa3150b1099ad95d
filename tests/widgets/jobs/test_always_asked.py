"""The line of what is always asked: host, memory, cost, the last change."""

from dataclasses import replace

import pytest
from support.jobs import builders as b

from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.budget import BudgetOutlook
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets.jobs.always_asked import always_asked, always_asked_html
from dlrover_nb.widgets.jobs.headline import headline
from dlrover_nb.widgets.jobs.status import nodes_blocks, quality_words, status_view
from dlrover_nb.widgets.rows.columns import NODES

BUSY = HostLoad(0.3, given_cores=1.254, wanted_cores=2.0, weight=2.0)


def facts(**changes) -> dict[str, str]:
    return dict(always_asked(b.snapshot(**changes)))


def test_a_running_job_says_all_four(words):
    told = facts(host=BUSY)
    assert told["Host"] == words
    assert told["Memory"] == words
    assert told["Cost"].startswith("0.03225 USD/h")
    assert told["Last change"] == words


def test_what_is_not_known_is_left_out():
    told = facts(host=None, memory=(), outcomes=(), markers=())
    assert list(told) == ["Cost"]
    ended = facts(host=BUSY, phase=JobPhase.SUCCEEDED)
    assert list(ended) == ["Last change"]


def test_a_fullest_role_that_does_not_fill_up_says_so(words):
    worker, _ = b.snapshot().memory
    assert facts(memory=(worker,))["Memory"] == words


def test_money_that_was_counted_is_told_also_of_an_ended_job(words):
    budget = BudgetOutlook("quick-start", 4.0, 0.5, "USD", 0.03)
    assert "0.5 USD so far" in facts(budget=budget)["Cost"]
    assert facts(budget=budget, phase=JobPhase.SUCCEEDED)["Cost"] == words


def test_an_unknown_price_is_told_as_such():
    spec = replace(b.snapshot().spec, prices=PriceTable(cpu_hour=None))
    assert facts(spec=spec, front=None, proposals=())["Cost"] == "price unknown"


@pytest.mark.parametrize("proposals", [(), (b.proposal("p2"),)])
def test_a_view_says_once_that_its_prices_are_assumed(proposals):
    snapshot = b.snapshot(proposals=proposals)
    said = f"{headline(snapshot).detail} {dict(always_asked(snapshot))['Cost']}"
    assert said.count("assumed") == 1


@pytest.mark.parametrize(("factor", "words"), [(0.5, "slower than predicted (-50 %)"), (2.0, "faster than")])
def test_a_change_that_turned_out_otherwise_says_by_how_much(factor, words):
    missed = replace(b.snapshot().outcomes[0], measured_samples_per_s=factor * b.speed(b.NOW_PLAN))
    assert words in facts(outcomes=(missed,))["Last change"]


def test_a_plan_that_is_not_judged_yet_is_told_with_its_age(words):
    assert facts(outcomes=())["Last change"] == words


def test_the_facts_follow_the_chart_in_the_saved_view_and_are_escaped():
    text = status_view(b.snapshot(), b.series()).text()
    assert text.index("Throughput over time") < text.index("Last change") < text.index("as of")
    assert "<b>" not in always_asked_html(b.snapshot()).replace("<strong>", "")


def test_quality_is_that_on_held_out_rows_where_there_is_one():
    assert quality_words(b.snapshot()) == "AUC 0.9401"
    assert quality_words(b.snapshot(evaluation=None)) == "loss 0.142"
    assert quality_words(b.snapshot(evaluation=None, loss=None)) == ""


def test_the_nodes_table_shows_what_gpus_do_where_a_node_counts_that(words):
    plain = b.node("worker-0", Role.WORKER, memory=500)
    busy = replace(plain, id="worker-1", last=replace(plain.last, gpu_busy=0.87, gpu_memory_mib=3072.0))
    (table, *_) = nodes_blocks(b.snapshot(nodes=(plain, busy)))
    assert table.head[-1] == "GPU"
    assert [row[-1] for row in table.rows] == ["-", words]
    (without, *_) = nodes_blocks(b.snapshot(nodes=(plain,)))
    assert "GPU" not in without.head
    names = ("gpu_busy", "gpu_memory_used_mib")
    data = NODES.table((plain, busy))
    shown = [tuple(row[name] for name in names) for row in data.rows]
    assert shown == [(None, None), (0.87, 3072.0)]
