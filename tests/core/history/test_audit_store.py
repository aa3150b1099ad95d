"""The audit in a database, on SQLite and on PostgreSQL: the suite of all audits, processes, crashes, searches."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from sqlalchemy import delete, update
from support.conformance.audit import ROW, AuditConformance, rows_of

from dlrover_nb.core.commands.audit_export import ExportFormat, exported
from dlrover_nb.core.history.audit.chain import hash_of, verified
from dlrover_nb.core.history.audit.trail import AuditStore
from dlrover_nb.core.history.database import Database
from dlrover_nb.core.history.tables import audit as table
from dlrover_nb.core.structs.decisions.audited import AuditFilter
from dlrover_nb.core.structs.decisions.commands import Action, Entry, Stage

N_PROCESS = 4
PROGRAM = """
import sys
from dataclasses import replace
from support.conformance.audit import ROW, rows_of
from dlrover_nb.core.history.audit.trail import AuditStore
url, name, what = sys.argv[1:]
store = AuditStore(url)
print("ready", flush=True)
sys.stdin.readline()
if what == "claim":
    print("lost" if store.claim(replace(ROW, person=name)) else "won", flush=True)
else:
    for row in rows_of(100_000):
        store.append(replace(row, person=name))
        print(row.key, flush=True)
"""


@pytest.fixture
def start(url):
    """Return a function that starts another process at the audit, and lets it begin when told to."""
    started = []
    AuditStore(url).close()  # its tables

    def begin(name: str, what: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{PROGRAM}", url, name, what],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def go(process):
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()


class TestAuditStore(AuditConformance):
    @pytest.fixture
    def open_audit(self, url):
        opened = []

        def again():
            opened.append(AuditStore(url))
            return opened[-1]

        yield again
        for store in opened:
            store.close()


@pytest.fixture
def store(url):
    found = AuditStore(url)
    yield found
    found.close()


@pytest.fixture
def change(url):
    """Return a function that does to the table what nobody should."""
    database = Database(url)

    def run(*statements):
        with database.writing() as connection:
            for statement in statements:
                connection.execute(statement)

    yield run
    database.close()


@pytest.mark.release_variants("sqlite")
@pytest.mark.more
def test_of_many_processes_that_claim_one_key_exactly_one_wins(start, store):
    processes = [start(f"p{i}", "claim") for i in range(N_PROCESS)]
    for process in processes:
        go(process)
    said = [process.communicate()[0].strip() for process in processes]
    (row,) = store.rows()
    assert [f"p{i}" for i, each in enumerate(said) if each == "won"] == [row.row.person]


@pytest.mark.release_variants("sqlite")
@pytest.mark.more
def test_a_process_that_is_killed_while_it_writes_leaves_a_sound_chain(start, store):
    process = start("p0", "append")
    go(process)
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    n_said = 20 + len(process.communicate()[0].splitlines())
    check, wrong = verified(store)
    assert wrong == ()
    assert n_said <= check.seq <= n_said + 1
    assert store.append(ROW).seq == check.seq + 1
    assert verified(store)[1] == ()


def test_a_row_that_is_changed_in_the_database_is_found(store, change, words):
    for row in rows_of(3):
        store.append(row)
    record = [*store.rows()][1].row
    forged = json.dumps({**json.loads(json.dumps({"why": "x"})), "person": record.person})
    change(update(table).where(table.c.seq == 2).values(record=forged))
    (said,) = verified(store)[1]
    assert said == words


def test_a_column_that_hides_a_row_from_searches_is_found(store, change, words):
    for row in rows_of(3):
        store.append(row)
    change(update(table).where(table.c.seq == 2).values(job="other"))
    assert verified(store)[1] == (words,)


def test_a_row_that_is_removed_from_the_database_is_found(store, change, words):
    for row in rows_of(3):
        store.append(row)
    change(delete(table).where(table.c.seq == 2))
    (said,) = verified(store)[1]
    assert said == words


def test_rows_that_change_places_in_the_database_are_found(store, change):
    for row in rows_of(3):
        store.append(row)
    to = {1: 9, 2: 1, 9: 2}
    change(*(update(table).where(table.c.seq == old).values(seq=new) for old, new in to.items()))
    assert verified(store)[1]


def test_both_rows_of_a_command_are_one_line(store, words):
    store.claim(ROW)
    store.claim(replace(ROW, key="k2", at_s=ROW.at_s + 1))
    store.append(replace(ROW, stage=Stage.DONE, answer="d7", at_s=ROW.at_s + 2))
    newest, oldest = store.search(AuditFilter(), n_command=10)
    assert (newest.seq, newest.ended) == (2, None)
    assert newest.outcome == words
    assert (oldest.seq, oldest.asked, oldest.outcome) == (1, ROW, "done: d7")


def test_an_outcome_whose_asking_was_not_written_is_a_line_of_its_own(store):
    store.append(replace(ROW, stage=Stage.DONE, answer="d7"))
    (line,) = store.search(AuditFilter(), n_command=10)
    assert (line.outcome, line.ended) == ("done: d7", None)


@pytest.fixture
def several(store):
    """An audit of five commands: one done, one refused by the job, one by rights, one waiting, one open."""
    ended = {"k1": (Stage.DONE, "d1"), "k2": (Stage.REFUSED, "stale")}
    for i, (key, action, person) in enumerate(
        [("k1", Action.ACCEPT, "ada"), ("k2", Action.SCALE, "bob"), ("k3", Action.SCALE, "ada")]
    ):
        row = replace(ROW, key=key, action=action, person=person, at_s=ROW.at_s + i)
        store.claim(row)
        if key in ended:
            store.append(replace(row, stage=ended[key][0], answer=ended[key][1]))
    store.append(replace(ROW, key="", stage=Stage.REFUSED, person="eve", job="other", entry=Entry.API))
    store.append(replace(ROW, key="", stage=Stage.WAITING, person="bob", at_s=ROW.at_s + 60))
    return store


@pytest.mark.more
@pytest.mark.parametrize(
    ("where", "seqs"),
    [
        (AuditFilter(), [7, 6, 5, 3, 1]),
        (AuditFilter(person="ada"), [5, 1]),
        (AuditFilter(person="bob", action=Action.SCALE), [3]),
        (AuditFilter(job="other"), [6]),
        (AuditFilter(entry=Entry.API), [6]),
        (AuditFilter(stage=Stage.ASKED), [5]),
        (AuditFilter(stage=Stage.DONE), [1]),
        (AuditFilter(stage=Stage.REFUSED), [6, 3]),
        (AuditFilter(stage=Stage.WAITING), [7]),
        (AuditFilter(since_s=ROW.at_s + 2), [7, 5]),
        (AuditFilter(job="none"), []),
    ],
)
def test_commands_are_found_by_what_is_asked(several, where, seqs):
    assert [each.seq for each in several.search(where, n_command=10)] == seqs


def test_pages_of_commands_hold_each_once(several):
    found, before = [], None
    while page := several.search(AuditFilter(), n_command=2, before=before):
        found += [each.seq for each in page]
        before = page[-1].seq
    assert found == [7, 6, 5, 3, 1]


def test_an_export_can_be_verified_without_this_software(several):
    *lines, last = [json.loads(line) for line in exported(several.rows(), several.head, ExportFormat.JSONL)]
    text = list(exported(several.rows(), several.head, ExportFormat.JSONL))
    before = "0" * 64
    for line, raw in zip(lines, text, strict=False):
        row = raw[raw.index('"row":') + 6 : -2].encode()
        before = hash_of(before, line["seq"], row)
        assert before == line["hash"]
    assert last == {"head": {"seq": lines[-1]["seq"], "hash": before}}
