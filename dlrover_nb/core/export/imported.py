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

    from dlrover_nb.core.export.gathering import Said
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
    known = [d for d in documents if d.get("kind") in KINDS or holds_job_file(d)]
    if not known:
        got = ", ".join(str(d.get("kind", "a document without kind")) for d in documents[:3]) or "nothing"
        raise InvalidValueError(f"an import reads {', '.join(KINDS)}, got {got}")
    unread: list[str] = []
    told = _context(known, unread)
    said = gather(known, _fixed_roles(told))
    said.unknown += unread
    if told is None and said.filed is None:
        said.external = _external(known, said)
    said.unknown += [_other(d) for d in documents if d not in known and not is_companion(d, said)]
    return _merged(_kind(known, told), said, told)


def _external(documents: Sequence[Group], said: Said) -> JobSpec | None:
    """Return the external job that a TrainJob of others is, on its plan as far as it has one."""
    jobs = (external_job(each, said.unknown) for each in documents if each["kind"] == TRAIN_JOB.name)
    job = next(jobs, None)
    return None if job is None else replace(job, plan=Pins(**said.parts).applied(job.plan))


def _other(document: Group) -> str:
    name = metadata(document).get("name", "")
    return f"{document.get('kind')} {name}: not a kind that an import reads".strip()


def _kind(documents: Sequence[Group], told: Context | None) -> str:
    kinds = [KINDS[kind] for kind in KINDS if any(d["kind"] == kind for d in documents)]
    if not kinds:
        return told.kind if told is not None else "job file"
    return told.kind if told is not None and told.kind.startswith(kinds[0]) else kinds[0]


def _fixed_roles(told: Context | None) -> frozenset[str]:
    external = None if told is None else told.job.foreign
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


def _merged(kind: str, said: Said, told: Context | None) -> Imported:
    job = _job(said, told)
    exported = told.plan if told else job.plan if job else None
    parts = Pins(**said.parts)
    plan = parts.applied(exported) if exported else _whole(parts)
    _note_missing(said, parts, exported, "by default" if said.external else "as exported")
    if exported is not None:
        _note_changes(said, parts, exported)
    name = said.names[0] if said.names else job.name if job else ""
    if told is not None and said.auto_scale not in {None, told.auto_scale}:
        said.differs.append(f"autoScale: {said.auto_scale} now, {told.auto_scale} when exported")
    return Imported(
        kind=kind,
        name=name,
        job=_named(job, name, said),
        plan=plan,
        parts=parts,
        provenance=told.provenance if told else Provenance(),
        auto_scale=said.auto_scale,
        version=told.version if told else "",
        differs=tuple(dict.fromkeys(said.differs)),
        unknown=tuple(dict.fromkeys([*said.unknown, *_left_open(job, told)])),
    )


def _job(said: Said, told: Context | None) -> JobSpec | None:
    """Return the job: of a job file, else as exported, else of a TrainJob, else of the nodes' variables."""
    if said.filed is None:
        return told.job if told else said.external or _job_of_nodes(said)
    if told is None:
        return said.filed
    exported = fixed(told.job, said.filed.plan, is_free=told.auto_scale)
    changed = dict(_changed(exported, said.filed))
    said.differs += changed.values()
    kept = {name: getattr(told.job, name) for name in ("plan", "mode", "warm_start") if name not in changed}
    return replace(said.filed, **kept, name=told.job.name)


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


def _job_of_nodes(said: Said) -> JobSpec | None:
    """Return the job in the nodes' variables, where no annotation has it; its plan is the exported one."""
    for text in said.jobs:
        try:
            return job_in(text)
        except WireError as error:
            said.unknown.append(f"the job description given to the nodes cannot be read: {str(error)[:120]}")
    return None


def _whole(parts: Pins) -> ResourcePlan | None:
    """Return the plan whose every part is given."""
    values = [getattr(parts, name) for name in FIELDS]
    if None in values:
        return None
    return ResourcePlan(worker=RolePlan(*values[:3]), ps=RolePlan(*values[3:]))


def _note_missing(said: Said, parts: Pins, exported: ResourcePlan | None, why: str) -> None:
    of = _fields(exported) if exported else {}
    for name, words in FIELDS.items():
        if getattr(parts, name) is None:
            taken = f", {of[name]:g} {why}" if of else ""
            said.unknown.append(f"{words}: not in the document{taken}")


def _note_changes(said: Said, parts: Pins, exported: ResourcePlan) -> None:
    changed = [
        f"{FIELDS[name]}: {getattr(parts, name):g} now, {before:g} when exported"
        for name, before in _fields(exported).items()
        if getattr(parts, name) not in {None, before}
    ]
    if changed:
        changed.append("decision and prediction are those of the exported plan")
    said.differs += changed


def _fields(plan: ResourcePlan) -> dict[str, float]:
    """Return a plan as the fields of `Pins`."""
    return dict(zip(FIELDS, plan_fields(plan), strict=True))


def _named(job: JobSpec | None, name: str, said: Said) -> JobSpec | None:
    if job is None or job.name == name:
        return job
    said.differs.append(f"name: {name} now, {job.name} when exported")
    return replace(job, name=name)


def _left_open(job: JobSpec | None, told: Context | None) -> list[str]:
    """Return what must be given before the job can be submitted, and what is lost for good."""
    left = [f"{what}: never written to a file" for what in told.left_out] if told else []
    if told is None:
        left.append("who decided, and on which prediction")
    elif told.provenance.simulated:
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
