"""No value becomes an element or an attribute of a page, whoever chose it, and each is shown as it was chosen."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import quote, urlencode

import pytest
from jinja2 import Environment, PackageLoader
from support.conformance.audit import ROW
from support.dashboard.dashboards import (
    ADMIN,
    OPERATOR,
    VIEWER,
    ByName,
    Client,
    csrf_of,
    person,
    running,
    with_people,
)
from support.dashboard.team_clusters import MastersCluster, job_snapshot, master_of
from support.history.history_records import DECISION, FIT, MITIGATION, OUTCOME, PROPOSAL, SPEC
from support.history.history_records import ROW as SERIES_ROW
from support.jobs import builders as b
from support.waiting import until

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.cluster.waits import QueueWait
from dlrover_nb.core.structs.decisions.commands import Action, Command, Entry, SecondRequest, Stage
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.decisions.people import AccessRole
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import NodeErrors
from dlrover_nb.core.structs.views.alerts import AboutJob, Alert, AlertKind
from dlrover_nb.core.structs.views.brain import BrainRound, JobShare, QueuedJob
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team

HOSTILE = """"'><x-evil x-evil=1><script>x</script><img src=x>&lt;"""  # as long as a saved view's name may be
AT_S = b.START_S
PLACE = {"cluster": HOSTILE, "name": HOSTILE}
RUN, OTHER_RUN = (f"clicks@{at_s:.3f}" for at_s in (AT_S, AT_S + 50))


class Parts(HTMLParser):
    """The elements of a page, and all text that it shows or holds in an attribute."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts += [value for _, value in attrs if value]

    def handle_data(self, data):
        self.texts.append(data)


def checked(page: str) -> Parts:
    """Return the parts of a page, of which none is of a value, and no script or handler stands in it."""
    parts = Parts(page)
    for tag, attributes in parts.elements:
        assert "x-evil" not in {tag, *attributes}, (tag, attributes)
        assert tag != "img", attributes
        assert tag != "script" or attributes.get("src", "").startswith("/static/"), attributes
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert not (attributes.get("href") or "").lower().startswith(("javascript:", "data:")), attributes
    return parts


def hostile_master():
    """Return a master whose every text is hostile, with a proposal, an action and a node that waits."""
    workers = tuple(b.node(f"{HOSTILE}-{i}", Role.WORKER, memory=1.0) for i in range(2))
    base = job_snapshot()
    master = master_of(
        owner=HOSTILE,
        message=HOSTILE,
        story=(f"t+0 s  {HOSTILE}",),
        nodes=(*workers, replace(b.node("ps-0", Role.PS, memory=1.0), waits_for=HOSTILE)),
        proposals=tuple(replace(each, why=HOSTILE, note=HOSTILE) for each in base.proposals),
        mitigations=(
            replace(b.mitigation("m0", status="rejected"), why=HOSTILE, note=HOSTILE),
            replace(b.mitigation(), why=HOSTILE),
        ),
        stragglers=(replace(b.straggler(), node=HOSTILE, rule=HOSTILE),),
        node_errors=(NodeErrors(HOSTILE, Role.PS, 2, 0, 600.0),),
        decisions=(Decision(Verdict.REJECT, HOSTILE, AT_S + 290, "p1", why=HOSTILE, id="d1"),),
    )
    object.__setattr__(master.state.spec, "name", HOSTILE)  # which no job can have: a record refuses it
    return master


class HostileCluster(MastersCluster):
    """A cluster with a queue, and a line of a job that has failed."""

    def __init__(self) -> None:
        super().__init__(hostile_master())
        line = summarize(hostile_master().snapshot())
        self.further = (replace(line, name=f"{HOSTILE}2", phase=JobPhase.FAILED),)

    def queue_waits(self):
        return (QueueWait(HOSTILE, HOSTILE, HOSTILE, HOSTILE),)


def remembered(team: Team) -> None:
    """Fill the database of a team: alerts, requests, the audit, the brain's rounds, and two runs."""
    about = AboutJob(HOSTILE, HOSTILE, "", HOSTILE)
    for kind in (AlertKind.OOM, AlertKind.PROPOSAL, AlertKind.STALL):
        alert = team.alerts.begin(Alert(about, kind, AT_S, HOSTILE, "p2"), 0.0)
        if kind is AlertKind.STALL:
            team.alerts.end(alert, AT_S + 60)
    command = Command(Action.STOP, HOSTILE, why=HOSTILE)
    request = SecondRequest(
        "", command, HOSTILE, Entry.API, AT_S, AT_S + 9e6, HOSTILE, cost_per_hour=1.0, cluster=HOSTILE
    )
    team.requests.add(request)
    fields = dict.fromkeys(("person", "job", "answer", "subject", "why", "first", "mitigation"), HOSTILE)
    team.audit.append(replace(ROW, key="", stage=Stage.REFUSED, **fields))
    plans = {"plan_before": "1", "plan_after": HOSTILE}
    team.audit.append(replace(ROW, key="", at_s=AT_S + 900, stage=Stage.DONE, **fields, **plans))
    share = JobShare(HOSTILE, HOSTILE, b.NOW_PLAN, b.BETTER_PLAN, Quota(20.0, binds=True), HOSTILE)
    queue = (QueuedJob(HOSTILE, HOSTILE, b.NOW_PLAN, None, QueuePlace(1, 1, HOSTILE)),)
    team.rounds.add(BrainRound(HOSTILE, HOSTILE, 1, 1, AT_S + 990, (share,), queue=queue))
    for at_s in (AT_S, AT_S + 50):
        team.history.remember("clicks", at_s, replace(SPEC, owner=HOSTILE))
        for record in (
            replace(PROPOSAL, created_at_s=at_s + 20, why=HOSTILE),
            replace(DECISION, at_s=at_s + 21, by=HOSTILE, why=HOSTILE),
            replace(OUTCOME, applied_at_s=at_s + 22),
            replace(MITIGATION, created_at_s=at_s + 30, why=HOSTILE, note=HOSTILE),
            replace(FIT, at_s=at_s + 40),
            replace(SERIES_ROW, at_s=at_s + 60),
            PhaseChanged(at_s + 130, JobPhase.FAILED, HOSTILE),
        ):
            team.history.remember("clicks", at_s, record)


