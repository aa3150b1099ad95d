"""What a master that comes back learns from the journal: the controller, the telemetry, the history's end.

The controller decides by nothing but the events that it hears, so hearing them again makes the same
proposals, decisions and models. Its orders were carried out then, and are not given again; only what it
asked to remember at the very end may not have reached the history, and is written once more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dlrover_nb.core.session import picture
from dlrover_nb.core.session.record import JOURNAL, read_journal
from dlrover_nb.core.structs.events import NodeReported, Remember, Ticked
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.controller import Controller
    from dlrover_nb.core.session.record import Memory
    from dlrover_nb.core.structs.events import Event
    from dlrover_nb.core.structs.samples import NodeSample
    from dlrover_nb.core.telemetry import JobTelemetry

UNSURE_S = 60.0  # before the end of the journal: what is older has reached the history


def hear_again(folder: Path, controller: Controller, telemetry: JobTelemetry, memory: Memory) -> int:
    """Let a new controller and telemetry hear the journal of a run folder; return how many events it has."""
    asked: deque[Remember] = deque()
    recorder, n_event = _Recorder(telemetry), 0
    for n_event, event in enumerate(read_journal(folder / JOURNAL), 1):  # noqa: B007 - the last one counts
        recorder.hear(event)
        asked.extend(i for i in controller.handle(event) if isinstance(i, Remember))
        while asked and asked[0].at_s < event.at_s - UNSURE_S:
            asked.popleft()
    for order in asked:
        memory.remember(order)
    return n_event


class _Recorder:
    """Fills telemetry as the driver did: a row per report, and one of the job per second."""

    def __init__(self, telemetry: JobTelemetry) -> None:
        self._telemetry = telemetry
        self._last: dict[str, NodeSample] = {}

    def hear(self, event: Event) -> None:
        match event:
            case NodeReported(sample=sample):
                self._last[sample.node] = sample
                self._telemetry.record_node(sample)
            case Ticked(at_s):
                fresh = picture.fresh(self._last.values(), at_s)
                self._last = {sample.node: sample for sample in fresh}
                workers = [sample for sample in fresh if sample.role is Role.WORKER]
                speed = picture.throughput(workers)
                self._telemetry.record_job(at_s, speed, len(workers), len(fresh) - len(workers))
