from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.rundir import locate, node_logs
from dlrover_nb.core.rundir.job_file import JOB
from dlrover_nb.core.rundir.node_logs import NodeLogs, newest, read_logs
from dlrover_nb.core.runtime.process.output import output_path
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.training.failures import ProgramError
from dlrover_nb.core.structs.wire.messages import LinesWritten

if TYPE_CHECKING:
    from pathlib import Path


def line(text: str, *, node: str = "worker-0", at_s: float = 1.0, level: str = "INFO") -> LogLine:
    return LogLine(at_s, node, level, text)


def told(*texts: str, node: str = "worker-0", n_byte: tuple[int, int] = (0, 0)) -> LinesWritten:
    return LinesWritten(node, tuple(line(text, node=node) for text in texts), n_byte)


def texts(lines: tuple[LogLine, ...]) -> list[str]:
    return [each.text for each in lines]


def write(folder: Path, text: str, *, node: str = "worker-0", stream: str = "stderr") -> None:
    path = output_path(folder, node, stream)
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def run(folder: Path) -> Path:
    """Return a folder that looks like one of a job."""
    (folder / JOB).touch()
    return folder


def test_the_newest_lines_of_a_node_or_of_all_come_oldest_first(tmp_path: Path) -> None:
    kept = NodeLogs(tmp_path)
    kept.add(told("a", "b", "c"))
    kept.add(
        LinesWritten("ps-0", (line("x", node="ps-0", at_s=0.5), line("y", node="ps-0", at_s=2.0)), (0, 0))
    )
    assert texts(kept.lines("worker-0", 2)) == ["b", "c"]
    assert texts(kept.lines(None, 4)) == ["a", "b", "c", "y"]


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.floats(0, 9), max_size=9).map(sorted), min_size=1),
    st.integers(1, 30),
)
def test_all_nodes_together_are_sorted_by_time_and_the_newest_of_all(
    times: dict[str, list[float]], n: int
) -> None:
    lines = {node: [line("", node=node, at_s=at_s) for at_s in own] for node, own in times.items()}
    found = [each.at_s for each in newest(lines, None, n)]
    assert found == sorted(at_s for own in times.values() for at_s in own)[-n:]


def test_a_node_that_is_not_known_is_refused_with_the_nearest_name(tmp_path: Path, error_words) -> None:
    kept = NodeLogs(tmp_path)
    kept.add(told("a", node="worker-10"))
    with error_words(NotFoundError):
        kept.lines("worker-1", 5)
    with pytest.raises(NotFoundError, match="choose from ps-0, worker-10"):
        kept.lines("xyz", 5, there=["ps-0"])
    assert kept.lines("ps-0", 5, there=["ps-0"]) == ()
    with pytest.raises(InvalidValueError, match="number of lines"):
        kept.lines(None, 0)


def test_the_last_words_of_a_dead_node_are_read_where_it_was_told_last_and_not_twice(tmp_path: Path) -> None:
    write(tmp_path, "told\n")
    kept = NodeLogs(tmp_path)
    kept.add(told("told", n_byte=(0, 5)))
    write(tmp_path, "untold\nhalf a line")
    kept.finish_node("worker-0", 9.0)
    kept.finish_node("worker-0", 9.0)
    kept.add(told("untold", n_byte=(0, 12)))  # it was still on its way
    assert texts(kept.lines("worker-0", 9)) == ["told", "untold", "half a line"]


def test_the_last_error_is_no_information_from_a_healthy_life(tmp_path: Path) -> None:
    kept = NodeLogs(tmp_path)
    kept.add(LinesWritten("ps-0", (line("ps: bad", level="ERROR"), line("serves 0 rows")), (0, 0)))
    kept.add(told("it is up"))
    assert kept.last_error("ps-0") == ProgramError("bad")
    assert kept.last_error("ps-0", since_s=float("inf")) is None
    assert kept.last_error("worker-0") is kept.last_error("worker-9") is None


def test_of_a_crash_the_line_that_names_it_counts_as_the_last_error(tmp_path: Path) -> None:
    kept = NodeLogs(tmp_path)
    line = "Fatal Python error: Segmentation fault"
    write(tmp_path, f"{line}\nCurrent thread 0x1:\n  File x\n")
    kept.finish_node("worker-0", 1.0)
    assert kept.last_error("worker-0") == ProgramError(line)


def test_a_master_that_comes_back_has_the_lines_and_goes_on_where_they_end(tmp_path: Path) -> None:
    first = NodeLogs(tmp_path)
    write(tmp_path, "told\nuntold\n")
    first.add(told("told", n_byte=(0, 5)))
    second = NodeLogs(tmp_path)
    second.reload(["worker-0"])
    assert second.lines("worker-0", 9) == first.lines("worker-0", 9)
    second.finish_node("worker-0", 9.0)
    assert texts(second.lines("worker-0", 9)) == ["told", "untold"]
    assert (
        texts(read_logs(run(tmp_path))) == texts(read_logs(run(tmp_path), "worker-0")) == ["told", "untold"]
    )
    with pytest.raises(NotFoundError, match="no node 'ps-0'"):
        read_logs(run(tmp_path), "ps-0")


def test_a_node_is_found_by_its_name_without_that_of_the_job() -> None:
    lines = {name: [line("up", node=name)] for name in ("ads-ps-1", "ads-worker-1", "ads-worker-11")}
    assert newest(lines, "worker-1", 9) == newest(lines, "ads-worker-1", 9) == (lines["ads-worker-1"][0],)
    with pytest.raises(NotFoundError, match="no node '1'"):
        newest(lines, "1", 9)  # it may be a ps or a worker


