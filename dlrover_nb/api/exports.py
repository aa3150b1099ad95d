"""Plans on their way to other systems and back: documents of a plan, and what a file of them says.

Every export is held against the real schema before anybody sees it: a document that an API server refuses
is of no use. `check` says so in words, for a file that somebody edited.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dlrover_nb.api.submission import read_text
from dlrover_nb.api.views import Shown
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.export import (
    EXPORTERS,
    Options,
    check,
    documents_in,
    provenance_of,
    read_export,
    to_yaml,
    write,
)
from dlrover_nb.core.export.alone import PICKLED
from dlrover_nb.core.jobfile import check_known, dump_job, load_mapping
from dlrover_nb.core.structs.resources import ResourcePlan
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Heading, Paragraph, Table, Verbatim, View
from dlrover_nb.widgets.records import decision_view, plan_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dlrover_nb.api.cluster import Cluster
    from dlrover_nb.api.job import Job
    from dlrover_nb.api.views import DecisionView
    from dlrover_nb.core.export import Imported, Provenance
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.snapshot import JobSnapshot

CURRENT = "current"
_OWN = {"plan", "owner"}  # keys of a job that an import compares otherwise, or not


@runtime_checkable
class Judge(Protocol):
    """What has an API server to ask: a cluster of Kubernetes, and the way to a job there."""

    def judge(self, documents: Sequence[dict[str, Any]]) -> Sequence[Judged]:
        """Say what the server would do with each document."""
        ...


class Judged(Protocol):
    """What it says of one."""

    @property
    def what(self) -> str:
        """Kind and name."""
        ...

    @property
    def is_wrong(self) -> bool:
        """Whether it refuses it."""
        ...

    @property
    def words(self) -> str:
        """Why, or why it cannot judge it; empty: it would take it."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class ExportView(Shown):
    """Exported documents, and the file they were written to (None: only shown)."""

    path: str | None
    text: str
    checked: str = ""  # what they were held against, where that was asked

    def view(self) -> View:
        """Return the content."""
        where = f"Exported to {self.path}" if self.path else "Export (not written to a file)"
        checked = tuple(Paragraph(words) for words in self.checked.splitlines())
        return View(where, (*checked, Verbatim(self.text)))


@dataclass(frozen=True, slots=True, repr=False)
class CheckView(Shown):
    """A file of exported documents that the real schemas accept."""

    path: str
    kinds: tuple[str, ...]
    server: tuple[str, ...] = ()  # what the connected cluster's API server says of it

    def view(self) -> View:
        """Return the content."""
        told = (valid_words(self.kinds), *self.server)
        return View(f"Check of {self.path}", tuple(Paragraph(words) for words in told))


