"""Reads a job, its plan and their provenance from an export, edited or not, or from a foreign document.

The fields of a document (replicas, resources, name) win over its annotation: the annotation is what was
exported, the document is what is requested now; every difference is reported. A document without our
annotations gives the plan as far as it has one, and missing parts are reported as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.core.export.alone import PICKLED, fixed
from dlrover_nb.core.export.documents.read_trainjob import external_job, joined
from dlrover_nb.core.export.gathering import (
    FIELDS,
    KINDS,
    annotation,
    documents_in,
    gather,
    holds_job_file,
    is_companion,
    metadata,
    plan_fields,
)
from dlrover_nb.core.export.nodes import job_in
from dlrover_nb.core.export.provenance import CONTEXT, Context, Provenance
from dlrover_nb.core.manifests.kinds import TRAIN_JOB
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.export.gathering import JobContent
    from dlrover_nb.core.export.groups import Group
    from dlrover_nb.core.structs.job.job import JobSpec


@dataclass(frozen=True, slots=True)
class Imported:
    """Content of a text of exported documents.

    Parameters
    ----------
    kind
        Kind of export.
    name
        The job's name; empty where the documents have none.
    job
        The job as it was submitted; of a TrainJob of others, the external job that it is; None where the
        documents do not contain it.
    plan
        The plan to run; None where they contain only `parts` of it.
    parts
        Fields of the plan in the documents themselves, to be set on a known plan (`Pins.applied`).
    provenance
        Who decided, why, and on which prediction; empty where the documents have none.
    auto_scale
        Whether DLRover may change the plan; None where not given.
    version
        Version of this software that exported it; empty: other software did.
    differs
        Changes since the export, as text.
    unknown
        What the documents lack, as text.
    """

    kind: str
    name: str
    job: JobSpec | None
    plan: ResourcePlan | None
    parts: Pins
    provenance: Provenance = field(default_factory=Provenance)
    auto_scale: bool | None = None
    version: str = ""
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def to_submit(self) -> JobSpec | None:
        """The job as it would be submitted now, on the imported plan; None where too little is known."""
        return None if self.job is None or self.plan is None else replace(self.job, plan=self.plan)


def read_export(text: str) -> Imported:
    """Read exported YAML: one document or several of one job.

    Raises
    ------
    InvalidValueError
        For malformed YAML (with line and column), no document of a known kind, several jobs, or an invalid
        value.
    """
    documents = joined(documents_in(text))
    resources = [d for d in documents if d.get("kind") in KINDS or holds_job_file(d)]
    if not resources:
        got = ", ".join(str(d.get("kind", "a document without kind")) for d in documents[:3]) or "nothing"
        raise InvalidValueError(f"an import reads {', '.join(KINDS)}, got {got}")
    unread: list[str] = []
    context = _context(resources, unread)
    content = gather(resources, _fixed_roles(context))
    content.unknown += unread
    if context is None and content.filed is None:
        content.external = _external(resources, content)
    content.unknown += [_other(d) for d in documents if d not in resources and not is_companion(d, content)]
    return _merged(_kind(resources, context), content, context)


def _external(documents: Sequence[Group], content: JobContent) -> JobSpec | None:
    """Return the external job that a TrainJob of others is, on its plan as far as it has one."""
    jobs = (external_job(each, content.unknown) for each in documents if each["kind"] == TRAIN_JOB.name)
    job = next(jobs, None)
    return None if job is None else replace(job, plan=Pins(**content.parts).applied(job.plan))


def _other(document: Group) -> str:
    name = metadata(document).get("name", "")
    return f"{document.get('kind')} {name}: not a kind that an import reads".strip()


def _kind(documents: Sequence[Group], context: Context | None) -> str:
    kinds = [KINDS[kind] for kind in KINDS if any(d["kind"] == kind for d in documents)]
    if not kinds:
        return context.kind if context is not None else "job file"
    return context.kind if context is not None and context.kind.startswith(kinds[0]) else kinds[0]


def _fixed_roles(context: Context | None) -> frozenset[str]:
    external = None if context is None else context.job.foreign
    return frozenset() if external is None else frozenset(each.name for each in external.roles)


def _context(documents: Sequence[Group], unread: list[str]) -> Context | None:
    """Return the content of annotations; a ScalePlan's before its job's, as it is newer."""
    for document in sorted(documents, key=lambda d: d["kind"] != "ScalePlan"):
        text = annotation(document, CONTEXT)
        if text is None:
            continue
        try:
            return from_json(text, Context)
        except WireError as error:
            unread.append(f"the annotation {CONTEXT} cannot be read: {str(error)[:120]}")
    return None


def _merged(kind: str, content: JobContent, context: Context | None) -> Imported:
    job = _job(content, context)
    exported = context.plan if context else job.plan if job else None
    parts = Pins(**content.parts)
    plan = parts.applied(exported) if exported else _whole(parts)
    _note_missing(content, parts, exported, "by default" if content.external else "as exported")
    if exported is not None:
        _note_changes(content, parts, exported)
    name = content.names[0] if content.names else job.name if job else ""
    if context is not None and content.auto_scale not in {None, context.auto_scale}:
        content.differs.append(f"autoScale: {content.auto_scale} now, {context.auto_scale} when exported")
    return Imported(
        kind=kind,
        name=name,
        job=_named(job, name, content),
        plan=plan,
        parts=parts,
        provenance=context.provenance if context else Provenance(),
        auto_scale=content.auto_scale,
        version=context.version if context else "",
        differs=tuple(dict.fromkeys(content.differs)),
        unknown=tuple(dict.fromkeys([*content.unknown, *_left_open(job, context)])),
    )


def _job(content: JobContent, context: Context | None) -> JobSpec | None:
    """Return the job: of a job file, else as exported, else of a TrainJob, else of the nodes' variables."""
    if content.filed is None:
        return context.job if context else content.external or _job_of_nodes(content)
    if context is None:
        return content.filed
    exported = fixed(context.job, content.filed.plan, is_free=context.auto_scale)
    changed = dict(_changed(exported, content.filed))
    content.differs += changed.values()
    unchanged = {
        name: getattr(context.job, name) for name in ("plan", "mode", "warm_start") if name not in changed
    }
    return replace(content.filed, **unchanged, name=context.job.name)