@contextmanager
def hostile_team(folder):
    clusters = {
        HOSTILE: WatchedCluster(HostileCluster(), period_s=0.05),
        "b": WatchedCluster(MastersCluster()),
    }
    team = Team(clusters, lambda: AT_S + 1000, url=f"sqlite:///{folder / 'team.sqlite'}")
    try:
        for cluster in clusters.values():
            until(lambda cluster=cluster: cluster.jobs().heard_s is not None, what="the list of jobs")
        remembered(team)
        yield team
    finally:
        team.close()


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    with hostile_team(tmp_path_factory.mktemp("hostile")) as team:
        yield team


@pytest.fixture(scope="module")
def server(team):
    """Give a server whose one unnamed visitor may do everything, and has a hostile name too."""
    people = (person(HOSTILE, AccessRole.ADMIN), ADMIN, OPERATOR, VIEWER)
    with running(team, ByName(people, unnamed=HOSTILE)) as server:
        yield server


def approve(name: str) -> str:
    return f"approve/{quote(f'{HOSTILE}~{HOSTILE}~{name}', safe='~')}"


EVERYWHERE = urlencode(dict.fromkeys(("q", "owner", "job", "person", "model"), HOSTILE))
SHOWN = {
    "the list of jobs": "jobs",
    "a filtered list of jobs": f"jobs?{EVERYWHERE}&{urlencode({'state': HOSTILE, 'sort': HOSTILE})}",
    "a job": f"job?{urlencode(PLACE)}",
    "the end of a job": f"confirm?{urlencode(PLACE | {'action': 'stop'})}",
    "proposals": "proposals",
    "alerts": "alerts",
    "alerts of a job": f"alerts?{EVERYWHERE}",
    "waiting jobs": "waiting",
    "a cluster": "cluster",
    "decisions": "decisions",
    "filtered decisions": f"decisions?{EVERYWHERE}",
    "runs": "history",
    "filtered runs": f"history?{EVERYWHERE}&{urlencode({'state': HOSTILE})}",
    "a run": f"history?{urlencode({'run': RUN, 'at': '30', 'span': '600'})}",
    "a moment of a run": f"history/at?{urlencode({'run': RUN, 'at': '30'})}",
    "two runs": f"history?{urlencode([('run', RUN), ('run', OTHER_RUN)])}",
    "a proposal to decide": approve("p2"),
    "an action to decide": approve("m1"),
    "a request to decide": "approve/r1",
}


