"""`audit` lists, verifies and exports what was asked for on this machine; no cluster is needed."""

from __future__ import annotations

import csv
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest
from IPython.core.error import UsageError
from support.cases import for_each
from support.conformance.audit import ROW

from dlrover_nb import cli
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.structs.decisions.commands import Stage

N_ROW = 4


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which two commands were asked for; the file of its history."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    store = AuditStore()
    for key, job in (("k1", "clicks"), ("k2", "views")):
        row = replace(ROW, key=key, job=job, why="=1+1", predicted_samples_per_s=120.0, low=100.0, high=140.0)
        store.claim(row)
        store.append(replace(row, stage=Stage.DONE, answer="d1"))
    store.close()
    return Path(platformdirs.user_data_dir("dlrover-nb")) / "history.db"


def forge(history: Path, statement: str) -> None:
    connection = sqlite3.connect(history)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.usefixtures("asked")
def test_commands_are_listed_newest_first_and_those_of_one_job_alone(shell):
    listed = shell.run_line_magic("dlrover", "audit")
    assert [each.asked.job for each in listed] == ["views", "clicks"]
    html = listed.view().html()
    assert "120 samples/s (100-140)" in html
    assert "done: d1" in html
    assert [each.seq for each in shell.run_line_magic("dlrover", "audit list --job clicks")] == [1]
    assert len(shell.run_line_magic("dlrover", "audit list -n 1")) == 1
    assert len(shell.run_line_magic("dlrover", "audit list --since 2100-01-01")) == 0


@pytest.mark.usefixtures("asked")
def test_the_command_line_prints_rows_for_programs(capsys):
    assert cli.main(["audit", "list", "--json"]) == cli.ExitCode.DONE
    rows = json.loads(capsys.readouterr().out)
    assert [row["stage"] for row in (rows["commands"] if isinstance(rows, dict) else rows)] == [
        "done",
        "done",
    ]


@pytest.mark.usefixtures("asked")
def test_a_sound_audit_is_said_to_be_and_its_hash_is_found_again(capsys):
    assert cli.main(["audit", "verify"]) == cli.ExitCode.DONE
    said = capsys.readouterr().out
    assert f"{N_ROW} rows are as they were written" in said
    digest = said.split()[-1]
    assert cli.main(["audit", "verify", "--anchor", digest]) == cli.ExitCode.DONE


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("update audit set record = replace(record, 'ada', 'bob') where seq = 2", "row 2 does not match"),
        (
            "delete from audit where seq = 2",
            "row 2 must stand before row 3, but is not there: it was removed",
        ),
        ("delete from audit where seq = 4", "rows at the end were removed or added"),
        ("update audit set person = 'bob' where seq = 3", "row 3 has a person in its column"),
    ],
)
def test_a_forged_audit_exits_with_one_and_a_sentence_for_each_fault(asked, capsys, statement, sentence):
    forge(asked, statement)
    assert cli.main(["audit", "verify"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert sentence in line


def test_rows_that_change_places_are_each_told(asked, capsys, words):
    forge(asked, "update audit set seq = 9 where seq = 1")
    forge(asked, "update audit set seq = 1 where seq = 2")
    forge(asked, "update audit set seq = 2 where seq = 9")
    assert cli.main(["audit", "verify"]) == 1
    said = capsys.readouterr().err
    assert said == words


@pytest.mark.usefixtures("asked")
def test_a_chain_without_the_hash_that_was_written_down_exits_with_one(capsys, words):
    assert cli.main(["audit", "verify", "--anchor", "f" * 64]) == 1
    assert capsys.readouterr().err == words


@pytest.mark.usefixtures("asked")
def test_the_audit_is_exported_in_both_formats_and_no_file_is_overwritten(shell, tmp_path, error_words):
    shell.run_line_magic("dlrover", "audit export -o audit.jsonl")
    *rows, head = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]
    assert head["head"]["hash"] == rows[-1]["hash"]
    shell.run_line_magic("dlrover", "audit export --format csv --job clicks -o audit.csv")
    with (tmp_path / "audit.csv").open(newline="") as file:
        head, *lines, _ = csv.reader(file)
    assert [line[head.index("why")] for line in lines] == ["'=1+1", "'=1+1"]
    with error_words(UsageError):
        shell.run_line_magic("dlrover", "audit export -o audit.jsonl")


@for_each(
    ("line", "message"),
    [
        ("audit check", "unknown part of audit 'check'; choose from list, verify, export"),
        ("audit verify --job clicks", "--job belongs to `--audit list`, got it with `--audit verify`"),
        ("audit list --anchor abc", "--anchor belongs to `--audit verify`"),
        ("audit export", "audit export needs a file to write"),
        ("audit list --since soon", "expected an age such as 24h"),
        ("audit list -n 0", "number of lines must be >= 1"),
        ("audit verify --anchor abc", "anchor must be a hash or its first 12 digits"),
    ],
)
def test_a_mistake_is_one_line(shell, line, message):
    with pytest.raises(UsageError) as caught:
        shell.run_line_magic("dlrover", line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_where_nothing_was_asked_reading_makes_no_file(shell, tmp_path, monkeypatch, error_words):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    assert len(shell.run_line_magic("dlrover", "audit")) == 0
    assert "empty" in str(shell.run_line_magic("dlrover", "audit verify"))
    with error_words(UsageError):
        shell.run_line_magic("dlrover", "audit export -o audit.jsonl")
    assert not (tmp_path / "none").exists()