@dataclass(frozen=True, slots=True, repr=False)
class ImportView(Shown):
    """What a file of exported documents says, beside the running job of that name where there is one.

    Parameters
    ----------
    path
        The file.
    imported
        What it says.
    running
        The job of that name as it is; None where there is none, or no cluster is connected.
    cluster
        Where it may go; None while not connected.
    """

    path: str
    imported: Imported
    running: JobSnapshot | None = None
    cluster: Cluster | None = None

    def submit(self, *, model: object = None, data: object = None) -> Job:
        """Start the job anew, on the imported plan.

        Parameters
        ----------
        model, data
            Your own, where the job needs them: their code is not in the file.

        Raises
        ------
        InvalidValueError
            When the file does not say enough of the job, or as `Cluster.submit`.
        """
        spec = self.imported.to_submit
        if spec is None:
            raise InvalidValueError(
                f"{self.path} does not hold the whole job ({'; '.join(self.imported.unknown)}); "
                "submit it from its own job file"
            )
        own = (("model", spec.model.code, model), ("data", spec.data.path, data))
        for what, code, given in own:
            if code.startswith(PICKLED) and given is None:
                raise InvalidValueError(
                    f"the user's own {what} is not in {self.path}: only its fingerprint is; give it again, "
                    f"as in cluster.import_file({self.path!r}).submit({what}=...)"
                )
        return self._connected().submit(spec, model=model, data=data)

    def apply(self, *, why: str = "") -> DecisionView:
        """Scale the running job of that name to the imported plan.

        Raises
        ------
        NotFoundError
            When no job of that name runs.
        InvalidValueError
            When the file says nothing of a plan.
        CapacityError
            When the plan breaks a quota or a pin, or does not fit.
        """
        job = self._connected().job(self.imported.name)
        why = why or f"imported from {Path(self.path).name}"
        return job.scale(self._plan(job.snapshot().target), why=why)

    def view(self) -> View:
        """Return the content."""
        told = self.imported
        listed = (*_listed("changed since", told.differs), *_listed("not in the file", told.unknown))
        blocks: list[Block] = [Facts((*_facts(told), *listed))]
        if told.plan is not None:
            blocks += plan_view(told.plan).blocks
        blocks += _provenance_blocks(told.provenance)
        return View(f"Import of {self.path}", (*blocks, *self._beside()))

    def _beside(self) -> tuple[Block, ...]:
        """Return how it differs from the job that runs under that name."""
        if self.running is None:
            return ()
        name = self.running.title
        rows = tuple(differences(self.imported, self.running))
        if not rows:
            return (Paragraph(f"Job {name} runs just so."),)
        return (Table(f"Different from job {name} as it runs", ("what", "in the file", "now"), rows),)

    def _plan(self, current: ResourcePlan) -> ResourcePlan:
        if self.imported.plan is not None:
            return self.imported.plan
        if not self.imported.parts:
            raise InvalidValueError(f"{self.path} says nothing of a plan; name another file")
        return self.imported.parts.applied(current)

    def _connected(self) -> Cluster:
        if self.cluster is None:
            raise NotFoundError("not connected; connect first, then import the file again")
        return self.cluster


def export(
    snapshot: JobSnapshot,
    kind: str,
    plan: ResourcePlan | str,
    options: Options,
    *,
    checked: bool = False,
    server: object = None,
) -> ExportView:
    """Return a plan as the documents of another system; see `Job.export`.

    Where it is to be checked and `server` is a `Judge`, that is asked too.
    """
    check_known("kind of export", kind, tuple(EXPORTERS))
    plan = plan if isinstance(plan, ResourcePlan) else plan_named(snapshot, plan)
    documents = EXPORTERS[kind](snapshot.spec, plan, provenance_of(snapshot, plan), options)
    refuse_invalid(
        documents, f"the export of {snapshot.spec.name}", "change the job or the option it comes from"
    )
    told = [valid_words(tuple(str(d["kind"]) for d in documents))] if checked else []
    if checked:
        told += server_words(server, documents, f"the export of {snapshot.spec.name}")
    return ExportView(None, to_yaml(*documents), "\n".join(told))


def written(view: ExportView, path: Path | str, *, force: bool) -> ExportView:
    """Write an export to a file."""
    return replace(view, path=str(write(path, view.text, force=force)))


def check_file(path: Path | str, cluster: Cluster | None = None) -> CheckView:
    """Hold a file of exported documents against the real schemas, strictly; no cluster is needed.

    Where one of Kubernetes is connected, its API server is asked too, which makes nothing.

    Raises
    ------
    InvalidValueError
        For malformed YAML (with line and column), or at the first thing that a schema refuses, with its path.
    NotFoundError
        When there is no such file.
    """
    documents = documents_in(read_text(path, "file"))
    if not documents:
        raise InvalidValueError(f"{path} is empty; expected exported YAML")
    refuse_invalid(documents, str(path), "correct it there, or export again")
    kinds = tuple(str(d["kind"]) for d in documents)
    return CheckView(str(path), kinds, server_words(cluster and cluster.core, documents, str(path)))


def server_words(server: object, documents: Sequence[dict[str, Any]], what: str) -> tuple[str, ...]:
    """Return what the API server of a connected cluster says of documents, in a dry run.

    Raises
    ------
    InvalidValueError
        At the first one that it refuses.
    BackendError
        When it does not answer.
    """
    if not isinstance(server, Judge):
        return ()
    judged = server.judge(documents)
    for each in judged:
        if each.is_wrong:
            raise InvalidValueError(f"{what} is refused by the API server: {each.what}: {each.words}")
    taken = [each for each in judged if not each.words]
    n_doc = "all" if len(taken) == len(judged) else str(len(taken))
    head = f"In a dry run the cluster's API server would take {n_doc} of {len(judged)}."
    return (head, *(f"{each.what}: {each.words}" for each in judged if each.words))


