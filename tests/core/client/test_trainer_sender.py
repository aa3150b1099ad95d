"""A job's progress, sent to Kubeflow Trainer: at intervals, with retries, over HTTPS, and never an error."""

import logging
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import builders
from support.operators.status_server_played import PATH, status_server
from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.client.trainer import status_sender
from dlrover_nb.core.client.trainer.status_format import read_status
from dlrover_nb.core.client.trainer.status_sender import (
    EVERY_S,
    LAST_TRIES,
    LONGEST_S,
    REPEAT_S,
    TrainerSender,
    sender_of,
    status_of,
)
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.training.reported import TrainerStatus
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.views.snapshot import Evaluation

AT_S = 1767225600.0


def at(n_done, n_total=1000, **changes):
    return builders.snapshot(train=ShardCounts(n_sample_done=n_done, n_sample_total=n_total), **changes)


class Trainer:
    """What the other side got, and what it answers; with a clock that the test sets."""

    def __init__(self):
        self.got, self.why, self.at_s = [], "", 0.0
        self.n_try = 0
        self.sender = TrainerSender(self.post, lambda: self.at_s)

    def post(self, body):
        self.n_try += 1
        if not self.why:
            self.got.append(read_status(body))
        return self.why


@pytest.fixture
def trainer(monkeypatch):
    monkeypatch.setattr(status_sender, "LAST_WAIT_S", 0.0)
    return Trainer()


# what is told


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.sampled_from(JobPhase))
def test_the_percentage_is_that_of_the_rows_and_100_is_success(n_done, n_total, phase):
    told = status_of(at(min(n_done, n_total), n_total, phase=phase), AT_S)
    if phase is JobPhase.SUCCEEDED:
        assert (told.percentage, told.remaining_s) == (100, 0)
    elif n_total == 0:
        assert told.percentage is None
    else:
        assert told.percentage == min(100 * min(n_done, n_total) // n_total, 99)


@given(st.floats(0, 1e12), st.integers(0, 10**12))
def test_whatever_the_speed_is_a_trainjob_can_hold_it(samples_per_s, n_total):
    told = status_of(at(0, n_total, samples_per_s=samples_per_s, loss=-1e-300), AT_S)
    assert read_status(status_sender.write_status(told)) == told


def test_the_metrics_say_what_is_known():
    told = status_of(
        at(250, samples_per_s=50.0, loss=0.123456789, evaluation=Evaluation(0.75, 0.5, 10)), AT_S
    )
    assert (told.at_s, told.percentage, told.remaining_s) == (AT_S, 25, 15)
    plan = builders.NOW_PLAN
    assert dict(told.metrics) == {
        "loss": "0.123457",
        "samples_per_s": "50",
        "workers": str(plan.worker.count),
        "ps": str(plan.ps.count),
        "auc": "0.75",
        "log_loss": "0.5",
    }


def test_what_the_program_says_itself_is_passed_on():
    reported = TrainerStatus(builders.START_S + 290, 40, 100, (("loss", "own"), ("bleu", "31")))
    told = status_of(at(250, reported=reported), AT_S)
    assert (told.percentage, told.remaining_s) == (40, 90)
    assert dict(told.metrics)["loss"] == "own"
    assert dict(told.metrics)["bleu"] == "31"


# when


def test_news_are_sent_at_intervals_and_old_ones_now_and_then(trainer):
    sent = []
    for second in range(200):
        trainer.at_s = float(second)
        trainer.sender.offer(at(min(second, 45)))
        sent += [trainer.at_s] * (len(trainer.got) - len(sent))
    assert sent[0] == 0.0
    gaps = [b - a for a, b in pairwise(sent)]
    assert min(gaps) >= EVERY_S
    assert max(gaps) <= REPEAT_S
    assert gaps[-1] == REPEAT_S, "nothing was new"
    assert trainer.got[-1].percentage == 4


@pytest.mark.more
def test_a_server_that_is_away_is_asked_less_often_and_gets_the_newest(trainer, caplog):
    trainer.why = "ConnectionRefusedError: refused"
    for second in range(3000):
        trainer.at_s = float(second)
        trainer.sender.offer(at(second, 10_000))
    assert trainer.n_try < 3000 / LONGEST_S + 8
    assert [each.message for each in caplog.records].count(caplog.records[0].message) == 1, "said once"
    assert "refused" in caplog.records[0].message
    trainer.why, trainer.at_s = "", 3000.0 + LONGEST_S
    trainer.sender.offer(at(3000, 10_000))
    assert [each.percentage for each in trainer.got] == [30]


def test_the_end_is_sent_at_once_and_tried_again(trainer):
    trainer.sender.offer(at(10))
    trainer.sender.offer(at(1000, phase=JobPhase.SUCCEEDED))
    assert [each.percentage for each in trainer.got] == [1, 100]
    other = Trainer()
    other.why = "away"
    other.sender.offer(at(1000, phase=JobPhase.SUCCEEDED))
    assert other.n_try == LAST_TRIES


def test_the_end_is_tried_again_after_a_second_and_once_more():
    time = VirtualTime()
    sender = as_shipped("dlrover_nb.core.client.trainer.status_sender", time)
    tried_s = []

    def post(_):
        tried_s.append(time.now_s())
        return "away"

    sender.TrainerSender(post, time.now_s).offer(at(1000, phase=JobPhase.SUCCEEDED))
    assert tried_s == [0.0, 1.0, 2.0]


# where


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"KUBEFLOW_TRAINER_SERVER_URL": "https://h"},
        {"KUBEFLOW_TRAINER_SERVER_TOKEN": "/t"},
        {"KUBEFLOW_TRAINER_SERVER_URL": "ftp://h", "KUBEFLOW_TRAINER_SERVER_TOKEN": "/t"},
        {"KUBEFLOW_TRAINER_SERVER_URL": "https://h:port", "KUBEFLOW_TRAINER_SERVER_TOKEN": "/t"},
        {"KUBEFLOW_TRAINER_SERVER_URL": "https://[::1", "KUBEFLOW_TRAINER_SERVER_TOKEN": "/t"},
        {"KUBEFLOW_TRAINER_SERVER_URL": "nonsense", "KUBEFLOW_TRAINER_SERVER_TOKEN": "/t"},
    ],
)
def test_without_an_address_and_a_token_nothing_is_sent(env, caplog):
    assert sender_of(env) is None
    assert bool(caplog.records) == (len(env) == 2)


