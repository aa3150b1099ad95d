"""What the head's module decides without a Ray: records, remains, tokens."""

import os
import subprocess
import sys

import psutil
import pytest
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.ray import head, patient_start
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.disk.paths import state_folder


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def record_file():
    return state_folder() / "ray-head.json"


def record_of(process, folder):
    started = psutil.Process(process.pid).create_time()
    return head.HeadRecord("127.0.0.1:1", process.pid, started, str(folder), 2.0)


@pytest.fixture
def sleeper():
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
    )
    yield process
    process.kill()
    process.wait()


def test_there_is_no_head_without_a_record_or_with_garbage_for_one(state):
    assert head.running_head() is None
    record_file().write_text("{")
    assert head.running_head() is None
    assert head.stop_head() is False


def test_a_record_whose_process_is_another_by_now_is_no_head(state, sleeper, tmp_path):
    record = record_of(sleeper, tmp_path / "f")
    record_file().write_bytes(to_json(head.HeadRecord("a", sleeper.pid, record.started_at_s - 99, "/x", 2)))
    assert head.running_head() is None
    record_file().write_bytes(to_json(record))
    assert head.running_head() == record


def test_stopping_ends_the_session_and_nothing_else(state, sleeper, tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    try:
        folder = tmp_path / "head"
        folder.mkdir()
        record_file().write_bytes(to_json(record_of(sleeper, folder)))
        assert head.stop_head() is True
        assert sleeper.wait(timeout=LIMIT_S) != 0
        assert other.poll() is None
        assert not folder.exists()
        assert head.running_head() is None
        assert head.stop_head() is False
    finally:
        other.kill()
        other.wait()


def test_an_address_file_that_ray_has_opened_and_not_written_yet_is_waited_for(
    sleeper, tmp_path, monkeypatch
):
    (tmp_path / "ray").mkdir()
    log, address_file = tmp_path / "head.log", tmp_path / "ray" / "ray_current_cluster"
    log.write_text("Ray runtime started.")
    address_file.touch()
    monkeypatch.setattr(head.time, "sleep", lambda _: address_file.write_text("127.0.0.1:1\n"))
    assert head._wait_for_address(sleeper.pid, tmp_path, log) == "127.0.0.1:1"


def test_the_token_is_made_once_and_private(state):
    path = head.token_file()
    token = path.read_text()
    assert len(token) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert head.token_file().read_text() == token
    assert head.ray_environment()["RAY_AUTH_TOKEN_PATH"] == str(path)


def test_nothing_of_an_outer_ray_is_inherited(state, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    environment = head._process_environment()
    assert "RAY_ADDRESS" not in environment
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["PATH"] == os.environ["PATH"]


def test_a_late_raylet_is_waited_for_while_it_lives(monkeypatch):
    monkeypatch.setattr(patient_start, "POLL_S", 0.0)
    answers = iter([RuntimeError("not yet"), RuntimeError("not yet"), {"node": 1}])

    def get_node(address, node):
        assert (address, node) == ("gcs", "id")
        if isinstance(answer := next(answers), RuntimeError):
            raise answer
        return answer

    assert patient_start.until_registered(get_node, lambda: True)("gcs", node="id") == {"node": 1}


def test_a_raylet_that_is_gone_is_told_by_ray(monkeypatch):
    monkeypatch.setattr(patient_start, "POLL_S", 0.0)
    lives = iter([True, True, False])

    def get_node():
        raise RuntimeError("not yet")

    with pytest.raises(RuntimeError, match="not yet"):
        patient_start.until_registered(get_node, lambda: next(lives))()
    assert next(lives, None) is None


def test_the_raylet_alone_gets_the_port_of_the_dashboard_agent():
    started = []

    def start(command, kind, *, quiet):
        started.append((kind, command))
        return quiet

    wrapped = patient_start.with_listen_port(
        start, ["start", "--head", "--dashboard-agent-listen-port=20001"]
    )
    assert wrapped(["raylet", "--x"], "raylet", quiet=True) is True
    assert wrapped(["gcs"], "gcs_server", quiet=False) is False
    port = "--dashboard_agent_listen_port=20001"
    assert started == [("raylet", ["raylet", "--x", port]), ("gcs_server", ["gcs"])]


def test_ports_are_free_and_given_to_nobody_who_asks_for_any():
    ports = head._free_ports(4)
    assert len(set(ports)) == 4
    assert set(ports) <= set(head.OWN_PORTS)


class Child:
    """A child of this process, as psutil shows it."""

    def __init__(self, name, status="sleeping"):
        self._name, self._status = name, status

    def name(self):
        if not self._name:
            raise psutil.NoSuchProcess(1)
        return self._name

    def status(self):
        return self._status


@pytest.mark.parametrize(
    ("children", "lives"),
    [
        ([], False),
        ([Child("gcs_server")], False),
        ([Child("raylet", psutil.STATUS_ZOMBIE)], False),
        ([Child(""), Child("raylet")], True),
    ],
    ids=["none", "others", "ended", "beside one that ended while looked at"],
)
def test_a_raylet_lives_while_it_is_a_running_child(monkeypatch, children, lives):
    monkeypatch.setattr(psutil.Process, "children", lambda _: children)
    assert patient_start.raylet_lives() is lives
