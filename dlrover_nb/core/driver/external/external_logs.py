"""Output of an external job's programs: kept as log lines of its nodes, and parsed for steps."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from dlrover_nb.core.driver.endings import Ending, ending
from dlrover_nb.core.master.external.job.step_log import StepLog
from dlrover_nb.core.master.external.launch.pod_script import BEGINS
from dlrover_nb.core.rundir.node_logs import NodeLogs
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.job.secrets import secret_values
from dlrover_nb.core.structs.wire.messages import LinesWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from dlrover_nb.core.driver.backend import NodeExited
    from dlrover_nb.core.structs.job.external import StepsDone, Written
    from dlrover_nb.core.structs.job.job import JobSpec


class ExternalLogs:
    """Reads the lines of all nodes of one job; for its loop alone, except `lines`.

    Parameters
    ----------
    spec, folder
        The job, whose programs may write their steps in their lines, and its run folder.
    before
        Returns the steps known so far: the first read of a node's log continues from there.
    """

    def __init__(self, spec: JobSpec, folder: Path, before: Callable[[], Iterable[StepsDone]]) -> None:
        assert spec.foreign is not None
        self._pattern, self._batch_size, self._before = spec.foreign.step_log, spec.batch_size, before
        self._logs = NodeLogs(folder, secrets=secret_values(spec))
        self._steps = dict[str, StepLog]()
        self._read_ns: dict[str, int] = {}
        self._kept_ns: dict[str, int] = {}  # of lines that an earlier master kept after it saved its state
        self._job, self.lines = spec.name, self._logs.lines

    @property
    def read_ns(self) -> dict[str, int]:
        """The latest time of a line read of each node."""
        return dict(self._read_ns)

    def reload(self, nodes: Collection[str], read_ns: Mapping[str, int]) -> None:
        """Continue where an earlier master stopped."""
        self._logs.cut()
        self._logs.reload(nodes)
        self._kept_ns = {node: self._logs.position(node)[0] for node in nodes}
        self._read_ns = dict(read_ns)

    def add(self, written: Iterable[Written]) -> Iterator[StepsDone]:
        """Keep lines, and yield the steps that they report."""
        for node, group in groupby(written, key=lambda line: line.node):
            lines = list(group)
            self._keep(node, lines)
            for line in lines:
                if self._pattern and (steps := self._read(line, line.at_ns / 1e9)) is not None:
                    yield steps

    def ending(self, exited: NodeExited, at_s: float) -> Ending:
        """Return why a node exited, after `finish_node`."""
        return ending(exited, self._logs, job=self._job, at_s=at_s)

    def finish_node(self, node: str, at_s: float) -> None:
        """Note that a node exited and writes no more."""
        self._logs.finish_node(node, at_s)
        self._steps.pop(node, None)
        self._read_ns.pop(node, None)

    def close(self, at_s: float) -> None:
        """Close the logs of all nodes."""
        self._logs.close(at_s)

    def _keep(self, node: str, lines: Sequence[Written]) -> None:
        self._read_ns[node] = read_ns = max(lines[-1].at_ns, self._read_ns.get(node, 0))
        kept_ns = self._kept_ns.get(node, 0)
        new = [LogLine(each.at_ns / 1e9, node, "stdout", each.text) for each in lines if each.at_ns > kept_ns]
        if new:
            self._logs.add(LinesWritten(node, tuple(new), (read_ns, read_ns)))

    def _read(self, line: Written, at_s: float) -> StepsDone | None:
        log = self._step_log(line.node)
        if line.text == BEGINS:
            log.restart()
            return None
        return log.read(line.text, at_s)

    def _step_log(self, node: str) -> StepLog:
        if node not in self._steps:
            before = [steps for steps in self._before() if steps.node == node]
            last = before[-1] if before else None
            self._steps[node] = StepLog(self._pattern, self._batch_size, node, last)
        return self._steps[node]
