"""What the demonstration prints."""

import io
from dataclasses import replace

from rich.console import Console
from support.jobs.builders import NOW_PLAN, prediction, snapshot

from dlrover_nb import demo
from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.decisions.decisions import Outcome


def console():
    return Console(file=io.StringIO(), width=200)


def test_a_file_gets_each_line_of_the_story_once_as_it_happens():
    out, now = console(), snapshot(story=("12:00:01  one",))
    with demo._drawing(out) as draw:
        draw(now, [])
        draw(replace(now, story=(*now.story, "12:00:02  two")), [])
    lines = out.file.getvalue().splitlines()
    assert [line for line in lines if line.startswith("12:00")] == ["12:00:01  one", "12:00:02  two"]
    assert sum("trained" in line for line in lines) == 1  # the next one is due in some seconds


def test_a_busy_host_is_said_in_each_line():
    out = console()
    with demo._drawing(out) as draw:
        draw(snapshot(host=HostLoad(0.6, 0.5, 1.25, 4.0)), [])
    assert "the job gets 0.5 of the 1.2 cores" in out.file.getvalue()


def test_the_last_table_tells_plan_and_host_apart():
    predicted = prediction(NOW_PLAN)
    seen = 0.7 * predicted.samples_per_s
    outcome = Outcome("d1", NOW_PLAN, predicted, seen, None, 9, 0.0, 0.5, host_share=0.3)
    out = console()
    out.print(demo._outcomes(snapshot(outcomes=(outcome,))))
    assert "70 % of its speed" in out.file.getvalue()
    assert "+0 %, inside" in out.file.getvalue()
