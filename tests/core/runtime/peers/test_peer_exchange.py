"""Copies between nodes over real sockets, each host with shared memory of its own."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import zmq
from support.runtime.node_world import FEATURES, SPEC
from support.waiting import LIMIT_S

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import FlashCheckpoint, memory_image
from dlrover_nb.core.runtime.checkpoints.memory_names import MemoryClaim, sweep_memory
from dlrover_nb.core.runtime.exchange.sealed import SEALS, Seal
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, new_keys
from dlrover_nb.core.runtime.peers import CopyKeeper, CopySender, read_copy, reading
from dlrover_nb.core.structs.job.exchange_spec import Encryption
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.checkpoints import CopySource, MemoryPart
from dlrover_nb.core.structs.wire.copy_messages import KeepCopy
from dlrover_nb.core.structs.wire.node_config import NodeConfig

ARRAYS = {"table": np.random.default_rng(7).random((300_000, 2)), "ids": np.arange(1000)}  # five pieces
PLENTY = 1 << 40
BETWEEN_HOSTS = pytest.mark.parametrize("make", ["tcp://127.0.0.1"], indirect=True)


class Host(SimpleNamespace):
    """One node with its own shared memory."""

    def claim(self):
        return MemoryClaim(SPEC.name, self.config.folder, shm=self.shm)


@pytest.fixture(params=["ipc", "tcp://127.0.0.1"])
def make(request, tmp_path):
    """Make a host; all of them end, and leave nothing."""
    context, keys, made = zmq.Context(), new_keys(), []
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)

    def _make(name, most_bytes=PLENTY):
        shm = tmp_path / name
        shm.mkdir()
        config = NodeConfig(
            name, Role.PS, SPEC, FEATURES, 1.0, 512, "", request.param, str(folder), keys.public, keys.secret
        )
        told, limit = queue.Queue(), [most_bytes]
        pair = JobKeys(keys.public, keys.secret)
        keeper = CopyKeeper(context, config, pair, tell=told.put, most_bytes=lambda: limit[0], shm=shm)
        sender = CopySender(context, config, pair, shm=shm)
        flash = FlashCheckpoint(SPEC.name, folder, name, shm=shm)
        made.append(
            Host(
                name=name, shm=shm, config=config, keeper=keeper, sender=sender, flash=flash, told=told,
                limit=limit, keys=pair, context=context,
            )
        )  # fmt: skip
        return made[-1]

    yield _make
    for host in made:
        host.keeper.close()
        host.sender.close()
        host.flash.close(unlink=True)
        assert list(host.shm.iterdir()) == []
    context.term()


def copied(host, number, arrays=ARRAYS):
    return host.flash.copy(number, {"n": number}, arrays)


def order(owner, part, kept=-1):
    return KeepCopy(owner.name, owner.sender.endpoint, part, kept)


def kept(holder, owner, part, whole=-1):
    holder.keeper.keep(order(owner, part, whole))
    return holder.told.get(timeout=LIMIT_S)


def fetched(reader, host, copy):
    source = CopySource(host.sender.endpoint, copy.memory, copy.sha256)
    return read_copy(reader.context, reader.keys, reader.name, source)


def test_a_copy_has_the_same_bits_and_outlives_its_owner(make):
    owner, holder, third = make("ps-0"), make("ps-1"), make("ps-2")
    part = copied(owner, 3)
    own = read_copy(third.context, third.keys, "ps-2", CopySource(owner.sender.endpoint, part))
    told = kept(holder, owner, part)
    owner.flash.close(unlink=True)
    owner.flash = FlashCheckpoint(SPEC.name, owner.config.folder, "ps-9", shm=owner.shm)
    assert (told.node, told.owner, told.checkpoint, told.error) == ("ps-1", "ps-0", 3, "")
    np.testing.assert_array_equal(fetched(third, holder, told.copy), own)
    with memory_image(told.copy.memory, shm=holder.shm) as image:
        assert image.header == {"n": 3}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(image.arrays[name], array)


def test_the_last_whole_checkpoint_stays_while_the_next_ones_come(make):
    owner, holder, third = make("ps-0"), make("ps-1"), make("ps-2")
    first = kept(holder, owner, copied(owner, 1)).copy
    for number in (2, 3, 4):  # none of them becomes whole
        kept(holder, owner, copied(owner, number), whole=1)
        assert len(fetched(third, holder, first)) == first.memory.n_byte
    last = kept(holder, owner, copied(owner, 5), whole=4).copy
    assert len(fetched(third, holder, last)) == last.memory.n_byte
    with pytest.raises(CheckpointError, match="expected checkpoint 1"):
        fetched(third, holder, first)


def test_copies_of_owners_that_are_gone_are_freed_once_nothing_needs_them(make):
    owner, other, holder = make("ps-0"), make("ps-2"), make("ps-1")
    kept(holder, owner, copied(owner, 1))
    kept(holder, other, copied(other, 2), whole=1)
    assert len(list(holder.shm.iterdir())) == 2
    kept(holder, other, copied(other, 3), whole=2)
    assert {path.name.rpartition(".")[2][:4] for path in holder.shm.iterdir()} == {"ps-2"}


def test_an_order_that_a_restarted_master_repeats_is_answered_with_the_same_copy(make):
    owner, holder = make("ps-0"), make("ps-1")
    part = copied(owner, 1)
    assert kept(holder, owner, part) == kept(holder, owner, part)


def test_a_copy_that_was_overwritten_meanwhile_is_told_and_counts_nothing(make):
    owner, holder = make("ps-0"), make("ps-1")
    part = copied(owner, 1)
    copied(owner, 2)
    copied(owner, 3)
    told = kept(holder, owner, part)
    assert told.copy is None
    assert "expected checkpoint 1" in told.error


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_a_peer_without_memory_for_it_says_so_and_takes_the_next_one(make, most, words):
    owner, holder = make("ps-0"), make("ps-1", most_bytes=most)
    told = kept(holder, owner, copied(owner, 1))
    assert told.copy is None
    assert told.error == words
    assert list(holder.shm.iterdir()) == []
    holder.limit[0] = PLENTY
    assert kept(holder, owner, copied(owner, 2)).copy is not None


def test_a_full_dev_shm_is_told(make, monkeypatch, words):
    owner, holder = make("ps-0"), make("ps-1")
    part = copied(owner, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    assert kept(holder, owner, part).error == words


def test_copies_give_way_to_what_the_node_itself_holds_and_that_is_told(make):
    owner, holder = make("ps-0"), make("ps-1")
    kept(holder, owner, copied(owner, 1))
    kept(holder, owner, copied(owner, 2), whole=1)
    holder.limit[0] = 6 << 20
    holder.keeper.give_way()
    told = holder.told.get(timeout=LIMIT_S)
    assert (told.checkpoint, told.copy) == (1, None)
    assert "is needed" in told.error


def test_an_owner_that_does_not_answer_is_given_up(make, monkeypatch):
    monkeypatch.setattr(reading, "GIVE_UP_AFTER_S", 0.2)
    monkeypatch.setattr(reading, "REPEAT_AFTER_S", 0.05)
    owner, holder = make("ps-0"), make("ps-1")
    part = copied(owner, 1)
    away = replace(order(owner, part), endpoint=owner.sender.endpoint + "9")
    holder.keeper.keep(away)
    assert "sent nothing" in holder.told.get(timeout=LIMIT_S).error


def test_pieces_that_are_lost_are_asked_for_again(make, monkeypatch):
    """Each piece is lost once: in its place comes one that was not asked for."""
    monkeypatch.setattr(reading, "REPEAT_AFTER_S", 0.05)
    owner, holder = make("ps-0"), make("ps-1")
    part, answer, lost = copied(owner, 1), owner.sender._answer, set()

    def lossy(request):
        is_lost = request.start not in lost
        lost.add(request.start)
        return answer(replace(request, start=1, n_byte=1) if is_lost else request)

    monkeypatch.setattr(owner.sender, "_answer", lossy)
    told = kept(holder, owner, part)
    assert len(lost) == 5
    with memory_image(told.copy.memory, shm=holder.shm) as image:
        np.testing.assert_array_equal(image.arrays["table"], ARRAYS["table"])


def test_a_piece_that_was_damaged_is_refused(make, monkeypatch):
    owner, holder = make("ps-0"), make("ps-1")
    part = copied(owner, 1)
    monkeypatch.setattr("dlrover_nb.core.runtime.peers.sending.zlib.crc32", lambda _: 1)
    monkeypatch.setattr("dlrover_nb.core.runtime.peers.reading.zlib", SimpleNamespace(crc32=lambda _: 2))
    assert "damaged on its way" in kept(holder, owner, part).error


def test_a_copy_that_was_changed_in_the_memory_of_its_keeper_is_refused(make):
    owner, holder, third = make("ps-0"), make("ps-1"), make("ps-2")
    copy = kept(holder, owner, copied(owner, 1)).copy
    with (holder.shm / copy.memory.name).open("r+b") as file:
        file.seek(100_000)
        file.write(b"stray")
    with pytest.raises(CheckpointError, match="is damaged: expected SHA-256"):
        fetched(third, holder, copy)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "dlrover-nb-other-0123456789ab-ps-0-a"])
def test_only_the_memory_of_this_run_is_sent(make, name, error_words):
    owner, reader = make("ps-0"), make("ps-1")
    source = CopySource(owner.sender.endpoint, MemoryPart(name, 1, "00" * 16, 64))
    with error_words(CheckpointError):
        read_copy(reader.context, reader.keys, "ps-1", source)


def keeper_of(holder):
    return CopyKeeper(
        holder.context,
        holder.config,
        holder.keys,
        tell=holder.told.put,
        most_bytes=lambda: PLENTY,
        shm=holder.shm,
    )


def test_what_a_killed_keeper_leaves_is_freed_with_the_run(make):
    owner, holder = make("ps-0"), make("ps-1")
    with_claim = holder.claim()
    kept(holder, owner, copied(owner, 1))
    assert sweep_memory(shm=holder.shm) == ()  # the job lives
    left = {path.name: path.read_bytes() for path in holder.shm.iterdir()}
    holder.keeper.close()
    with_claim.close()
    for name, data in left.items():  # as a process leaves it that is killed: nobody holds a lock
        (holder.shm / name).write_bytes(data)
    assert len(sweep_memory(shm=holder.shm)) == len(left)
    holder.keeper = keeper_of(holder)


def test_a_keeper_that_ends_amid_a_copy_leaves_nothing(make, monkeypatch):
    owner, holder = make("ps-0"), make("ps-1")
    part, began, go = copied(owner, 1), threading.Event(), threading.Event()
    answer = owner.sender._answer

    def slow(request):
        began.set()
        go.wait(LIMIT_S)
        return answer(request)

    monkeypatch.setattr(owner.sender, "_answer", slow)
    holder.keeper.keep(order(owner, part))
    assert began.wait(LIMIT_S)
    holder.keeper.close()
    assert list(holder.shm.iterdir()) == []
    go.set()
    assert holder.told.get(timeout=LIMIT_S).error == "the node ends"
    holder.keeper = keeper_of(holder)


@BETWEEN_HOSTS
@pytest.mark.parametrize("encryption", list(Encryption))
def test_pieces_between_hosts_go_in_sessions_alone(make, encryption, monkeypatch):
    owner, holder = make("ps-0"), make("ps-1")
    sealings, answers, seal, answer = [], [], Seal.seal, owner.sender._answer

    def sealed(self, frames):
        sealings.append((type(self), self._sends))
        return seal(self, frames)

    for name in ("SESSION_WITHIN_S", "REPEAT_AFTER_S"):  # what is late on a busy machine is not lost
        monkeypatch.setattr(reading, name, LIMIT_S)
    monkeypatch.setattr(owner.sender._sealed, "_encryption", encryption)
    monkeypatch.setattr(Seal, "seal", sealed)
    monkeypatch.setattr(owner.sender, "_answer", lambda request: answers.append(request) or answer(request))
    told = kept(holder, owner, copied(owner, 1))
    assert not told.error
    assert sealings.count((SEALS[encryption], 2)) == len(answers) == 5
    with memory_image(told.copy.memory, shm=holder.shm) as image:
        np.testing.assert_array_equal(image.arrays["table"], ARRAYS["table"])


@BETWEEN_HOSTS
@pytest.mark.parametrize("fault", ["no session", "closed port", "spoilt pieces"])
def test_pieces_go_under_curve_where_a_session_does_not_work(make, fault, monkeypatch):
    owner, holder = make("ps-0"), make("ps-1")
    monkeypatch.setattr(reading, "REPEAT_AFTER_S", 0.2)
    monkeypatch.setattr(reading, "SESSION_WITHIN_S", 0.1)
    router = owner.sender._sealed
    opening = router.open_session

    def spoilt(peer, frames):
        router.socket.send_multipart([router._used[peer], *frames])
        return True

    match fault:
        case "no session":
            monkeypatch.setattr(owner.sender, "_sealed", None)
        case "closed port":
            monkeypatch.setattr(
                router,
                "open_session",
                lambda peer: replace(opening(peer), endpoint="tcp://127.0.0.1:9"),
            )
        case "spoilt pieces":
            monkeypatch.setattr(router, "send", spoilt)
    told = kept(holder, owner, copied(owner, 1))
    assert not told.error
    with memory_image(told.copy.memory, shm=holder.shm) as image:
        np.testing.assert_array_equal(image.arrays["table"], ARRAYS["table"])
