"""The results of a job: logs, its history, documents of its plan, predictions, and a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.api import past
from dlrover_nb.api.steering import Steering
from dlrover_nb.api.views.job_views import HistoryView, LogsView, Note, logs_title
from dlrover_nb.core.disk.files import write
from dlrover_nb.core.errors import BackendError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.api.exports import ExportView
    from dlrover_nb.api.views.rehearsal_view import RehearsalView
    from dlrover_nb.api.views.stragglers_view import StragglersView
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


class Results(Steering):
    """The results of a job; `Job` is what users hold."""

    def logs(self, node: str | None = None, *, n: int = 100) -> LogsView:
        """Return the log lines of nodes, the newest last, including nodes that have ended.

        Where the job's master has ended too, these are the lines stored on this machine.

        Parameters
        ----------
        node
            Name of one, such as ``"worker-0"``; None: all.
        n
            How many lines.

        Raises
        ------
        NotFoundError
            When no node of that name is known; it names the nearest.
        InvalidValueError
            When `n` is below 1.
        BackendError
            When the master cannot be reached, and nothing of the job is on this machine.

        Examples
        --------
        >>> job.logs("worker-0", n=20)
        """
        try:
            return LogsView(logs_title(self.name, node), self.handle.logs(node, n_line=n))
        except BackendError as gone:
            if self.handle.simulated:
                raise
            return past.logs(self.name, node, n=n, gone=gone)

    def stragglers(self, solution: str | None = None) -> StragglersView:
        """Return which nodes are slow, with the numbers that say so, and what would help; nothing changes.

        Parameters
        ----------
        solution
            Which rules to ask for actions: ``"antdt-nd"``, ``"antdt-dd"``, ``"backup-workers"``,
            ``"adjust-lr"``, ``"lb-bsp"``, ``"none"`` or one of an installed package; None: those of the job.

        Raises
        ------
        InvalidValueError
            When there is no solution of that name.

        Examples
        --------
        >>> job.stragglers().review.findings
        """
        from dlrover_nb.api.views.stragglers_view import StragglersView  # noqa: PLC0415 - NumPy loads on demand
        from dlrover_nb.core.straggler.review import review  # noqa: PLC0415 - as above

        handle = self.handle.with_short_timeout
        snapshot = handle.snapshot()
        nodes = {node.id for node in snapshot.nodes}
        spec = snapshot.spec
        findings = review(
            handle.series(),
            nodes,
            spec,
            solution=solution,
            of_controller=snapshot.stragglers,
            costs=snapshot.batch_costs,
        )
        return StragglersView(snapshot, findings)

    def history(self, run: str | None = None) -> HistoryView:
        """Return this run of the job, or an earlier one, from the history.

        Parameters
        ----------
        run
            Id of the run, as `Cluster.history` lists it; None: the newest.

        Raises
        ------
        NotFoundError
            When there is no such run, or the job is simulated: nothing of that is kept.

        Examples
        --------
        >>> job.history().history.outcomes
        """
        from dlrover_nb.core.client.past.history_queries import run_history  # noqa: PLC0415 - SQLAlchemy loads on demand

        if run is None and self.handle.snapshot().simulated:
            raise NotFoundError(f"job {self.name} is simulated: no history is kept of it; see its status")
        return HistoryView(run_history(self.name, run))

    def export(  # noqa: PLR0913 - what the plan does not say, each by its name
        self,
        kind: str = "elasticjob",
        plan: ResourcePlan | str = "current",
        *,
        path: Path | str | None = None,
        force: bool = False,
        auto_scale: bool = False,
        check: bool = False,
        image: str | None = None,
        namespace: str | None = None,
        with_secrets: bool = False,
    ) -> ExportView:
        """Return a plan as YAML for another system, with where it came from in annotations.

        Parameters
        ----------
        kind
            ``"elasticjob"``, ``"elasticjob-0"`` (the older schema), ``"scaleplan"``, ``"tfjob"``,
            ``"pytorchjob"``, ``"trainjob"``, ``"jobset"`` or ``"pods"``. What a kind cannot run is
            refused with the reason.
        plan
            A plan, ``"current"``, or the id of a proposal such as ``"p3"``.
        path
            File to write; None: the text is returned only.
        force
            Overwrite an existing file.
        auto_scale
            Let the job's master (of an external job: DLRover) change the plan later; by default it is fixed.
        check
            Show the result of the validation, and that of a dry run of the API server where the job runs on
            Kubernetes. Documents are validated against the real schema in any case.
        image
            Of the pods.
        namespace
            Namespace; None: that of a job on Kubernetes; of others it is left to ``kubectl``, or ``default``
            where a file names a service account.
        with_secrets
            Write the job's secrets too; by default the result lists what to fill in.

        Returns
        -------
        ExportView
            ``.text`` is the YAML, ``.path`` the file, ``.to_fill_in`` names what is not in it.

        Raises
        ------
        InvalidValueError
            For an unknown kind, what the schema refuses (with its path), or a file that is there already.
        NotFoundError
            When there is no such proposal, or no such folder.

        Examples
        --------
        >>> job.export(plan="p3", path="elasticjob.yaml")
        """
        from dlrover_nb.api.exports import export, written  # noqa: PLC0415 - exports load on demand
        from dlrover_nb.core.export.nodes import Options  # noqa: PLC0415 - as above

        options = Options(namespace=namespace, auto_scale=auto_scale, with_secrets=with_secrets)
        if image:
            options = replace(options, image=image)
        shown = export(self.handle.snapshot(), kind, plan, options, checked=check, server=self.handle.link)
        return shown if path is None else written(shown, path, force=force, is_private=with_secrets)

    def predict(self, rows: object) -> NDArray[np.float32]:
        """Return the probability of each row by the model of the last checkpoint.

        Parameters
        ----------
        rows
            What `Cluster.submit` takes as data, with the columns that were trained on: a DataFrame, an Arrow
            table, a mapping of columns, or the path of files; and a single row as a mapping or a Series.

        Raises
        ------
        NotFoundError
            When there is no checkpoint yet.
        InvalidValueError
            When a column is missing, or cannot be read in the type that it had in training.

        Examples
        --------
        >>> job.predict("new.parquet").mean()
        >>> job.predict({"user": 17, "site": "example.org", "price": 2.5})
        """
        from dlrover_nb.core.client.trained_model import load_model  # noqa: PLC0415 - it loads torch

        return load_model(self.handle).predict(rows)

    def rehearse(
        self,
        *,
        workers: Sequence[int] | None = None,
        rows: int | None = None,
        seeds: int | None = None,
        passes: int | None = None,
        ways: Sequence[str] | None = None,
        variation: float | None = None,
    ) -> RehearsalView:
        """Measure what the staleness of more workers would cost this job in held-out AUC and loss.

        Short runs on a sample of its rows, in this process: the job itself goes on as it is, and prices its
        plans by the curves from then on. They are kept in the history.

        Parameters
        ----------
        workers, rows, seeds, passes, ways, variation
            As for `dlrover_nb.rehearse`.

        Raises
        ------
        InvalidValueError
            When it trains with programs of its own, or its held-out rows are of one class.
        NotFoundError
            When its rows cannot be read in this process.

        Examples
        --------
        >>> job.rehearse(workers=[1, 4, 16]).points
        """
        from dlrover_nb.api.rehearsals import hand_over, rehearse_job, settings_for  # noqa: PLC0415 - it loads torch
        from dlrover_nb.core.client.job_to_rehearse import running_job  # noqa: PLC0415 - it reads data

        job = running_job(self.handle)
        settings = settings_for(workers=workers, rows=rows, seeds=seeds, passes=passes, variation=variation)
        view = rehearse_job(job, settings, ways)
        hand_over(self.handle, job, view.result.curves)
        return view

    def report(self, path: Path | str, *, force: bool = False) -> Note:
        """Write a self-contained HTML report.

        Parameters
        ----------
        path
            File to write.
        force
            Overwrite an existing file.

        Raises
        ------
        InvalidValueError, NotFoundError
            When it is there already or cannot be written, or its folder is not there.

        Examples
        --------
        >>> job.report("report.html", force=True)
        """
        from dlrover_nb.widgets.past.html_report import report_html  # noqa: PLC0415 - views load on demand

        html = report_html(self.handle.snapshot(), self.handle.series())
        written = write(path, html, force=force)
        return Note(f"Report of {self.name}", f"written to {written}", str(written))
