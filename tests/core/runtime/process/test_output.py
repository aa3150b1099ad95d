from __future__ import annotations

import logging
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.virtual_time import ManualClock
from support.waiting import LIMIT_S

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.process import output
from dlrover_nb.core.runtime.process.output import LineFormatter, Output, Tail, head, output_path, read_head
from dlrover_nb.core.structs.plan.resources import Role

SECRET = "s" * 40
words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp")), min_size=1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "worker-0.err"


def tail(path, **changes):
    return Tail(path, "worker-0", **({"stream": "stderr", "secrets": (SECRET,)} | changes))


def write(path, text, mode="ab"):
    with path.open(mode) as file:
        file.write(text.encode() if isinstance(text, str) else text)


def texts(lines):
    return [line.text for line in lines]


@given(lines=st.lists(words, max_size=30), cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_however_a_text_comes_in_pieces_each_line_is_read_once_in_order(tmp_path_factory, lines, cuts):
    path = tmp_path_factory.mktemp("tail") / "out"
    data = "".join(f"{line}\n" for line in lines).encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader, found = tail(path, stream="stdout", secrets=()), []
    for start, end in pairwise(edges):
        write(path, data[start:end])
        found += reader.take(0.0)
    assert texts(found) == [line for line in lines if line.strip() and not line.startswith(output._RAY_MARKS)]
    assert reader.n_byte == len(data)


@given(st.floats(0, 4e9), st.sampled_from(["INFO", "stdout", "CRITICAL"]), words)
def test_a_head_reads_back_as_it_was_written(at_s, level, text):
    told = read_head(f"{head(at_s, level)}{text}")
    assert told is not None
    assert told[0] == pytest.approx(at_s, abs=6e-4)
    assert told[1:] == (level, text)


@for_each("text", ["", "plain", "2026-02-31T00:00:00.000Z INFO x", "2026-11-21 19:00:00 INFO x"])
def test_what_has_no_head_is_no_head(text):
    assert read_head(text) is None


def test_every_line_of_a_logged_traceback_has_its_time_and_level(path):
    try:
        int("bad")
    except ValueError:
        record = logging.LogRecord("user", logging.ERROR, "f", 1, "it %s", ("failed",), sys.exc_info())
    write(path, LineFormatter().format(record) + "\n")
    lines = tail(path).take(1e12)
    assert {line.level for line in lines} == {"ERROR"}
    assert all(line.at_s == pytest.approx(record.created, abs=1e-3) for line in lines)
    assert texts(lines)[0] == "user: it failed"
    assert texts(lines)[-1].startswith("ValueError: invalid literal")


def test_a_print_has_the_time_of_the_files_last_change_and_its_stream_as_level(path):
    write(path, f"{head(5.0, 'INFO')}not logged, printed\n")
    os.utime(path, (40.0, 40.0))
    (line,) = tail(path, stream="stdout").take(99.0)
    assert (line.at_s, line.level, line.node) == (40.0, "stdout", "worker-0")


def test_a_line_without_an_end_waits_for_it_or_for_the_last_look(path):
    reader = tail(path)
    write(path, "half")
    assert reader.take(0.0) == []
    assert reader.n_byte == 0
    assert texts(reader.take(0.0, is_last=True)) == ["half"]


def test_the_jobs_key_is_never_told_nor_colours_nor_what_a_bar_overwrote(path):
    write(path, f"key={SECRET}!\n\x1b[31mred\x1b[0m\x07\n 1%\r99%\r\n:actor_name:RayNode\n")
    assert texts(tail(path).take(0.0)) == ["key=***redacted***!", "red", "99%"]


def test_of_a_flood_the_newest_lines_are_told_and_the_rest_is_counted(path, words):
    every = [f"line {n:07d}" for n in range(9_000)]
    write(path, "\n".join(every) + "\n")
    told, *lines = tail(path).take(0.0)
    assert texts(lines) == every[-output.MOST_LINES :]
    n_left_out = (len(every) - output.MOST_LINES) * (len(every[0]) + 1)
    assert told.text.startswith(f"{n_left_out} ")
    assert told.text == words
    assert told.level == "WARNING"


def test_a_line_longer_than_a_batch_is_cut_and_reading_goes_on(path):
    reader = tail(path)
    write(path, "x" * (3 * output.MOST_BYTES))
    found = reader.take(0.0)
    write(path, "\nafter\n")
    found += reader.take(0.0)
    assert any("more letters" in text for text in texts(found))
    assert texts(found)[-1] == "after"
    assert reader.n_byte == path.stat().st_size


def test_a_file_that_is_not_there_or_was_cut_does_no_harm(path):
    reader = tail(path, at=500)
    assert reader.take(0.0) == []
    write(path, "new\n")
    assert texts(reader.take(0.0)) == ["new"]


def test_a_long_file_is_emptied_once_it_was_read(path, monkeypatch):
    monkeypatch.setattr(output, "LONG_BYTES", 10)
    reader = tail(path)
    write(path, "some words\n")
    reader.cut()
    assert path.stat().st_size > 0
    reader.take(0.0)
    reader.cut()
    assert (path.stat().st_size, reader.n_byte) == (0, 0)


def test_what_is_read_is_passed_on_to_where_it_went_before(path, tmp_path):
    with (tmp_path / "before").open("wb") as before:
        write(path, "one\ntwo\n")
        tail(path, pass_on=before.fileno()).take(0.0)
    assert (tmp_path / "before").read_text() == "one\ntwo\n"


def test_two_streams_make_one_batch_in_the_order_of_time(tmp_path):
    clock = ManualClock(100.0)
    out, err = (tail(tmp_path / name, stream=name) for name in ("stdout", "stderr"))
    both = Output((out, err), clock)
    assert both.take() is None
    write(tmp_path / "stderr", f"{head(50.0, 'ERROR')}late\n{head(20.0, 'INFO')}early\n")
    write(tmp_path / "stdout", "between\n")
    os.utime(tmp_path / "stdout", (30.0, 30.0))
    taken = both.take()
    assert texts(taken.lines) == ["early", "between", "late"]
    assert taken.n_byte == ((tmp_path / "stdout").stat().st_size, (tmp_path / "stderr").stat().st_size)


PROGRAM = """
import contextlib, ctypes, logging, os, sys
from dataclasses import replace
from pathlib import Path
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.runtime.process.output import captured
from dlrover_nb.core.structs.wire.node_config import NodeConfig
config = from_json(Path(sys.argv[1]).read_bytes(), NodeConfig)
with captured(config, SystemClock()) as output:
    print("printed")
    logging.getLogger("user").warning("logged")
    with contextlib.suppress(OSError):
        os.write(2, b"written in C\\n")
    taken = output.take()
    print(*(line.level + " " + line.text for line in taken.lines), sep="|") if taken else None
    if sys.argv[2:] == ["crash"]:
        ctypes.string_at(0)
print("afterwards")
"""


@pytest.fixture
def run_program(tmp_path):
    from support.runtime.node_world import World  # noqa: PLC0415 - it loads torch

    def run(*arguments):
        with World() as world:
            config = tmp_path / "config.json"
            config.write_bytes(to_json(world.config("w0", Role.WORKER)).replace(
                str(world.folder).encode(), str(tmp_path).encode()
            ))  # fmt: skip
            return subprocess.run(
                [sys.executable, "-c", PROGRAM, str(config), *arguments],
                capture_output=True, text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip

    return run


def test_prints_logging_and_writes_in_c_of_a_process_are_read_and_reach_its_parent_too(run_program, tmp_path):
    done = run_program()
    assert done.returncode == 0, done.stderr
    told = output_path(tmp_path, "w0", "stdout").read_text().splitlines()
    assert set(told[1].split("|")) == {"stdout printed", "WARNING user: logged", "stderr written in C"}
    assert done.stdout.splitlines() == ["printed", "afterwards"]
    assert "written in C" in done.stderr


def test_a_crash_leaves_its_last_words_in_the_file(run_program, tmp_path):
    assert run_program("crash").returncode < 0
    found = Tail(output_path(tmp_path, "w0", "stderr"), "w0", "stderr").take(0.0, is_last=True)
    assert any(text.startswith("Fatal Python error: Segmentation fault") for text in texts(found))


def test_a_full_disk_costs_the_words_and_nothing_else(run_program, tmp_path):
    for stream in output.STREAMS:
        path = output_path(tmp_path, "w0", stream)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to("/dev/full")
    done = run_program()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "afterwards\n"
