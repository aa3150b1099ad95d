"""The client without a job, and what it needs of an image."""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from torch.utils.data import DataLoader

from dlrover_nb import client
from dlrover_nb.client.link import Link
from dlrover_nb.client.shards import Feed, Source
from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.structs.wire.services import CALL_NAMES, ServiceCall, ShardWanted

FOLDER = Path(client.__file__).parent


@given(
    n_row=st.integers(0, 60),
    size=st.integers(1, 20),
    batch=st.integers(1, 9),
    epochs=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_alone_a_program_trains_all_rows(n_row, size, batch, epochs, shuffle):
    options = {"shuffle": shuffle, "epochs": epochs, "shard_rows": size}
    seen = Counter(
        (shard.epoch, row)
        for shard in client.shards(n_row, **options)
        for rows in shard.batches(batch)
        for row in rows
    )
    assert seen == Counter((epoch, row) for epoch in range(epochs) for row in range(n_row))


@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=20))
def test_rows_that_are_drawn_ahead_are_done_in_their_order(sizes):
    feed = Feed(Source(50, shard_rows=8))
    drawn = list(feed.draw())
    left = 50
    for size in sizes:
        n_row = min(size, left)
        feed.done(n_row)
        left -= n_row
        n_done = [shard.n_done for shard in drawn]
        assert sum(n_done) == 50 - left
        whole = [done == len(shard) for done, shard in zip(n_done, drawn, strict=True)]
        assert whole == sorted(whole, reverse=True)
    with pytest.raises(ValueError, match="more than were drawn"):
        feed.done(left + 1)


def test_a_batch_counts_as_done_once_though_the_program_says_it_too(error_words):
    shard = next(client.shards(25))
    told = []
    for rows in shard.batches(lambda: 10):
        shard.done(len(rows) - 1)
        told.append((len(rows), shard.n_done))
    assert told == [(10, 9), (10, 19), (5, 24)]
    assert shard.n_done == 25
    with error_words(ValueError):
        shard.done(1)


def test_loaders_of_torch_read_all_rows_each_time():
    sampler = client.ShardSampler(25, shard_rows=10)
    data = client.ShardDataset(list, 25, batch_size=4, shard_rows=10)
    for _ in range(2):
        for number in client.passes():
            assert number == 0
            batches = []
            for batch in DataLoader(range(25), batch_size=8, sampler=sampler):
                batches.append(len(batch))
                sampler.done(len(batch))
            assert batches == [8, 8, 8, 1]
            rows = []
            for batch, ticket in DataLoader(data, batch_size=None):
                rows += batch
                data.done(ticket)
            assert rows == list(range(25))


def test_a_loader_that_never_says_what_is_done_is_told(monkeypatch, error_words):
    monkeypatch.setattr(sys.modules[Feed.__module__], "MOST_DRAWN", 3)
    with error_words(client.ServiceError):
        list(client.ShardSampler(100, shard_rows=10))


def test_alone_nobody_asks_for_anything():
    assert not client.in_job()
    assert not client.should_stop()
    assert not client.is_changing()
    assert client.batch_size(32) == 32
    client.acknowledge()
    client.report(10)
    assert client.checkpoint.rows() == ""
    client.checkpoint.restore("")
    with pytest.raises(client.ServiceError, match=r"shards\(n_row\)"):
        next(client.shards())
    with pytest.raises(AttributeError, match="no attribute 'Shards'"):
        client.Shards  # noqa: B018 - it raises


@for_each("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_an_old_python_reads_it(path):
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_a_copy_of_the_folder_needs_nothing_else(tmp_path):
    (tmp_path / "services").symlink_to(FOLDER)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport services\n"
        "print([len(shard) for shard in services.shards(7, shard_rows=4)])\n"
        "theirs = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(theirs - set(sys.stdlib_module_names) - {'services', '__main__', '__mp_main__'}))"
    )
    done = subprocess.run(
        (sys.executable, "-I", "-S", "-c", program), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[4, 3]\n[]\n"


def test_a_master_without_services_is_named(tmp_path, monkeypatch, error_words):
    answers = [(503, b"starting"), (404, b"ask at /call")]
    (tmp_path / "master").write_text("http://127.0.0.1:9/v1/report")
    link = Link("worker-0", "t", str(tmp_path / "master"))
    monkeypatch.setattr(link, "_post", lambda _body: answers.pop(0))
    with error_words(client.ServiceError):
        link.call("state", {})
    monkeypatch.undo()
    with pytest.raises(client.ServiceError, match="does not answer: ConnectionRefusedError"):
        link.call("state", {}, tries=2)


def test_what_it_asks_is_json_that_the_master_knows():
    calls = Tagged(ServiceCall, written=CALL_NAMES)
    caller = {"node": "worker-0", "slot": "0", "program": "1-ab"}
    body = json.dumps(["shard", {"caller": caller, "holding": [[1, 2]], "done": []}]).encode()
    call = calls.from_line(body)
    assert isinstance(call, ShardWanted)
    assert (call.caller.owner, call.holding) == ("worker-0/0/1-ab", ((1, 2),))
