"""Laws of the hash chain: nobody changes, removes, moves, adds or cuts off a row unseen."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.commands.memory_audit import MemoryAudit
from dlrover_nb.core.history.audit.chain import (
    MOST_FAULTS,
    ChainCheck,
    Link,
    faults,
    hash_of,
    link_of,
    verified,
)
from dlrover_nb.core.structs.decisions.commands import Action, AuditRow, Entry, Stage

TEXTS = st.text(max_size=12)
NUMBERS = st.none() | st.floats(0, 1e9)
ROWS = st.builds(
    AuditRow,
    at_s=st.floats(0, 2e9),
    person=TEXTS,
    entry=st.sampled_from(Entry),
    action=st.sampled_from(Action),
    job=TEXTS,
    stage=st.sampled_from(Stage),
    answer=TEXTS,
    why=TEXTS,
    plan_after=TEXTS,
    predicted_samples_per_s=NUMBERS,
    key=TEXTS,
)
CHAINS = st.lists(ROWS, min_size=1, max_size=8)


def chained(rows):
    audit = MemoryAudit()
    for row in rows:
        audit.append(row)
    return list(audit.rows()), audit.head()


@given(CHAINS)
def test_a_chain_as_it_was_written_is_sound(rows):
    assert faults(*chained(rows)) == ()


@given(CHAINS, st.data())
def test_any_change_of_a_row_is_found(rows, data):
    found, head = chained(rows)
    at = data.draw(st.integers(0, len(found) - 1))
    name = data.draw(st.sampled_from([f.name for f in fields(AuditRow)]))
    other = getattr(data.draw(ROWS.filter(lambda r: getattr(r, name) != getattr(found[at].row, name))), name) \
        if name in {"at_s", "person", "entry", "action", "job", "stage", "answer", "why", "plan_after", "key",
                    "predicted_samples_per_s"} else "another"  # fmt: skip
    found[at] = replace(found[at], row=replace(found[at].row, **{name: other}))
    assert any(f"row {at + 1} " in each for each in faults(found, head))


@given(CHAINS, st.data())
def test_a_change_that_means_the_same_record_is_found(rows, data):
    found, head = chained(rows)
    links = [link_of(each) for each in found]
    at = data.draw(st.integers(0, len(found) - 1))
    links[at] = replace(links[at], text=links[at].text + b" ")
    check = ChainCheck()
    check.read(links)
    assert len(check.faults(head)) == 1


@given(CHAINS, st.data())
def test_any_removed_row_is_found_and_named(rows, data):
    found, head = chained(rows)
    at = data.draw(st.integers(0, len(found) - 1))
    del found[at]
    said = faults(found, head)
    assert said
    if at < len(found):
        assert f"row {at + 1} must stand before row {at + 2}" in said[0]


@given(CHAINS, st.data())
def test_any_removed_row_is_found_where_those_behind_it_are_numbered_anew(rows, data):
    found, head = chained(rows)
    at = data.draw(st.integers(0, len(found) - 1))
    del found[at]
    assert faults([replace(each, seq=i) for i, each in enumerate(found, 1)], head)


@given(st.lists(ROWS, min_size=2, max_size=8), st.data())
def test_any_two_rows_that_change_places_are_found(rows, data):
    found, head = chained(rows)
    one, two = data.draw(st.lists(st.integers(0, len(found) - 1), min_size=2, max_size=2, unique=True))
    found[one], found[two] = found[two], found[one]
    assert faults(found, head)
    assert faults([replace(each, seq=i) for i, each in enumerate(found, 1)], head)


@given(CHAINS, ROWS, st.data())
def test_any_added_row_is_found(rows, more, data):
    found, head = chained(rows)
    at = data.draw(st.integers(0, len(found)))
    before = found[at - 1].hash if at else "0" * 64
    text = link_of(replace(found[0], row=more)).text
    links = [link_of(each) for each in found]
    links.insert(at, Link(at + 1, hash_of(before, at + 1, text), text))
    check = ChainCheck()
    check.read(replace(each, seq=i) for i, each in enumerate(links, 1))
    assert check.faults(head)


@given(CHAINS, st.integers(1, 8))
def test_rows_that_are_cut_off_at_the_end_are_found(rows, n_row):
    found, head = chained(rows)
    (said,) = faults(found[:-n_row], head)
    assert "rows at the end were removed or added" in said


@given(CHAINS, CHAINS)
def test_a_chain_that_was_computed_anew_is_found_by_a_hash_that_was_written_down(rows, others):
    _, (_, anchor) = chained(rows)
    forged, head = chained(others)
    if anchor not in {each.hash for each in forged}:
        assert faults(forged, head) == ()
        assert len(faults(forged, head, anchor=anchor)) == 1


@pytest.mark.more
def test_many_rows_are_checked_in_bounded_memory_and_few_of_their_faults_are_told(words):
    n_row, row = 200_000, b'{"at_s":0}'
    tracemalloc.start()
    check = ChainCheck()
    check.read(Link(seq, "0" * 64, row) for seq in range(1, n_row + 1))
    said = check.faults((n_row, "0" * 64))
    _, most_byte = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert check.n_fault == n_row
    assert len(said) == MOST_FAULTS + 1
    assert said[-1] == words
    assert most_byte < 1 << 20


class Growing(MemoryAudit):
    """An audit to which a row is appended whenever its head was read."""

    def __init__(self, row, n_more):
        super().__init__()
        self._next, self._n_more = row, n_more

    def head(self):
        found = super().head()
        if self._n_more:
            self._n_more -= 1
            self._append_one()
        return found

    def _append_one(self):
        n_more, self._n_more = self._n_more, 0
        self.append(self._next)
        self._n_more = n_more


@given(CHAINS, ROWS, st.integers(0, 5))
def test_rows_that_come_during_a_check_are_no_faults(rows, more, n_more):
    audit = Growing(more, 0)
    for row in rows:
        audit.append(row)
    audit._n_more = n_more
    assert verified(audit)[1] == ()
