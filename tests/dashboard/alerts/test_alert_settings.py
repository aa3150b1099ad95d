"""The settings of alerts, and all of it together: from a job to a call, and from its link to the decision."""

from __future__ import annotations

import json
import threading
from urllib.parse import urlsplit

import pytest
from support.cases import for_each
from support.dashboard.receivers import Receiver
from support.dashboard.team_clusters import submitted
from support.waiting import until

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.views.alerts import AlertRules
from dlrover_nb.dashboard.alerts.settings import Alerts, AlertSettings
from dlrover_nb.dashboard.settings import read_settings

FILE = """
alerts:
  base_url: https://jobs.example
  webhook_url: https://hooks.example/s3cret-path
  webhook_secret: hush-hush
  apprise_urls: ["json://user:pa55word@127.0.0.1:9/"]
  rules: {proposal_waits_s: 60, oom_within_s: 600}
"""


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def test_a_file_names_receivers_and_thresholds_and_no_secret_is_shown(tmp_path):
    (tmp_path / "serve.yaml").write_text(FILE)
    settings = read_settings(str(tmp_path / "serve.yaml"), {})
    assert settings.alerts.rules == AlertRules(proposal_waits_s=60, oom_within_s=600)
    assert settings.alerts.webhook_secret == "hush-hush"
    for secret in ("s3cret-path", "hush-hush", "pa55word"):
        assert secret not in repr(settings)


@for_each(
    ("wrong", "said"),
    [
        ("alerts: {rules: {oom_within: 5}}", "did you mean oom_within_s"),
        ("alerts: {web_hook_url: x}", "did you mean webhook_url"),
        ("alerts: {rules: {oom_within_s: -5}}", "oom_within_s must be >= 0"),
        ("alerts: {rules: {oom_within_s: soon}}", "oom_within_s"),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(tmp_path, wrong, said):
    (tmp_path / "serve.yaml").write_text(wrong)
    with pytest.raises(InvalidValueError, match=said):
        read_settings(str(tmp_path / "serve.yaml"), {})


def test_the_link_of_a_call_leads_to_the_page_of_the_decision(client, team, receiver):
    job = submitted(team.cluster("sim"), "called")
    settings = AlertSettings(
        AlertRules(proposal_waits_s=0.0),
        base_url=client.url,
        webhook_url=f"http://{receiver.address}/hook",
        webhook_secret="hush-hush",
    )
    alerts = Alerts(team, settings)
    assert "dlrover-alerts" not in {thread.name for thread in threading.enumerate()}, (
        "the server may not listen"
    )
    alerts.begin()
    try:
        told = until(lambda: [json.loads(body) for _, _, body in receiver.calls], "a call")[0]
    finally:
        alerts.close()
    assert (told["kind"], told["job"]) == ("proposal waits", "called")
    page = client.as_person("otto").get(urlsplit(told["link"]).path)
    assert page.status == 200
    assert f"{told['subject']} of job called" in page.text
    assert job.snapshot().decisions == ()


def test_a_receiver_that_cannot_be_one_stops_the_start(team):
    with pytest.raises(InvalidValueError, match="https"):
        Alerts(team, AlertSettings(webhook_url="http://jobs.example/", webhook_secret="x"))
    with pytest.raises(InvalidValueError, match="secret"):
        Alerts(team, AlertSettings(webhook_url="https://jobs.example/"))
    assert not team.cluster("sim").n_listener
