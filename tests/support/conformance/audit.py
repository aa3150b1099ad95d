"""What every audit must do: one suite, each implementation a subclass.

A subclass gives the fixture `open_audit`, which returns a function that opens the same audit again.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from dlrover_nb.core.history.audit.chain import START, faults, verified
from dlrover_nb.core.structs.decisions.commands import Action, AuditRow, Entry, Stage

ROW = AuditRow(1_790_000_000.0, "ada", Entry.DASHBOARD, Action.ACCEPT, "ads-ctr", Stage.ASKED, key="k1")
N_THREAD = 8


def rows_of(n: int) -> list[AuditRow]:
    """Return rows that all differ."""
    return [
        replace(ROW, at_s=ROW.at_s + i, key=f"k{i}", why=f"because {i}", job=("ads-ctr", "ranking")[i % 2])
        for i in range(n)
    ]


class AuditConformance:
    """The suite."""

    def test_an_empty_audit_is_a_sound_chain(self, open_audit):
        audit = open_audit()
        assert audit.head() == (0, START)
        assert list(audit.rows()) == []
        assert verified(audit)[1] == ()

    def test_rows_are_read_back_as_they_were_written_and_numbered_from_one(self, open_audit):
        written = rows_of(5)
        for row in written:
            open_audit().append(row)
        found = list(open_audit().rows())
        assert [each.row for each in found] == written
        assert [each.seq for each in found] == [1, 2, 3, 4, 5]
        assert open_audit().head() == (5, found[-1].hash)
        assert faults(found, open_audit().head()) == ()

    def test_rows_are_found_by_job_by_time_and_after_a_number(self, open_audit):
        audit = open_audit()
        for row in rows_of(6):
            audit.append(row)
        assert [each.seq for each in audit.rows(job="ranking")] == [2, 4, 6]
        assert [each.seq for each in audit.rows(since_s=ROW.at_s + 4)] == [5, 6]
        assert [each.seq for each in audit.rows(after=4)] == [5, 6]
        assert [each.seq for each in audit.newest(2)] == [6, 5]
        assert [each.seq for each in audit.newest(2, before=5, job="ads-ctr")] == [3, 1]

    def test_a_key_is_claimed_once_and_then_answered_with_its_newest_row(self, open_audit):
        audit = open_audit()
        assert audit.claim(ROW) is None
        assert audit.claim(replace(ROW, person="bob")) == ROW
        done = audit.append(replace(ROW, stage=Stage.DONE, answer="d1")).row
        assert open_audit().claim(replace(ROW, person="eve")) == done
        assert audit.head()[0] == 2

    def test_the_newest_row_of_a_key_is_found_and_nothing_is_written(self, open_audit):
        audit = open_audit()
        assert audit.find(ROW.key) is None
        audit.claim(ROW)
        assert audit.find(ROW.key) == ROW
        done = audit.append(replace(ROW, stage=Stage.DONE, answer="d1")).row
        assert open_audit().find(ROW.key) == done
        assert audit.find("another") is None
        assert audit.head()[0] == 2

    def test_rows_without_a_key_claim_nothing(self, open_audit):
        audit, keyless = open_audit(), replace(ROW, key="")
        assert audit.claim(keyless) is None
        assert audit.claim(keyless) is None
        assert audit.head()[0] == 2

    def test_of_many_threads_that_claim_one_key_exactly_one_wins(self, open_audit):
        start, won = threading.Barrier(N_THREAD), []

        def claim(name: str) -> None:
            audit = open_audit()
            start.wait()
            if audit.claim(replace(ROW, person=name)) is None:
                won.append(name)

        threads = [threading.Thread(target=claim, args=(f"p{i}",)) for i in range(N_THREAD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (row,) = open_audit().rows()
        assert won == [row.row.person]

    def test_rows_of_many_threads_make_one_sound_chain(self, open_audit):
        def write(name: str) -> None:
            audit = open_audit()
            for row in rows_of(5):
                audit.append(replace(row, person=name))

        threads = [threading.Thread(target=write, args=(f"p{i}",)) for i in range(N_THREAD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check, wrong = verified(open_audit())
        assert (check.seq, wrong) == (5 * N_THREAD, ())

    @pytest.mark.parametrize("n_digit", [12, 64])
    def test_a_hash_that_was_written_down_is_found_again(self, open_audit, n_digit):
        audit = open_audit()
        for row in rows_of(3):
            audit.append(row)
        anchor = [*audit.rows()][1].hash[:n_digit]
        assert verified(audit, anchor=anchor)[1] == ()
        (wrong,) = verified(audit, anchor="f" * n_digit)[1]
        assert "rows were changed, or this is another audit" in wrong
