"""Documents of a plan for other systems, and the check of a file of them.

Every export is validated against the real schema before it is returned: a document that an API server refuses
is of no use. `check_file` validates a file, which may have been edited since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dlrover_nb.api.inputs.job_of_submit import read_text
from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.disk.files import write
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.export.exporters import Exporter, find_exporter
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.provenance import provenance_of
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.structs.job.secrets import without_secrets
from dlrover_nb.core.structs.plan.resources import ResourcePlan
from dlrover_nb.core.yamltext import to_yaml
from dlrover_nb.widgets.blocks import Paragraph, Verbatim, View
from dlrover_nb.widgets.rows.tables import facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dlrover_nb.core.export.nodes import Options
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.rows.tables import Tables

CURRENT = "current"


@runtime_checkable
class Judge(Protocol):
    """A connection with an API server: a cluster of Kubernetes, and the link to a job there."""

    def judge(self, documents: Sequence[dict[str, Any]]) -> Sequence[Judged]:
        """Return the result of a dry run of each document."""
        ...


@runtime_checkable
class Place(Protocol):
    """The link to a job on Kubernetes: where its exports go by default, and what cannot run there."""

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        ...

    def why_no_export(self, documents: Sequence[dict[str, Any]]) -> str:
        """Return why the cluster cannot run documents; empty: nothing is known against them."""
        ...


class Judged(Protocol):
    """The result of a dry run of one document."""

    @property
    def what(self) -> str:
        """Kind and name."""
        ...

    @property
    def is_wrong(self) -> bool:
        """Whether the server refuses it."""
        ...

    @property
    def words(self) -> str:
        """The reason, or why there is no result; empty: the server would accept it."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class ExportView(Shown):
    """Exported documents, and the file they were written to (None: only shown)."""

    is_verbatim = True
    path: str | None
    text: str
    checked: str = ""  # result of the validation, where it was requested
    to_fill_in: tuple[str, ...] = ()  # secrets of the job that are not in it

    def view(self) -> View:
        """Return the content."""
        where = f"Exported to {self.path}" if self.path else "Export (not written to a file)"
        checked = tuple(Paragraph(line) for line in self.checked.splitlines())
        missing = tuple(Paragraph(f"left out because it is secret: {each}") for each in self.to_fill_in)
        return View(where, (*checked, *missing, Verbatim(self.text)))

    def tables(self) -> Tables:
        """Return it as data."""
        return facts(path=self.path, text=self.text, checked=self.checked, to_fill_in=self.to_fill_in)


@dataclass(frozen=True, slots=True, repr=False)
class CheckView(Shown):
    """A file of exported documents that the real schemas accept."""

    path: str
    kinds: tuple[str, ...]
    server: tuple[str, ...] = ()  # result of the connected cluster's API server

    def view(self) -> View:
        """Return the content."""
        lines = (valid_text(self.kinds), *self.server)
        return View(f"Check of {self.path}", tuple(Paragraph(line) for line in lines))

    def tables(self) -> Tables:
        """Return it as data."""
        return facts(path=self.path, kinds=self.kinds, server=self.server)


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

    Without a namespace they go to that of a job on Kubernetes, and what is known not to run on its cluster is
    refused. Where a namespace is named, another cluster may be meant.

    With `checked`, and a `server` that is a `Judge`, the result of a dry run is included.
    """
    exporter = find_exporter(kind)
    plan = plan if isinstance(plan, ResourcePlan) else plan_named(snapshot, plan)
    place = server if isinstance(server, Place) and options.namespace is None else None
    if place is not None:
        options = replace(options, namespace=place.namespace)
    documents = exporter(snapshot.spec, plan, provenance_of(snapshot, plan), options)
    if place is not None and (why := place.why_no_export(documents)):
        raise InvalidValueError(f"job {snapshot.spec.name} cannot be exported as {kind}: {why}")
    refuse_invalid(
        documents,
        f"the export of {snapshot.spec.name}",
        "change the job or the option it comes from",
        exporter=exporter,
    )
    lines = [valid_text(tuple(str(d["kind"]) for d in documents))] if checked else []
    if checked:
        lines += dry_run_lines(server, documents, f"the export of {snapshot.spec.name}")
    missing = () if options.with_secrets else without_secrets(snapshot.spec)[1]
    return ExportView(None, to_yaml(*documents), "\n".join(lines), missing)


def written(view: ExportView, path: Path | str, *, force: bool, is_private: bool = False) -> ExportView:
    """Write an export to a file; `is_private`: one that only this account may read."""
    return replace(view, path=str(write(path, view.text, force=force, is_private=is_private)))


def check_file(path: Path | str, server: object = None) -> CheckView:
    """Validate a file of exported documents against the real schemas, strictly; no cluster is needed.

    Where `server` is a `Judge`, its API server also validates them in a dry run.

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
    return CheckView(str(path), kinds, dry_run_lines(server, documents, str(path)))


def dry_run_lines(server: object, documents: Sequence[dict[str, Any]], what: str) -> tuple[str, ...]:
    """Return the result of a dry run of documents by the API server of a connected cluster.

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
    accepted = [each for each in judged if not each.words]
    n_doc = "all" if len(accepted) == len(judged) else str(len(accepted))
    head = f"In a dry run the cluster's API server would take {n_doc} of {len(judged)}."
    return (head, *(f"{each.what}: {each.words}" for each in judged if each.words))


def plan_named(snapshot: JobSnapshot, name: str) -> ResourcePlan:
    """Return the current plan, or a proposal's."""
    if name == CURRENT:
        return snapshot.target
    plans = {p.id: p.candidate.plan for p in snapshot.proposals}
    if name not in plans:
        names = ", ".join((CURRENT, *plans))
        raise NotFoundError(f"job {snapshot.spec.name} has no plan {name}; choose from {names}")
    return plans[name]


def refuse_invalid(
    documents: Iterable[object], what: str, fix: str, *, exporter: Exporter | None = None
) -> None:
    """Raise the first violation of the real schemas; the others are counted."""
    problems = check(documents, exporter)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidValueError(f"{what} is not valid: {problems[0]}{more}; {fix}")


def valid_text(kinds: tuple[str, ...]) -> str:
    """Return the message that documents are valid."""
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return f"Valid against the real schemas, unknown fields refused: {counted}."
