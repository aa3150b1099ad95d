"""Each line of a program is read once, in order, whatever is written and whoever reads."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from dlrover_nb.core.backends.programs import program_log
from dlrover_nb.core.backends.programs.program_log import ProgramLog

PIECES = st.lists(
    st.one_of(st.text("ab é\r\n", max_size=12), st.just("look"), st.just("next master")), max_size=30
)


def read(log, now_ns):
    lines = []
    while new := log.take(now_ns):
        lines += new
    return lines


@given(PIECES)
@example(["look", "\n\n\n"])  # nothing new at first
@example(["\r", "look", "\n", "look"])  # one end of a line
def test_every_line_is_read_once_also_by_the_next_master(pieces):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "worker-0.log"
        log, found, written = ProgramLog("worker-0", path, 0), [], ""
        for at_ns, piece in enumerate(pieces, 1):
            if piece == "look":
                found += log.take(at_ns * 1000)
            elif piece == "next master":
                log = ProgramLog("worker-0", path, 0, since_ns=found[-1].at_ns if found else None)
            else:
                written += piece
                with path.open("a", newline="") as file:
                    file.write(piece)
        while lines := log.take(10**6, is_last=True):
            found += lines
        assert [line.text for line in found] == written.splitlines()
        assert all(a.at_ns < b.at_ns for a, b in pairwise(found))
        for n, line in enumerate(found):  # a master that saved less reads the same lines, with the same times
            again = read(ProgramLog("worker-0", path, 0, since_ns=line.at_ns), 10**9)
            assert again == found[n + 1 :]


def test_steps_of_a_progress_bar_are_read_before_it_is_full(tmp_path):
    path = tmp_path / "worker-0.log"
    path.write_text("cpu\n\r0it [00:00, ?it/s]\r12it [00:03,  4.00it/s]\r15it [00:0", newline="")
    log = ProgramLog("worker-0", path, 0)
    assert [line.text for line in log.take(10**9)][-2:] == ["0it [00:00, ?it/s]", "12it [00:03,  4.00it/s]"]


def test_a_long_file_is_emptied_once_it_is_read_and_the_program_writes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(program_log, "LONG_BYTES", 100)
    monkeypatch.setattr(program_log, "MOST_BYTES", 64)
    path = tmp_path / "worker-0.log"
    log, found = ProgramLog("worker-0", path, 0), []
    with path.open("a") as file:
        for n in range(40):
            file.write(f"line {n} {'x' * (n % 7) * 20}\n")
            file.flush()
            if n % 3 == 0:
                found += read(log, n)
        found += read(log, 99)
    assert [line.text.split()[1] for line in found if line.text.startswith("line")] == [
        str(n) for n in range(40)
    ]
    assert path.stat().st_size < 200
    log.remove()
    assert not list(tmp_path.iterdir())


def test_a_program_that_writes_faster_than_it_is_read_is_read_on_near_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(program_log, "MOST_BEHIND_BYTES", 4000)
    monkeypatch.setattr(program_log, "MOST_BYTES", 1000)
    path = tmp_path / "worker-0.log"
    path.write_text("".join(f"line {n}\n" for n in range(100)))
    log = ProgramLog("worker-0", path, 0)
    found = log.take(10)
    with path.open("a") as file:
        file.write("".join(f"line {n}\n" for n in range(100, 3_000)))
    found += log.take(1000)
    saved_ns = found[-1].at_ns
    found += (later := read(log, 10**6))
    texts = [line.text for line in found]
    assert texts[:100] == [f"line {n}" for n in range(100)]
    assert "left out" in texts[100]
    assert {text.split()[0] for text in texts} == {"line", "dlrover-nb:"}  # no parts of lines
    assert texts[-1] == "line 2999"
    assert len(texts) < 250
    assert all(a.at_ns < b.at_ns for a, b in pairwise(found))
    assert read(ProgramLog("worker-0", path, 0, since_ns=saved_ns), 10**9) == later
    assert len(read(ProgramLog("worker-0", path, 0, since_ns=0), 10**9)) < 300  # nor by the next master


def test_the_rest_of_a_program_that_ended_is_read_on_near_the_end_too(tmp_path, monkeypatch):
    monkeypatch.setattr(program_log, "MOST_BEHIND_BYTES", 4000)
    monkeypatch.setattr(program_log, "MOST_BYTES", 1000)
    path = tmp_path / "worker-0.log"
    path.write_text("x\n" * 100_000 + "the error")
    log, found = ProgramLog("worker-0", path, 0), []
    while lines := log.take(10**6, is_last=True):
        found += lines
    assert found[-1].text == "the error"
    assert len(found) < 1_000
