"""Decisions about a job: each method makes one decision, in the user's name."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.api.views.job_views import DecisionView
from dlrover_nb.core.commands import requests
from dlrover_nb.core.commands.node_actions import Mitigate
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.widgets.jobs.restarts import restart_facts
from dlrover_nb.widgets.rows.tables import Tabular

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.api.views.stragglers_view import MitigationsView
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.job.spec_choices import Mode
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    R = TypeVar("R", bound=requests.Replans)
    V = TypeVar("V", int, float)


class Steering(Tabular):
    """The decisions about a job; `Job` is what users hold.

    Parameters
    ----------
    handle
        The client's side of the job.
    """

    def __init__(self, handle: JobHandle) -> None:
        self.handle = handle

    @property
    def name(self) -> str:
        """The job's name."""
        return self.handle.name

    def ask(self, request: requests.Decides) -> DecisionView:
        """Ask for any decision by its record, which has all that the methods below take.

        Parameters
        ----------
        request
            Such as ``Scale(workers=3, why="the queue is short")`` of `dlrover_nb.core.commands.requests`.

        Raises
        ------
        DlroverError
            As the method of that name does.

        Examples
        --------
        >>> from dlrover_nb.core.commands.requests import SetMode
        >>> job.ask(SetMode("auto", why="it knows by now"))
        """
        change: tuple[tuple[str, str], ...] = ()
        if isinstance(request, requests.Replans):
            now = self.handle.snapshot()
            wanted = request.planned(now)
            assert wanted is not None
            change = restart_facts(now, wanted)
            if now.spec.bounds.max_auc_loss is not None:
                (weighed,) = self.handle.weigh(wanted)
                change += (("mind its AUC", weighed.caution),) if weighed.caution else ()
        return DecisionView(self.handle.decide(request), self.handle.snapshot(), change)

    def accept(self, proposal: str | None = None, *, why: str = "") -> DecisionView:
        """Accept a proposal, so that its plan is applied, or an action against stragglers.

        Parameters
        ----------
        proposal
            Its id, such as ``"p3"``, or that of an action, such as ``"m1"``; None: the open one.
        why
            Reason, kept with the decision.

        Returns
        -------
        DecisionView
            The decision with its id, and its progress.

        Raises
        ------
        NotFoundError
            When none is open and none was named.
        InvalidValueError
            When a proposal and an action are open and none was named.
        StaleDecisionError
            When it is no longer open, with what happened since.

        Examples
        --------
        >>> job.accept("p1", why="worth its money")
        """
        return self.ask(requests.Accept(proposal or "", why=why))

    def reject(self, proposal: str | None = None, *, why: str = "") -> DecisionView:
        """Reject a proposal or an action, so that it is not made again until its gain changes.

        Parameters
        ----------
        proposal
            Its id, such as ``"p3"``, or that of an action, such as ``"m1"``; None: the open one.
        why
            Reason, kept with the decision.

        Raises
        ------
        NotFoundError
            When none is open and none was named.
        InvalidValueError
            When a proposal and an action are open and none was named.
        StaleDecisionError
            When it is no longer open.

        Examples
        --------
        >>> job.reject(why="the queue is long today")
        """
        return self.ask(requests.Reject(proposal or "", why=why))

    def override(  # noqa: PLR0913 - the parts of a plan, each by its name
        self,
        plan: ResourcePlan | None = None,
        *,
        workers: int | None = None,
        ps: int | None = None,
        worker_cpu: float | None = None,
        ps_cpu: float | None = None,
        worker_memory_mib: int | None = None,
        ps_memory_mib: int | None = None,
        proposal: str | None = None,
        why: str = "",
    ) -> DecisionView:
        """Answer a proposal with a plan of your own, which is applied instead.

        Parameters
        ----------
        plan
            The plan; None: the one that runs, with the parts below.
        workers, ps
            Number of workers, and of parameter servers.
        worker_cpu, ps_cpu
            Cores of each.
        worker_memory_mib, ps_memory_mib
            MiB of each.
        proposal
            Id of the proposal that is answered; None: the open one.
        why
            Reason, kept with the decision.

        Raises
        ------
        InvalidValueError
            When nothing is given, or a size is none that a node can have.
        NotFoundError
            When no proposal is open and none was named; `scale` needs none.
        CapacityError
            When the plan breaks a quota or a pin, or does not fit: it says which, and what would do.
        StaleDecisionError
            When the proposal is no longer open.

        Examples
        --------
        >>> job.override(workers=3, why="the queue is short today")
        """
        sizes = Pins(workers, ps, worker_cpu, ps_cpu, worker_memory_mib, ps_memory_mib)
        return self.ask(_replan(requests.Override, plan, sizes, proposal or "", why=why))

    def scale(  # noqa: PLR0913 - as above
        self,
        plan: ResourcePlan | None = None,
        *,
        workers: int | None = None,
        ps: int | None = None,
        worker_cpu: float | None = None,
        ps_cpu: float | None = None,
        worker_memory_mib: int | None = None,
        ps_memory_mib: int | None = None,
        why: str = "",
    ) -> DecisionView:
        """Change the running job, whether or not anything was proposed.

        Parameters
        ----------
        plan
            The plan; None: the one that runs, with the parts below.
        workers, ps
            Number of workers, and of parameter servers.
        worker_cpu, ps_cpu
            Cores of each.
        worker_memory_mib, ps_memory_mib
            MiB of each.
        why
            Reason, kept with the decision.

        Raises
        ------
        InvalidValueError
            When nothing is given, or a size is none that a node can have.
        CapacityError
            When the plan breaks a quota or a pin, or does not fit: it says which, and what would do.

        Examples
        --------
        >>> job.scale(ps=2, ps_cpu=0.5)
        """
        sizes = Pins(workers, ps, worker_cpu, ps_cpu, worker_memory_mib, ps_memory_mib)
        return self.ask(_replan(requests.Scale, plan, sizes, why=why))

    def undo(self, decision: str | None = None, *, why: str = "") -> DecisionView:
        """Undo the latest decision that can be taken back, by any user or by auto mode.

        That is a change of the plan, the mode, the pins, batch sizes, backup workers or learning rates. An
        undo is a decision too: undone again, it is a redo. A change of plan that is still under way is
        cancelled.

        Parameters
        ----------
        decision
            Id of the one that you saw as the latest, such as ``"d3"``; None: whichever it is now.
        why
            Reason, kept with the decision.

        Raises
        ------
        NotFoundError
            When there is nothing to take back.
        StaleDecisionError
            When `decision` is no longer the latest change, with who did what since.

        Examples
        --------
        >>> job.undo(why="it got slower")
        """
        return self.ask(requests.Undo(decision or "", why=why))

    def mitigate(  # noqa: PLR0913 - what can be done, each by its name
        self,
        *,
        restart: str | None = None,
        move: str | None = None,
        batches: Mapping[str, int] | None = None,
        accumulate: Mapping[str, int] | None = None,
        backup: int | None = None,
        rates: Mapping[str, float] | None = None,
        cores: Mapping[str, float] | None = None,
        memory: Mapping[str, int] | None = None,
        why: str = "",
    ) -> DecisionView | MitigationsView:
        """Order an action against stragglers, whether or not it was proposed; without one, show those so far.

        Give exactly one, or both `cores` and `memory` of one node, or `batches` and `accumulate`.

        Parameters
        ----------
        restart
            Name of a node, such as ``"worker-1"``: another one starts beside it and takes its place.
        move
            Name of a parameter server: it gets fewer parameters, the others more.
        batches
            Samples of one mini-batch of each worker by its name: a smaller one relieves a slow worker.
        accumulate
            How many of its mini-batches a worker computes for one update, by its name; one, where left out.
        backup
            Without how many slowest workers each round goes on, of a job whose workers wait for each other;
            0: it waits for all.
        rates
            Factor on the learning rate by the worker's name, of a job whose workers do not.
        cores, memory
            Cores and MiB that one node may use, by its name, whatever the plan says of its role: in place
            where the cluster can do that, else by a node of that size in its place.
        why
            Reason, kept with the decision.

        Returns
        -------
        DecisionView or MitigationsView
            The decision with its id, and its progress; `undo` takes back all but moves and new nodes. Where
            nothing is given, what `mitigations` returns, as the verb does.

        Raises
        ------
        InvalidValueError
            When several are given, a node is not there, or the job cannot do it.
        StaleDecisionError
            When the job cannot do it now.

        Examples
        --------
        >>> job.mitigate(restart="worker-1", why="its machine is busy")
        """
        request = Mitigate(
            restart,
            move,
            _plain(batches),
            backup,
            _plain(rates),
            _plain(cores),
            _plain(memory),
            _plain(accumulate),
            why=why,
        )
        return self.mitigations() if request == Mitigate() else self.ask(request)

    def mitigations(self) -> MitigationsView:
        """Return the actions against stragglers: the one that waits for an answer, and those so far.

        Examples
        --------
        >>> job.mitigations().snapshot.open_mitigation
        """
        from dlrover_nb.api.views.stragglers_view import MitigationsView  # noqa: PLC0415 - NumPy loads on demand

        return MitigationsView(self.handle.with_short_timeout.snapshot())

    def pin(  # noqa: PLR0913 - as above
        self,
        *,
        workers: int | None = None,
        ps: int | None = None,
        worker_cpu: float | None = None,
        ps_cpu: float | None = None,
        worker_memory_mib: int | None = None,
        ps_memory_mib: int | None = None,
        clear: bool = False,
        why: str = "",
    ) -> DecisionView:
        """Fix parts of every plan to come, beside those that are fixed already.

        Parameters
        ----------
        workers, ps
            Number of workers, and of parameter servers.
        worker_cpu, ps_cpu
            Cores of each.
        worker_memory_mib, ps_memory_mib
            MiB of each.
        clear
            Remove the existing pins first.
        why
            Reason, kept with the decision.

        Raises
        ------
        InvalidValueError
            When nothing is given, or just these are pinned already.
        CapacityError
            When no plan that keeps to them fits on the machines.

        Examples
        --------
        >>> job.pin(worker_memory_mib=4096)
        """
        sizes = Pins(workers, ps, worker_cpu, ps_cpu, worker_memory_mib, ps_memory_mib)
        return self.ask(requests.Pin(**asdict(sizes), clear=clear, why=why))

    def mode(self, mode: Mode | str, *, why: str = "") -> DecisionView:
        """Set who decides from now on.

        Parameters
        ----------
        mode
            ``"manual"``, ``"suggest"`` or ``"auto"``.
        why
            Reason, kept with the decision.

        Raises
        ------
        InvalidValueError
            For any other value.

        Examples
        --------
        >>> job.mode("auto")
        """
        return self.ask(requests.SetMode(mode, why=why))  # type: ignore[arg-type]  # it refuses other words

    def budget(self, total: float | None, *, why: str = "") -> DecisionView:
        """Set the most that the job may spend in total, in the currency of its prices.

        When it is spent, the job saves a checkpoint and stops.

        Parameters
        ----------
        total
            The limit, with what was spent already; None: no limit.
        why
            Reason, kept with the decision.

        Raises
        ------
        InvalidValueError
            When it is not more than what was spent, or a price of the job is unknown.
        StaleDecisionError
            When the job is being stopped already, as its budget is spent.

        Examples
        --------
        >>> job.budget(40, why="worth two more passes")
        """
        return self.ask(requests.SetBudget(total, why=why))


def _plain(values: Mapping[str, V] | None) -> dict[str, V] | None:
    return None if values is None else dict(values)


def _replan(kind: type[R], plan: ResourcePlan | None, sizes: Pins, *values: object, why: str) -> R:
    """Return the request for a plan with other sizes; None: for the one that runs."""
    if plan is None:
        return kind(*values, **asdict(sizes), why=why)
    return kind.to(sizes.applied(plan), *values, why=why)
