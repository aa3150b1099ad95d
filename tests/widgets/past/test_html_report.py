import re
import xml.etree.ElementTree as ET

from support.jobs import builders as b

from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.past.html_report import report_html, write_report


def test_report_is_one_file_that_asks_for_nothing(tmp_path):
    rounds = (EvaluationRound(1, b.START_S + 100, Evaluation(0.93, 0.14, 20_000)),)
    path = write_report(tmp_path / "report.html", b.snapshot(rounds=rounds), b.series())
    html = path.read_text()
    assert "<script" not in html
    assert not re.search(r"(src|href|url|@import)\s*[=(]?\s*[\"']?https?:", html)
    assert html.count("<details") == len(CHARTS)
    for svg in re.findall(r"<svg.*?</svg>(?=</div>)", html, flags=re.DOTALL):
        ET.fromstring(svg)


def test_report_tells_who_decided_what_when_and_why_and_how_it_turned_out():
    html = report_html(b.snapshot(), b.series())
    for text in (
        "reject p1",
        "ada",
        "not now",
        "+4.2 %",
        "AUC 0.9401",
        "583,680",
        "t+150 plan applied",
        "assumed",
    ):
        assert text in html


def test_hostile_names_stay_text():
    snapshot = b.snapshot(story=(b.HOSTILE,), message=b.HOSTILE)
    assert "<script" not in report_html(snapshot, b.series(nodes=(b.HOSTILE, "ps-0")))


def test_a_report_leads_to_each_of_its_parts():
    html = report_html(b.snapshot(), b.series())
    parts = re.findall(r'<h[1-6] id="([^"]+)"', html)
    assert len(parts) == len(set(parts)) >= 8
    assert re.findall(r'<a href="#([^"]+)"', html) == parts
