"""What Prometheus reads: every promised value, for those who may view, under labels that are bounded."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.dashboard.dashboards import Visitor, running, with_people
from support.jobs import builders as b
from support.waiting import until

from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.structs.decisions.commands import Asker, Entry
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.training.gradient_ages import MeanAges
from dlrover_nb.dashboard.handlers import prometheus
from dlrover_nb.dashboard.settings import ServeSettings

TOKEN = "0123456789abcdef0123456789abcdef"


def read(text):
    """Return the metrics in an answer, as Prometheus' own parser reads them."""
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families, name, **labels):
    """Return one value."""
    found = [
        each.value
        for family in families.values()
        for each in family.samples
        if each.name == name and labels.items() <= each.labels.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_the_jobs_and_commands_of_a_team_are_counted(team, dashboard):
    team.clusters["sim"].core.submit(JobSpec("ads-ctr", n_epoch=100_000))
    until(lambda: team.clusters["sim"].jobs().jobs, what="the job")
    ada = Person("ada", grants=(Grant(AccessRole.VIEWER),))
    with pytest.raises(DlroverError):
        team.job("sim", "ads-ctr", Asker(ada, Entry.DASHBOARD)).stop()
    dashboard.ask("/jobs")
    answer = dashboard.ask("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    told = read(answer.text)
    phases = [each for each in told["dlrover_jobs"].samples if each.value]
    assert [each.labels["cluster"] for each in phases] == ["sim"]
    assert value(told, "dlrover_job_samples_per_second", cluster="sim", job="ads-ctr") >= 0
    assert value(told, "dlrover_waiting_nodes", cluster="sim", job="ads-ctr") >= 0
    assert value(told, "dlrover_open_proposals", cluster="sim") in {0, 1}
    assert value(told, "dlrover_commands_total", entry="dashboard", action="stop", stage="refused") == 1
    assert 0 <= value(told, "dlrover_poll_age_seconds", cluster="sim") < 600
    assert value(told, "dlrover_open_requests") == 1
    assert value(told, "dlrover_request_seconds_count", handler="PageHandler", status="2xx") == 1


def test_the_ages_of_a_job_are_metrics_where_they_are_known():
    snapshots = {("c", "old"): b.snapshot(), ("c", "ads"): b.snapshot(ages=MeanAges(9, 2.5, 0.25))}
    families = {family.name: family.samples for family in prometheus.of_snapshots(snapshots)}
    ages = {
        name: [(s.labels["job"], s.value) for s in samples]
        for name, samples in families.items()
        if "_age_" in name
    }
    assert ages == {
        "dlrover_gradient_age_updates": [("ads", 2.5)],
        "dlrover_gradient_age_seconds": [("ads", 0.25)],
        "dlrover_row_gradient_age_updates": [],
    }


def test_two_servers_of_one_process_count_apart(team, dashboard):
    with running(team) as other:
        dashboard.ask("/jobs")
        assert "PageHandler" in dashboard.ask("/metrics").text
        assert "PageHandler" not in other.ask("/metrics").text


def test_a_cluster_of_a_thousand_jobs_has_a_bounded_number_of_series(team, dashboard, monkeypatch):
    monkeypatch.setattr(prometheus, "MOST_JOBS", 2)
    for n in range(4):
        team.clusters["sim"].core.submit(JobSpec(f"job-{n}", n_epoch=100_000))
    until(lambda: len(team.clusters["sim"].jobs().jobs) == 4, what="the jobs")
    told = read(dashboard.ask("/metrics").text)
    assert len(told["dlrover_job_samples_per_second"].samples) == 2
    assert sum(each.value for each in told["dlrover_jobs"].samples) == 4
    assert not re.search(r'(person|user|path)="', dashboard.ask("/metrics").text)


def test_prometheus_signs_in_by_its_token_and_people_by_their_session(team, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with with_people(team, tmp_path, ServeSettings(metrics_token_file=str(file))) as dashboard:
        assert dashboard.ask("/metrics").status == 401
        for wrong in (f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer é"):
            header = {"Authorization": wrong.encode().decode("latin-1")}
            assert dashboard.ask("/metrics", headers=header).status == 401, wrong
        assert dashboard.ask("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200
        assert dashboard.ask("/jobs", headers={"Authorization": f"Bearer {TOKEN}"}).status == 302
        vic = Visitor(dashboard)
        vic.sign_in("vic")
        assert vic.ask("/metrics").status == 200


def test_without_a_token_in_the_settings_no_token_is_right(team, tmp_path):
    with with_people(team, tmp_path) as dashboard:
        assert dashboard.ask("/metrics", headers={"Authorization": "Bearer "}).status == 401


def test_a_token_that_could_be_guessed_is_refused(tmp_path):
    (tmp_path / "token").write_text("short")
    with pytest.raises(InvalidValueError, match="24"):
        prometheus.read_token(str(tmp_path / "token"))
