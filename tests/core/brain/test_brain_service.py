"""The brain on jobs of a simulated cluster, asked through the calls of real masters: rounds, leases, trouble."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from support.waiting import LIMIT_S, until

from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.brain.service import Brain, Rhythm
from dlrover_nb.core.client.link.call_ends import CallHandler, CallLink, unpack_answer
from dlrover_nb.core.client.link.calls import CALLS
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError, StaleDecisionError
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.offers import Allotment, JobOffer, NoOffer

pytestmark = pytest.mark.more

FAST = Rhythm(interval_s=0.2, lease_s=LIMIT_S)
SHORT = Rhythm(interval_s=0.2, lease_s=0.5)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'history.db'}"


@pytest.fixture
def cluster():
    made = connect("sim", machines=2, speed=600.0)
    for name in ("ads", "clicks", "feed"):
        made.submit(JobSpec(name, n_epoch=1_000_000, mode=Mode.AUTO, owner="ada"))
    yield made
    made.shutdown(force=True)


@pytest.fixture
def still():
    """Return a cluster whose only job takes no part, for what does not depend on jobs."""
    made = connect("sim", machines=1, speed=1.0)
    made.submit(JobSpec("ads", n_epoch=1_000_000, mode=Mode.MANUAL, owner="ada"))
    yield made
    made.shutdown(force=True)


def brain(cluster, url, by="one", rhythm=FAST, on_round=lambda _: None, **options) -> Brain:
    stores = {"leases": LeaseStore(url), "rounds": RoundStore(url)}
    settings = BrainSettings(**options)
    return Brain(cluster, "sim", settings=settings, rhythm=rhythm, by=by, on_round=on_round, **stores)


def planned(one: Brain, n_job: int = 1):
    """Let a brain plan until so many jobs took part."""
    assert one.renew()
    return until(lambda: (found := one.plan()) and len(found.shares) >= n_job and found, what="offers")


def set_mode(cluster, name: str, mode: Mode) -> None:
    cluster.job(name).link.decide(Decision(Verdict.MODE, "ada", 0.0, mode=mode))


def story(cluster, name: str) -> str:
    return "\n".join(cluster.job(name).snapshot().story)


@pytest.mark.release
def test_every_job_gets_a_quota_with_a_reason_and_keeps_within_it(cluster, url):
    one = brain(cluster, url)
    found = until(
        lambda: (plan := planned(one, 2)) and any(s.quota != Quota() for s in plan.shares) and plan,
        what="need",
    )
    assert {s.job for s in found.shares} | {name for name, _ in found.apart} == {"ads", "clicks", "feed"}
    assert all(not share.refused for share in found.shares)
    limited = next(share for share in found.shares if share.quota != Quota())
    assert f"its share beside other jobs: {limited.quota}" in story(cluster, limited.job)
    assert (found.by, found.term, found.cluster) == ("one", 1, "sim")
    assert RoundStore(url).newest("sim")[0].shares


def test_a_job_of_which_a_user_decides_takes_no_part_and_its_nodes_are_not_free(cluster, url):
    set_mode(cluster, "ads", Mode.MANUAL)
    found = planned(brain(cluster, url))
    assert "a user decides on its plan" in dict(found.apart)["ads"]
    held = cluster.job("ads").snapshot().target.total_cpu
    assert sum(share.meant.total_cpu for share in found.shares) <= cluster.capacity().total_cpu - held + 1e-6


def test_the_history_keeps_the_newest_round_and_those_that_say_something_new(still, url):
    one = brain(still, url)
    one.renew()
    for _ in range(4):
        last = one.plan()
    assert [each.number for each in RoundStore(url).newest("sim", 9)] == [4, 1]
    assert RoundStore(url).newest("sim")[0] == last


def test_what_a_job_is_meant_to_have_is_remembered_while_it_takes_no_part(cluster, url):
    one = brain(cluster, url)
    meant = {share.job: share.meant for share in planned(one).shares}
    (name, *_) = meant
    set_mode(cluster, name, Mode.MANUAL)
    found = one.plan()
    assert name in dict(found.apart)
    assert one._rounds._before[name] == meant[name]
    cluster.job(name).link.stop("ada", "enough")
    until(lambda: one.plan() and name not in one._rounds._before, what="its end")


def test_of_two_brains_one_plans_and_the_other_takes_over_when_it_goes(cluster, url):
    one, two = brain(cluster, url, "one"), brain(cluster, url, "two")
    assert one.renew()
    assert not two.renew()
    assert not two.leads
    one.resign()
    assert not one.leads
    assert two.renew()
    assert planned(two).term == 2


@pytest.mark.release
def test_a_brain_that_wakes_after_its_lease_was_taken_is_refused_by_the_masters(cluster, url):
    one, two = brain(cluster, url, "one"), brain(cluster, url, "two")
    planned(one)
    LeaseStore(url).release("brain of sim", "one")  # it was stopped, and knows nothing of it
    served = {share.job for share in planned(two).shares}
    assert one.leads, "by its own clock"

    def refused() -> list[str]:
        found = one.plan()
        return [share.refused for share in found.shares if share.job in served] if found else []

    assert all(
        "two has taken over" in why for why in until(refused, what="an offer of a job that two served")
    )


def test_one_that_does_not_renew_is_followed_by_another(still, url):
    one, two = brain(still, url, "one", SHORT), brain(still, url, "two")
    assert one.renew()
    until(two.renew, what="the end of the first lease")
    assert not one.renew()
    assert not one.leads


def test_without_its_database_it_stops_planning_and_goes_on_when_it_is_back(still, url, monkeypatch):
    one = brain(still, url, rhythm=SHORT)
    assert one.renew()

    def gone(*_args: object) -> None:
        raise BackendError("the database is away")

    with monkeypatch.context() as away:
        away.setattr(LeaseStore, "take", gone)
        until(lambda: not one.renew(), what="the end of its lease")
        assert not one.leads
    assert one.renew()


@pytest.mark.release_variants("False")
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_round_that_outlasts_its_lease_renews_it_unless_another_has_it(cluster, url, is_taken, monkeypatch):
    one, two = brain(cluster, url, "one", SHORT), brain(cluster, url, "two")
    hand_out = one._rounds._hand_out

    def late(told, term):
        until(lambda: not one.leads, what="the end of its lease")
        if is_taken:
            until(two.renew, what="the lease of another")
        return hand_out(told, term)

    monkeypatch.setattr(one._rounds, "_hand_out", late)
    refused = {share.job: share.refused for share in planned(one).shares}
    assert set(refused.values()) == {"another brain has taken over" if is_taken else ""}


def test_it_plans_at_intervals_until_it_is_stopped_and_gives_the_lease_up(still, url):
    stop, seen = threading.Event(), []
    one = brain(still, url, on_round=seen.append)
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    try:
        until(lambda: len(seen) > 3, what="rounds")
    finally:
        stop.set()
        thread.join()
    assert [each.number for each in seen] == list(range(1, len(seen) + 1))
    assert LeaseStore(url).take("brain of sim", "other", 5.0).holder == "other"


@pytest.mark.release
def test_a_quota_that_nobody_renews_is_forgotten(cluster):
    link = cluster.job("ads").link
    link.allot(Allotment(Quota(5.0, 10_000), "others need more", "one", 3, lasts_s=0.5))
    assert "5 cores and 10000 MiB (one: others need more)" in story(cluster, "ads")
    until(
        lambda: "one does not answer: the job plans without a quota" in story(cluster, "ads"), what="its end"
    )


def test_an_allotment_of_an_earlier_term_is_refused_and_changes_nothing(still):
    link = still.job("ads").link
    link.allot(Allotment(Quota(5.0), "", "two", 2))
    with pytest.raises(StaleDecisionError, match="term 2 or later, got one of term 1 by one: two has taken"):
        link.allot(Allotment(Quota(9.0), "", "one", 1))
    assert "9 cores" not in story(still, "ads")


def test_why_says_who_planned_and_why_there_is_no_more(cluster):
    link = cluster.job("ads").link
    until(lambda: link.snapshot().front is not None, what="an analysis")
    why = "Needs 4 more cores (0 free). feed gets 8 more cores."
    link.allot(Allotment(Quota(5.0), why, "one", 1))
    assert f"one: {why}" in link.explain(None).binding


class Packed(CallLink):
    """The calls and answers of a simulated job as bytes, as a real master gets them."""

    def __init__(self, link) -> None:
        super().__init__()
        self._handler = CallHandler(link)

    def send(self, call):
        return unpack_answer(self._handler.answer_packed(CALLS.pack(call)))


def test_an_offer_is_the_same_over_the_wire(cluster):
    link = cluster.job("ads").link
    far = Packed(link)
    mine = until(lambda: isinstance(found := link.offer(), JobOffer) and found, what="an offer")
    there = until(lambda: isinstance(found := far.offer(), JobOffer) and found, what="an offer")
    moving = {"columns": b"", "n_sample_left": 0, "samples_per_s": 1.0, "cost": 1.0, "sure_share": 1.0}
    assert replace(there, plan=mine.plan, **moving) == replace(mine, **moving)
    assert 0 < there.n_plan <= 65
    far.allot(Allotment(Quota(7.0), "why", "one", 1))
    assert "7 cores (one: why)" in story(cluster, "ads")
    set_mode(cluster, "ads", Mode.SUGGEST)
    assert until(lambda: isinstance(found := far.offer(), JobOffer) and found, what="an offer").asks
    set_mode(cluster, "ads", Mode.MANUAL)
    assert isinstance(far.offer(), NoOffer)


@pytest.mark.release
def test_a_job_that_asks_its_user_proposes_within_what_the_others_leave(cluster, url):
    set_mode(cluster, "ads", Mode.SUGGEST)
    one = brain(cluster, url)

    def limited():
        found = planned(one, 2)
        own = next((share for share in found.shares if share.job == "ads"), None)
        return found if own and own.quota != Quota() else None

    found = until(limited, what="a quota of a job in suggest mode")
    own = next(share for share in found.shares if share.job == "ads")
    held = sum(share.meant.total_cpu for share in found.shares if share.job != "ads")
    assert own.meant.total_cpu + held <= cluster.capacity().total_cpu + 1e-6
    snapshot = cluster.job("ads").snapshot()
    assert f"its share beside other jobs: {own.quota}" in story(cluster, "ads")
    assert snapshot.mode is Mode.SUGGEST
    assert snapshot.decisions[-1].verdict is Verdict.MODE, "nothing was decided since"
