"""Where programs start whose roles say with which others they run: laws over machines, rooms and roles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.master.external.launch.collocation import place
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, FixedRole
from dlrover_nb.core.structs.plan.resources import Role

READER = Role("reader")
NEED = (1.0, 512)
machines = st.sampled_from(["a", "b", "c"])
rooms = st.dictionaries(machines, st.tuples(st.floats(0, 4), st.integers(0, 2048)), min_size=1)
roles = st.sets(st.sampled_from(["worker", "ps", "reader"]))


def spec(*, together=(), apart=(), ps_apart=()):
    reader = FixedRole("reader", ("r",), together_with=tuple(together), apart_from=tuple(apart))
    return ExternalSpec(
        ExternalRole(("w",)), 100, ExternalRole(("p",), apart_from=tuple(ps_apart)), roles=(reader,)
    )


RULES = [spec(), spec(together=["worker"]), spec(apart=["ps"]), spec(together=["worker"], apart=["ps"])]
RULES += [spec(apart=["reader"]), spec(ps_apart=["reader"])]


@given(st.sampled_from(RULES), st.sampled_from([Role.WORKER, Role.PS, READER]), rooms, st.data())
def test_a_machine_fits_and_keeps_each_rule_of_both_sides(job, role, room, data) -> None:
    there = data.draw(st.dictionaries(machines, roles))
    found = place(job, role, NEED, room=room, there=there)

    def may(machine):
        others = there.get(machine, set())
        own = job.program(role)
        keeps_own = set(own.together_with) <= others and not set(own.apart_from) & others
        is_free = not any(role in job.program(Role(other)).apart_from for other in others)
        return keeps_own and is_free and room[machine][0] >= NEED[0] and room[machine][1] >= NEED[1]

    possible = [machine for machine in room if may(machine)]
    assert (found.machine in possible) if possible else (not found.machine and found.why)
    assert all(room[found.machine] >= room[machine] for machine in possible)


def test_the_reason_says_which_machine_is_missing(words) -> None:
    job = spec(together=["worker"], apart=["ps"])
    told = place(job, READER, NEED, room={"a": (4.0, 4096)}, there={"a": {"ps"}})
    assert told.why == words
    told = place(job, READER, NEED, room={"a": (0.5, 4096)}, there={"a": {"worker"}})
    assert told.why == words
