"""The content of a file of exported documents: its job, its plan, and differences from the running job."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.api.inputs.job_of_submit import read_text
from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.basics.redaction import redact_words
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.export.alone import PICKLED
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.jobfile import dump_job, load_mapping
from dlrover_nb.core.structs.job.secrets import without_secrets
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Heading, Paragraph, Table, View
from dlrover_nb.widgets.past.records import decision_view, plan_view
from dlrover_nb.widgets.rows.columns import PLAN, through
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dlrover_nb.api.job import Job
    from dlrover_nb.api.views.job_views import DecisionView
    from dlrover_nb.core.export.imported import Imported
    from dlrover_nb.core.export.provenance import Provenance
    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

_FILE: Columns[ImportView] = Columns(
    {
        **fields(
            "path job=imported.name kind=imported.kind version=imported.version "
            "auto_scale=imported.auto_scale"
        ),
        **through("imported.plan", PLAN),
        **fields("changed=imported.differs unknown=imported.unknown"),
    }
)
_DIFFERENCES: Columns[tuple[str, str, str]] = Columns(fields("what=0 in_file=1 now=2"))
_OWN = {"plan", "owner"}  # keys of a job that an import compares otherwise, or not


@dataclass(frozen=True, slots=True, repr=False)
class ImportView(Shown):
    """The content of a file of exported documents, compared with the running job of that name, if any.

    Parameters
    ----------
    path
        The file.
    imported
        Its content.
    running
        The present job of that name; None where there is none, or no cluster is connected.
    start, find
        Start a job, and find one by name, on the connected cluster; None while not connected.
    """

    path: str
    imported: Imported
    running: JobSnapshot | None = None
    start: Callable[..., Job] | None = None
    find: Callable[[str], Job] | None = None

    def submit(self, *, model: object = None, data: object = None) -> Job:
        """Start the job anew, on the imported plan.

        Parameters
        ----------
        model, data
            Your own, where the job needs them: their code is not in the file.

        Raises
        ------
        InvalidValueError
            When the file does not describe the job completely, or as `Cluster.submit`.
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
        return _connected(self.start)(spec, model=model, data=data)

    def apply(self, *, why: str = "") -> DecisionView:
        """Scale the running job of that name to the imported plan.

        Raises
        ------
        NotFoundError
            When no job of that name runs.
        InvalidValueError
            When the file contains no plan.
        CapacityError
            When the plan breaks a quota or a pin, or does not fit.
        """
        job = _connected(self.find)(self.imported.name)
        why = why or f"imported from {Path(self.path).name}"
        return job.scale(self._plan(job.snapshot().target), why=why)

    def view(self) -> View:
        """Return the content."""
        imported = self.imported
        listed = (*_listed("changed since", imported.differs), *_listed("not in the file", imported.unknown))
        blocks: list[Block] = [Facts((*_facts(imported), *listed))]
        if imported.plan is not None:
            blocks += plan_view(imported.plan).blocks
        blocks += _provenance_blocks(imported.provenance)
        return View(f"Import of {self.path}", (*blocks, *self._beside()))

    def tables(self) -> Tables:
        """Return it as data: the file, and what differs from the running job."""
        rows = () if self.running is None else tuple(differences(self.imported, self.running))
        return Tables(one(_FILE, self), {"differences": _DIFFERENCES.table(rows)})

    def _beside(self) -> tuple[Block, ...]:
        """Return how it differs from the job that runs under that name."""
        if self.running is None:
            return ()
        name = self.running.title
        rows = tuple(differences(self.imported, self.running))
        if not rows:
            return (Paragraph(f"Job {name} runs exactly this plan."),)
        return (Table(f"Different from job {name} as it runs", ("what", "in the file", "now"), rows),)

    def _plan(self, current: ResourcePlan) -> ResourcePlan:
        if self.imported.plan is not None:
            return self.imported.plan
        if not self.imported.parts:
            raise InvalidValueError(f"{self.path} holds no plan; name another file")
        return self.imported.parts.applied(current)


def import_file(
    path: Path | str,
    *,
    start: Callable[..., Job] | None = None,
    find: Callable[[str], Job] | None = None,
) -> ImportView:
    """Read a file of exported documents; see `Cluster.import_file`, and `ImportView` for the parameters."""
    imported = read_export(read_text(path, "file"))
    return ImportView(str(path), imported, _running(find, imported.name), start, find)


def _running(find: Callable[[str], Job] | None, name: str) -> JobSnapshot | None:
    if find is None or not name:
        return None
    try:
        return find(name).snapshot()
    except NotFoundError:
        return None


def _connected(function: Callable[..., Job] | None) -> Callable[..., Job]:
    if function is None:
        raise NotFoundError("not connected; connect first, then import the file again")
    return function


def differences(imported: Imported, running: JobSnapshot) -> Iterable[tuple[str, str, str]]:
    """Yield (what, in the file, now) for each part of the plan and the job that is not the same."""
    plan = imported.plan or imported.parts.applied(running.target)
    for role in ("worker", "ps"):
        for field in fields_of(getattr(plan, role)):
            here, now = (getattr(getattr(p, role), field.name) for p in (plan, running.target))
            if here != now:
                yield f"plan.{role}.{field.name}", f"{here:g}", f"{now:g}"
    if imported.job is not None:
        jobs = imported.job, running.spec
        here_job, now_job = map(_leaves, jobs)
        here, now = (_leaves(without_secrets(job)[0]) for job in jobs)  # as they are shown
        for key in here_job.keys() | now_job.keys():
            if here_job.get(key) != now_job.get(key):
                yield key, str(here.get(key, units.MISSING)), str(now.get(key, units.MISSING))


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


def _facts(imported: Imported) -> tuple[tuple[str, str], ...]:
    scale = {True: "DLRover may plan again (autoScale: true)", False: "fixed (autoScale: false)"}
    job = imported.job
    facts = (
        ("job", imported.name or units.MISSING),
        ("kind", imported.kind),
        ("exported by", f"dlrover-nb {imported.version}" if imported.version else "another system"),
        *((("replicas are", scale[imported.auto_scale]),) if imported.auto_scale is not None else ()),
    )
    if job is None:
        return facts
    if job.foreign is not None:
        return (
            *facts,
            ("program", shlex.join(redact_words(job.foreign.worker.command))),
            *_image(job.foreign),
        )
    return (*facts, ("data", job.data.words), ("training", job.training_words))


def _image(external: ExternalSpec) -> tuple[tuple[str, str], ...]:
    return (("image", external.worker.image),) if external.worker.image else ()


def _provenance_blocks(provenance: Provenance) -> list[Block]:
    blocks: list[Block] = []
    if provenance.decision is not None:
        blocks += [Heading("Where the plan came from"), *decision_view(provenance.decision).blocks]
    if (p := provenance.prediction) is not None:
        band = f"{units.rate(p.samples_per_s)}, 90 % band {units.number(p.low)} to {units.number(p.high)}"
        blocks.append(Facts((("predicted", band),)))
    return blocks


def _listed(title: str, lines: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((title if i == 0 else "", line) for i, line in enumerate(lines))
