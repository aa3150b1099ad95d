"""A controller that was written and read back goes on exactly as the one that was never stopped."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test
from support.cases import for_each
from support.plans.replayed import replay
from support.plans.restarted_controller import Twins, difference, restarted
from test_state_machine import JobLife

from dlrover_nb.core.controller import state_bytes
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.object_graph import GraphDecoder, GraphEncoder, fill
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import Ticked


class RestartedLife(JobLife):
    """A job whose master is lost at any time, beside one whose master is never lost."""

    @rule()
    def restart(self):
        if not isinstance(self.job.controller, Twins):
            self.job.controller = Twins(self.job.controller)
        self.job.controller.restart()

    def teardown(self):
        if hasattr(self, "job"):
            self.restart()
            twins = self.job.controller
            assert not difference(twins.first, twins.second)
            assert twins.second.view() == twins.first.view()
            assert twins.second.queries().context == twins.first.queries().context
            assert twins.second.story() == replay(self.job.journal, self.job.settings).story()


@pytest.mark.more
def test_a_restart_from_a_snapshot_changes_nothing_that_follows(make_job):
    JobLife.make_job = staticmethod(make_job)
    run_state_machine_as_test(
        RestartedLife,
        settings=settings(
            max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.more
@pytest.mark.parametrize("mode", list(Mode))
def test_a_job_that_trained_for_long_goes_on_as_before(make_job, mode):
    job = make_job(mode=mode, n_sample_total=40_000_000)
    job.train(120)
    job.kill()
    if mode is not Mode.AUTO:
        job.decide(Verdict.SCALE, plan=replace(job.plan, worker=replace(job.plan.worker, count=2)))
    job.controller = Twins(job.controller)
    job.controller.restart()
    assert not difference(job.controller.first, job.controller.second)
    job.apply(job.controller.under_way or job.plan)
    job.train(120)
    assert not difference(job.controller.first, job.controller.second)
    assert job.view.decisions


def _fields(controller):
    every = state_bytes.parts(controller)
    links = {id(part) for part in every.values()} | {id(each) for each in controller.dependencies}
    return [
        (part, name)
        for part, owner in every.items()
        for name, value in vars(owner).items()
        if id(value) not in links and name != "dependencies"
    ]


@pytest.mark.more
def test_every_field_of_every_part_is_in_the_snapshot(job):
    """A field that is added to the controller is checked here without another line."""
    job.train(30)
    assert len(_fields(job.controller)) > 40
    for part, name in _fields(job.controller):
        owner = state_bytes.parts(job.controller)[part]
        before = getattr(owner, name)
        is_job = name == "job"
        mark = replace(before, why="changed") if is_job else ("changed", part, name)
        setattr(owner, name, mark)
        assert getattr(state_bytes.parts(restarted(job.controller))[part], name) == mark, (part, name)
        setattr(owner, name, before)


def test_a_field_that_cannot_be_kept_is_an_error_with_its_type(job, error_words):
    job.controller._story.reader = open  # as a later release might
    with error_words(WireError):
        state_bytes.pack(job.controller)


def test_a_snapshot_of_an_older_release_lacks_fields_and_has_others(job):
    job.train(30)
    links = {"part ": job.controller}
    old = dict(vars(job.controller._rollup))
    del old["_n_sample"]
    packed = GraphEncoder(links).pack(old | {"_gone": 3})
    fresh = type(job.controller._rollup)(60.0, 0.0)
    fill(fresh, GraphDecoder(links).unpack(packed))
    assert fresh._n_sample == 0
    assert fresh._ps_mib == job.controller._rollup._ps_mib > 0
    assert not hasattr(fresh, "_gone")


def test_what_is_shared_stays_shared_and_what_is_unusual_is_kept():
    plan = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(2, 0.25, 512))
    value = [plan, (plan, math.nan, -math.inf), {Role.PS: {plan}, 3: frozenset({"a"})}, deque([1.5], 4), b"x"]
    back = GraphDecoder({}).unpack(GraphEncoder({}).pack(value))
    assert not difference(value[:2] + value[3:], back[:2] + back[3:])
    assert back[0] is back[1][0]
    assert back[2] == value[2]


@for_each(
    "name",
    [
        "core.errors:WireError",
        "driver.detached:spawn",
        "structs.training.samples:dataclass",
        "nowhere:Nothing",
    ],
)
def test_nothing_but_records_of_this_package_is_read(name):
    record = Ticked(1.0)
    packed = GraphEncoder({}).pack(record)
    with pytest.raises(WireError, match="cannot be read"):
        GraphDecoder({}).unpack(renamed(packed, "structs.views.events:Ticked", name))


def renamed(packed, old, new):
    """Return a state in which a class has another name."""
    forged = packed.replace(msgspec.msgpack.encode(old), msgspec.msgpack.encode(new))
    assert forged != packed
    return forged


@for_each(
    "record, here, before",
    [
        (Ticked(1.0), "structs.views.events:Ticked", "structs.events:Ticked"),
        (Ticked(1.0), "structs.views.events:Ticked", "structs.wire.ticks:Ticked"),
        (Verdict.ACCEPT, "structs.decisions.decisions:Verdict", "structs.decisions:Verdict"),
        (Verdict.ACCEPT, "structs.decisions.decisions:Verdict", "structs.verdicts:Verdict"),
    ],
)
def test_a_state_is_read_whose_classes_have_moved_within_their_room_since(record, here, before):
    packed = GraphEncoder({}).pack(record)
    assert GraphDecoder({}).unpack(renamed(packed, here, before)) == record


def test_what_is_made_again_may_have_moved_too():
    packed = GraphEncoder({}, swapped={Ticked: lambda event: event.at_s}).pack(Ticked(1.0))
    old = renamed(packed, "structs.views.events:Ticked", "structs.ticks:Ticked")
    assert GraphDecoder({}, swapped={Ticked: Ticked}).unpack(old) == Ticked(1.0)


def test_a_damaged_state_is_refused(job):
    submitted, state = state_bytes.pack(job.controller)
    for damaged in (b"", state[:-7], b"\xc1" + state, b"\x92\x90\x01"):
        with pytest.raises(WireError):
            state_bytes.restore(Controller(submitted), damaged)
