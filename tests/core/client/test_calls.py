"""What a client and a master of different releases must agree on."""

from __future__ import annotations

import re

import msgspec
import pytest
from support.jobs import builders

from dlrover_nb.core.client.link.calls import ANSWERS, CALLS, AskSeries, AskSnapshot, SnapshotReply
from dlrover_nb.core.errors import WireError

WRITTEN_BY_0_1 = {
    "AskSnapshot", "AskModel", "AskSummary", "AskSeries", "AskLogs", "AskWeigh", "AskExplain", "Decide", "Choose",
    "Stop", "Picture", "Unchanged", "JobSummary", "SeriesChunk", "Lines", "Weights", "Explanation", "Decision",
    "Parcel", "Done", "NotBegun", "Failed",
}  # fmt: skip


def test_each_call_and_answer_keeps_the_name_that_release_0_1_writes():
    assert written_by(CALLS) | written_by(ANSWERS) >= WRITTEN_BY_0_1


def written_by(union):
    """Return the names of a union's records, which a refusal lists."""
    with pytest.raises(WireError) as refused:
        union.unpack(msgspec.msgpack.encode(("Unheard", {})))
    return set(re.findall(r"'(\w+)'", str(refused.value).partition("]")[0]))


def test_a_call_of_release_0_1_is_understood():
    assert CALLS.unpack(msgspec.msgpack.encode(("AskSnapshot", {"seen": "a-1"}))) == AskSnapshot("a-1")
    assert CALLS.unpack(msgspec.msgpack.encode(("AskSeries", {"cursor": 7}))) == AskSeries(7)


def test_a_snapshot_is_sent_by_the_name_that_clients_of_release_0_1_know():
    name, body = msgspec.msgpack.decode(ANSWERS.pack(SnapshotReply(builders.snapshot(), "a-1")))
    assert (name, body["tag"]) == ("Picture", "a-1")
