"""The dashboard for Grafana and the alerts: they ask only for what a server really tells, in correct PromQL."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from suite.missing import missing
from support.cases import for_each
from support.dashboard.dashboards import closed, running, team_of

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
PANELS = json.loads((ROOT / "deploy" / "grafana" / "dlrover-nb.json").read_text())["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Give the names of all metrics that a server tells, with those of their samples."""
    team = team_of(tmp_path_factory.mktemp("monitoring"))
    with running(team) as dashboard:
        dashboard.ask("/jobs")
        text = dashboard.ask("/metrics").text
    closed(team)
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
        parts = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
        names |= {name + part for part in parts}
    return names


@pytest.fixture(scope="module")
def promtool():
    """Return the program that checks rules; Debian's package is unpacked, not installed."""
    own = ROOT / "build" / "prometheus" / "usr" / "bin" / "promtool"
    found = shutil.which("promtool") or (str(own) if own.exists() else None)
    return found or missing("promtool")


@for_each("query", [*QUERIES, *(rule["expr"] for rule in ALERTS)])
def test_a_query_names_only_what_a_server_tells(told, query):
    named = set(re.findall(r"\bdlrover_\w+", query))
    assert named
    assert named <= told


def test_every_metric_is_on_a_panel(told):
    shown = set(re.findall(r"\bdlrover_\w+", " ".join(QUERIES)))
    assert not {name for name in told - shown if not name.startswith("dlrover_request_seconds_")}
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_promtool_accepts_the_alerts(promtool):
    checked = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(ALERTS)} rules found" in checked.stdout


def test_promtool_accepts_the_queries_of_the_panels(promtool, tmp_path):
    rules = [{"record": f"panel:{at}", "expr": query} for at, query in enumerate(QUERIES)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_an_alert_fires_on_memory_that_is_soon_full_and_not_on_more_time(promtool, tmp_path):
    labels = {"cluster": "sim", "job": "ads-ctr", "role": "ps"}
    series = 'dlrover_memory_full_seconds{cluster="sim", job="ads-ctr", role="ps"}'
    fired = {
        "exp_labels": {**labels, "severity": "warning"},
        "exp_annotations": {"summary": "Job ads-ctr: memory of its ps nodes is likely full in 10m 0s"},
    }
    cases = [
        {
            "interval": "1m",
            "input_series": [{"series": series, "values": values}],
            "alert_rule_test": [
                {"eval_time": "3m", "alertname": "DlroverMemorySoonFull", "exp_alerts": alerts}
            ],
        }
        for values, alerts in [("600x5", [fired]), ("6000x5", [])]
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": cases}))
    checked = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_promtool_accepts_the_scrape_of_the_operators_page(promtool, tmp_path):
    page = (ROOT / "deploy" / "README.md").read_text()
    [text] = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", page, re.MULTILINE | re.DOTALL)
    told = yaml.safe_load(text)
    [scrape] = told["scrape_configs"]
    assert scrape.get("metrics_path", "/metrics") == "/metrics"
    (tmp_path / "token").write_text("of the metrics")
    scrape["authorization"]["credentials_file"] = str(tmp_path / "token")
    told["rule_files"] = [str(RULES)]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(told))
    checked = subprocess.run([promtool, "check", "config", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