def _changed(before: JobSpec, now: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the fields of a job that differ, and the difference as text; its name is left out."""
    for each in fields(before):
        here, there = getattr(now, each.name), getattr(before, each.name)
        if here != there and each.name != "name":
            yield each.name, f"{each.name}: {_words(here, there)} now, {_words(there, here)} when exported"


def _words(value: object, other: object) -> str:
    """Return a value as text; of a group its differences from the other one."""
    if not is_dataclass(value) or not is_dataclass(other):
        return str(value)
    parts = [
        f"{each.name} {getattr(value, each.name)}"
        for each in fields(value)
        if getattr(value, each.name) != getattr(other, each.name, None)
    ]
    return ", ".join(parts)


def _job_of_nodes(content: JobContent) -> JobSpec | None:
    """Return the job in the nodes' variables, where no annotation has it; its plan is the exported one."""
    for text in content.jobs:
        try:
            return job_in(text)
        except WireError as error:
            content.unknown.append(
                f"the job description given to the nodes cannot be read: {str(error)[:120]}"
            )
    return None


def _whole(parts: Pins) -> ResourcePlan | None:
    """Return the plan whose every part is given."""
    values = [getattr(parts, name) for name in FIELDS]
    if None in values:
        return None
    return ResourcePlan(worker=RolePlan(*values[:3]), ps=RolePlan(*values[3:]))


def _note_missing(content: JobContent, parts: Pins, exported: ResourcePlan | None, why: str) -> None:
    of = _fields(exported) if exported else {}
    for name, words in FIELDS.items():
        if getattr(parts, name) is None:
            instead = f", {of[name]:g} {why}" if of else ""
            content.unknown.append(f"{words}: not in the document{instead}")


def _note_changes(content: JobContent, parts: Pins, exported: ResourcePlan) -> None:
    changed = [
        f"{FIELDS[name]}: {getattr(parts, name):g} now, {before:g} when exported"
        for name, before in _fields(exported).items()
        if getattr(parts, name) not in {None, before}
    ]
    if changed:
        changed.append("decision and prediction are those of the exported plan")
    content.differs += changed


def _fields(plan: ResourcePlan) -> dict[str, float]:
    """Return a plan as the fields of `Pins`."""
    return dict(zip(FIELDS, plan_fields(plan), strict=True))


def _named(job: JobSpec | None, name: str, content: JobContent) -> JobSpec | None:
    if job is None or job.name == name:
        return job
    content.differs.append(f"name: {name} now, {job.name} when exported")
    return replace(job, name=name)


def _left_open(job: JobSpec | None, context: Context | None) -> list[str]:
    """Return what must be given before the job can be submitted, and what is lost for good."""
    left = [f"{what}: never written to a file" for what in context.left_out] if context else []
    if context is None:
        left.append("who decided, and on which prediction")
    elif context.provenance.simulated:
        left.append("how the plan performs on real nodes: it comes from a simulated cluster")
    if job is None:
        left.append("the job itself: its data, model and training")
        return left
    pickled = [("model", job.model.code), ("data", job.data.path)]
    return left + [
        f"the user's own {what}: its code is in the run folder of the first job; give it again"
        for what, place in pickled
        if place.startswith(PICKLED)
    ]
