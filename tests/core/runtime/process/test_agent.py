import pytest
import zmq
from support.cases import for_each
from support.runtime.node_world import FEATURES, SPEC
from support.virtual_time import ManualClock
from support.waiting import LIMIT_S

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.runtime.exchange.sockets import HIGH_WATER, bind_router, new_keys
from dlrover_nb.core.runtime.exchange.wire import decode
from dlrover_nb.core.runtime.process.agent import LEAVING_ALONE_S, Agent, read_endpoint
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import Left, ShardAsked
from dlrover_nb.core.structs.wire.node_config import NodeConfig


@pytest.mark.parametrize("text", ["tcp://10.1.2.3:7070", "tcp://[fd00::7]:7070\n", "  tcp://master:1 "])
def test_a_file_names_the_endpoint_of_the_master(tmp_path, text):
    (tmp_path / "master").write_text(text)
    assert read_endpoint(str(tmp_path / "master")) == text.strip()


@for_each(
    "data", [b"", b"\n", b"nowhere", b"tcp://a", b"tcp://a:1 tcp://b:2", b"ipc:///tmp/x", b"tcp://\xff:1"]
)
def test_a_file_with_anything_else_names_none(tmp_path, data):
    (tmp_path / "master").write_bytes(data)
    assert read_endpoint(str(tmp_path / "master")) == ""


def test_without_a_file_there_is_none(tmp_path):
    assert read_endpoint("") == ""
    assert read_endpoint(str(tmp_path / "master")) == ""


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def lonely(context, tmp_path, clock):
    """Return an agent whose master is not there yet."""
    config = NodeConfig(
        "w0", Role.WORKER, SPEC, FEATURES, 1.0, 512, f"ipc://{tmp_path}/run/m", "ipc", str(tmp_path), "", ""
    )
    return Agent(context, config, clock, TimeAccounting(clock))


def test_a_node_that_leaves_does_not_wait_long_for_another_master(lonely, clock, error_words):
    clock.advance(LEAVING_ALONE_S + 1)
    lonely.tick()
    lonely.leave()
    with error_words(BackendError):
        lonely.tick()
    lonely.close(linger_s=0.0)


def test_what_was_said_to_nobody_leaves_with_the_node_in_its_order(context, lonely, tmp_path):
    lonely.send(ShardAsked("w0"))
    lonely.send(Left("w0"))
    router, _ = bind_router(context, "ipc", tmp_path / "run" / "m", new_keys())
    lonely.close(linger_s=LIMIT_S)
    heard = []
    with router:
        for _ in range(2):
            assert router.poll(1000 * LIMIT_S)
            heard.append(decode(router.recv_multipart()[1:])[0])
    assert heard == [ShardAsked("w0"), Left("w0")]


def test_a_node_does_not_keep_more_than_a_thousand_words_for_a_master_that_is_away(lonely, error_words):
    for _ in range(HIGH_WATER):
        lonely.send(ShardAsked("w0"))
    with error_words(BackendError):
        lonely.send(ShardAsked("w0"))
    lonely.close(linger_s=0.0)