def test_a_job_that_left_no_logs_or_never_was_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_words
) -> None:
    monkeypatch.setattr(locate, "jobs_folder", lambda: tmp_path)
    for name in ("ads-20260101T000000-001", "ads-20260102T000000-001", "ads-big-20260103T000000-001"):
        (tmp_path / name).mkdir()
    NodeLogs(tmp_path / "ads-20260102T000000-001").add(told("newest"))
    assert texts(read_logs("ads")) == ["newest"]
    with error_words(NotFoundError):
        read_logs("ads-big")
    with error_words(NotFoundError):
        read_logs("nowhere")


def test_files_are_turned_over_and_only_the_newest_dead_nodes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_logs, "FILE_BYTES", 1000)
    kept = NodeLogs(tmp_path)
    for n in range(100):
        kept.add(told(f"line {n} " + "x" * 100))
    sizes = [(tmp_path / "logs" / name).stat().st_size for name in ("worker-0.log", "worker-0.log.1")]
    assert max(sizes) < 1200
    for n in range(node_logs.N_GONE + 5):
        kept.add(told("x", node=f"worker-{n}"))
        kept.finish_node(f"worker-{n}", 1.0)
    with pytest.raises(NotFoundError):
        kept.lines("worker-4", 1)
    assert texts(kept.lines("worker-5", 1)) == ["x"]
    assert {path.name for path in (tmp_path / "logs").glob("*.log")} == {
        f"worker-{n}.log" for n in range(5, node_logs.N_GONE + 5)
    }


def test_no_more_lines_of_a_node_are_kept_than_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_logs, "N_LINE", 10)
    kept = NodeLogs(tmp_path)
    kept.add(told(*map(str, range(25))))
    assert texts(kept.lines("worker-0", 99)) == [str(n) for n in range(15, 25)]


def test_a_full_disk_costs_the_files_is_said_once_and_ends_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, words
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    kept, append = NodeLogs(tmp_path), node_logs._append
    monkeypatch.setattr(node_logs, "_append", full)
    kept.add(told("a"))
    kept.add(told("b"))
    assert texts(kept.lines("worker-0", 9)) == ["a", "b"]
    assert [record.message for record in caplog.records] == [words]
    monkeypatch.setattr(node_logs, "_append", append)
    kept.add(told("c"))
    assert texts(read_logs(run(tmp_path))) == ["c"]


def test_a_file_that_a_crash_has_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    kept = NodeLogs(tmp_path)
    kept.add(told("whole", n_byte=(3, 4)))
    with (tmp_path / "logs" / "worker-0.log").open("a") as file:
        file.write("2026-11-21T1")
    (tmp_path / "logs" / "worker-0.read").write_text("not numbers")
    assert texts(read_logs(run(tmp_path))) == ["whole"]


def test_at_the_end_even_a_node_that_told_nothing_is_read(tmp_path: Path) -> None:
    write(tmp_path, "short life\n", stream="stdout")
    write(tmp_path, "")
    kept = NodeLogs(tmp_path)
    kept.close(1.0)
    assert texts(kept.lines("worker-0", 9)) == ["short life"]


def test_all_nodes_that_lived_to_the_end_are_kept_however_many(tmp_path: Path) -> None:
    kept, n_node = NodeLogs(tmp_path), 2 * node_logs.N_GONE
    for n in range(n_node):
        kept.add(told("x", node=f"worker-{n}"))
    kept.close(1.0)
    assert len(kept.lines(None, 999)) == len(read_logs(run(tmp_path), n_line=999)) == n_node


@pytest.mark.parametrize("file_bytes", [1 << 20, 1])  # the second one turns the file over before each batch
def test_lines_that_a_killed_master_could_not_note_are_kept_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_bytes: int
) -> None:
    monkeypatch.setattr(node_logs, "FILE_BYTES", file_bytes)
    killed = NodeLogs(tmp_path)
    killed.add(told("a", "b", n_byte=(2, 2)))
    note = tmp_path / node_logs.FOLDER / "worker-0.read"
    before = note.read_text()
    killed.add(told("c", n_byte=(3, 3)))
    note.write_text(before)  # it was killed in between

    following = NodeLogs(tmp_path)
    following.cut()
    following.reload(["worker-0"])
    assert following.position("worker-0") == (2, 2)
    following.add(told("c", "d", n_byte=(4, 4)))
    last = NodeLogs(tmp_path)
    last.cut()
    last.reload(["worker-0"])
    assert last.position("worker-0") == (4, 4)
    for each in (following, last):
        assert texts(each.lines("worker-0", 9)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("name", ["../job", "a/../../../x", "/etc/x", "..", ".", "", "a\0b", "n" * 201])
def test_a_forged_name_of_a_node_reads_and_writes_no_file_elsewhere(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "a" / "run"
    run.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    logs = NodeLogs(run)
    for _ in range(3):
        logs.add(told("x", node=name))
        logs.finish_node(name, 1.0)
    logs.close(2.0)
    assert sorted(tmp_path.rglob("*")) == before
    assert not logs.knows(name)
    assert len(caplog.records) == 1


def test_a_node_sends_no_lines_of_another(tmp_path: Path) -> None:
    logs = NodeLogs(tmp_path)
    logs.add(LinesWritten("worker-0", (line("forged", node="ps-0"),), (0, 7)))
    assert [each.node for each in logs.lines(None, 9)] == ["worker-0"]