@pytest.mark.parametrize("path", SHOWN.values(), ids=SHOWN.keys())
def test_a_page_shows_each_value_and_takes_none_for_html(server, path):
    answer = Client(server.url).get(path)
    assert answer.status == 200
    parts = checked(answer.text)
    assert any(HOSTILE in text for text in parts.texts)
    for entity in ("&quot;", "&#34;", "&#39;", "&#x27;", "&lt;x-evil", "&amp;"):
        assert not any(entity in text for text in parts.texts), "it is escaped twice"


REFUSED = {
    "no such job": f"job?{urlencode(PLACE | {'name': f'{HOSTILE}3'})}",
    "no such cluster": f"jobs?{urlencode({'cluster': f'{HOSTILE}3'})}",
    "no such run": f"history?{urlencode({'run': f'{HOSTILE}3'})}",
    "no such moment": f"history?{urlencode({'run': RUN, 'at': HOSTILE})}",
    "no such span": f"history?{urlencode({'run': RUN, 'span': HOSTILE})}",
    "no such page of runs": f"history?{urlencode({'page': HOSTILE})}",
    "no such row": f"decisions?{urlencode({'before': HOSTILE})}",
    "no such time": f"decisions?{urlencode({'since': HOSTILE})}",
    "no such entry": f"decisions?{urlencode({'entry': HOSTILE})}",
    "nothing to decide": f"approve/{quote(HOSTILE, safe='')}",
    "no such page": quote(HOSTILE, safe=""),
}


@pytest.mark.parametrize("path", REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_takes_no_part_of_the_address_for_html(server, path):
    answer = Client(server.url).get(path)
    assert answer.status in {400, 404}
    checked(answer.text)


def sent(server, path, **fields):
    form = {"csrf": csrf_of(HOSTILE), **fields}
    return Client(server.url).post_form(path, form)


FORMS = {
    "a command": ("do", {"job": HOSTILE, "cluster": HOSTILE, "action": "accept", "proposal": HOSTILE}),
    "an order": (
        "do",
        {"job": HOSTILE, "cluster": HOSTILE, "action": "mitigate", "backup": HOSTILE, "reason": HOSTILE},
    ),
    "many answers": ("batch", {"pick": HOSTILE, "action": "accept"}),
    "a second person": ("second", {"request": HOSTILE, "action": "approve"}),
    "a view": ("views", {"name": HOSTILE, "cluster": HOSTILE, "view": urlencode({"q": HOSTILE})}),
}


@pytest.mark.parametrize(("path", "fields"), FORMS.values(), ids=FORMS.keys())
def test_what_became_of_a_form_takes_no_field_for_html(server, path, fields):
    answer = sent(server, path, **fields)
    assert answer.status == 303
    parts = checked(Client(server.url).get(answer.headers["Location"]).text)
    assert any(HOSTILE in text for text in parts.texts)


def test_what_cannot_be_kept_for_the_next_page_is_told_without_becoming_html(server, team, monkeypatch):
    def away(_):
        raise BackendError("the database is away")

    monkeypatch.setattr(team.notes, "keep", away)
    answer = sent(server, "do", job=HOSTILE, cluster=HOSTILE, action="accept", proposal=HOSTILE)
    assert answer.status == 200
    assert any(HOSTILE in text for text in checked(answer.text).texts)


def test_the_form_to_sign_in_holds_the_name_that_was_tried_and_takes_it_for_no_html(team, tmp_path):
    with with_people(team, tmp_path) as dashboard:
        page = dashboard.ask("/sign-in")
        fields = {each.get("name"): each.get("value") for _, each in Parts(page.text).elements}
        form = {"csrf": fields["csrf"], "name": HOSTILE, "password": HOSTILE, "next": HOSTILE}
        answer = dashboard.ask("/sign-in", form=form, cookies=page.cookies)
    assert answer.status == 403
    values = [attributes.get("value") for _, attributes in checked(answer.text).elements]
    assert HOSTILE in values


def test_the_name_of_a_hidden_field_is_escaped_as_its_value_is():
    templates = Environment(loader=PackageLoader("dlrover_nb.dashboard"), autoescape=True)
    template = templates.from_string('{% from "forms.html" import hidden %}{{ hidden(fields) }}')
    [(tag, attributes)] = checked(template.render(fields={HOSTILE: HOSTILE})).elements
    assert (tag, attributes["name"], attributes["value"]) == ("input", HOSTILE, HOSTILE)