needs_openssl = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl is needed to make a certificate"
)


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setattr(status_sender, "LAST_WAIT_S", 0.0)
    with status_server(tmp_path) as (server, env):
        yield server, env


@needs_openssl
def test_a_status_arrives_over_https(served):
    server, env = served
    sender_of(env).offer(at(250, samples_per_s=50.0, loss=0.5))
    (told,) = server.statuses
    assert (told["progressPercentage"], told["estimatedRemainingSeconds"]) == (25, 15)
    assert {"name": "loss", "value": "0.5"} in told["metrics"]


@needs_openssl
def test_the_token_is_read_anew_and_faults_pass(served):
    server, env = served
    sender = sender_of(env)
    server.token = "another"
    server.faults = [500]
    Path(env["KUBEFLOW_TRAINER_SERVER_TOKEN"]).write_text("another")
    sender.offer(at(1000, phase=JobPhase.SUCCEEDED))
    assert [each["progressPercentage"] for each in server.statuses] == [100]


@needs_openssl
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"TOKEN": "/nowhere"}, "FileNotFoundError"),
        ({"CA_CERT": "/nowhere"}, "FileNotFoundError"),
        ({"CA_CERT": ""}, "certificate verify failed"),
        ({"URL": PATH.replace("digits", "other")}, "HTTP 404: Not found"),
        ({"URL": ""}, "timed out|refused"),
    ],
    ids=["no token", "no certificate", "a certificate of a stranger", "another job", "nobody there"],
)
def test_what_goes_wrong_is_logged_and_no_error(served, changed, words, caplog):
    server, env = served
    for name, value in changed.items():
        key = f"KUBEFLOW_TRAINER_SERVER_{name}"
        address = f"https://127.0.0.1:{server.server_port}{value}" if value else "https://127.0.0.1:1/"
        env = {**env, key: address if name == "URL" else value}
    with caplog.at_level(logging.WARNING):
        sender_of(env).offer(at(250))
    assert server.statuses == []
    assert caplog.records
    assert re.search(words, caplog.records[0].message)