def import_file(path: Path | str, cluster: Cluster | None = None) -> ImportView:
    """Read a file of exported documents; see `Cluster.import_file`."""
    imported = read_export(read_text(path, "file"))
    return ImportView(str(path), imported, _running(cluster, imported.name), cluster)


def plan_named(snapshot: JobSnapshot, name: str) -> ResourcePlan:
    """Return the current plan, or a proposal's."""
    if name == CURRENT:
        return snapshot.target
    plans = {p.id: p.candidate.plan for p in snapshot.proposals}
    if name not in plans:
        known = ", ".join((CURRENT, *plans))
        raise NotFoundError(f"job {snapshot.spec.name} has no plan {name!r}; known: {known}")
    return plans[name]


def refuse_invalid(documents: Iterable[object], what: str, fix: str) -> None:
    """Raise the first thing that the real schemas refuse; all others are counted."""
    problems = check(documents)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidValueError(f"{what} is not valid: {problems[0]}{more}; {fix}")


def valid_words(kinds: tuple[str, ...]) -> str:
    """Say that documents are valid."""
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return f"Valid against the real schemas, unknown fields refused: {counted}."


def differences(told: Imported, running: JobSnapshot) -> Iterable[tuple[str, str, str]]:
    """Yield (what, in the file, now) for each part of the plan and the job that is not the same."""
    plan = told.plan or told.parts.applied(running.target)
    for role in ("worker", "ps"):
        for field in fields(getattr(plan, role)):
            here, now = (getattr(getattr(p, role), field.name) for p in (plan, running.target))
            if here != now:
                yield f"plan.{role}.{field.name}", f"{here:g}", f"{now:g}"
    if told.job is not None:
        here_job, now_job = _leaves(told.job), _leaves(running.spec)
        for key in here_job.keys() | now_job.keys():
            if here_job.get(key) != now_job.get(key):
                yield key, str(here_job.get(key, units.MISSING)), str(now_job.get(key, units.MISSING))


def _leaves(job: JobSpec) -> dict[str, object]:
    return dict(sorted(_flat(load_mapping(dump_job(job)))))


def _flat(group: Mapping[str, object], path: str = "") -> Iterable[tuple[str, object]]:
    for key, value in group.items():
        if not path and key in _OWN:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _running(cluster: Cluster | None, name: str) -> JobSnapshot | None:
    if cluster is None or not name or name not in {j.name for j in cluster.jobs() if j.live}:
        return None
    return cluster.job(name).snapshot()


def _facts(told: Imported) -> tuple[tuple[str, str], ...]:
    scale = {True: "DLRover may plan again (autoScale: true)", False: "fixed (autoScale: false)"}
    job = told.job
    facts = (
        ("job", told.name or units.MISSING),
        ("kind", told.kind),
        ("exported by", f"dlrover-nb {told.version}" if told.version else "another system"),
        *((("replicas are", scale[told.auto_scale]),) if told.auto_scale is not None else ()),
    )
    if job is None:
        return facts
    data = f"{job.data.format} {job.data.path}".strip()
    training = f"{job.model.name}, batch {job.batch_size:,}, {job.n_epoch:,} epochs"
    return (*facts, ("data", data), ("training", training))


def _provenance_blocks(told: Provenance) -> list[Block]:
    blocks: list[Block] = []
    if told.decision is not None:
        blocks += [Heading("Where the plan came from"), *decision_view(told.decision).blocks]
    if (p := told.prediction) is not None:
        band = f"{units.rate(p.samples_per_s)}, 90 % band {units.number(p.low)} to {units.number(p.high)}"
        blocks.append(Facts((("predicted", band),)))
    return blocks


def _listed(title: str, lines: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((title if i == 0 else "", line) for i, line in enumerate(lines))
