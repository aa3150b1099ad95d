"""The processes of an elastic job that train together: they change while training goes on.

Gradients are summed over all members by torch's collectives (gloo; nccl by configuration). Members come and
go between two steps: who remains keeps its process, its parameters and its place in the data. The master says
who is in the next *world* (`core.master.external.job.worlds`); this module carries its members there.

One collective carries all that a step needs, as a tail of the gradients: the rows of the step, who knows of
another world, who has no rows left, and how far each member is in the data. So all members learn the same at
the same step. When one of them dies in a step, others cannot know whether it counted: the state of the member
that is furthest is the job's, others get it and begin the next step from there.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import Session

logger = logging.getLogger(__name__)

NO_STATE = -1  # steps of a process that has no parameters yet
TIMEOUT_S = 30.0  # of a collective, where the loss of a member shows in no other way
_HEAD, _PER_RANK = 3, 5  # numbers of the tail: of all, and of each member
_PART = 1 << 20  # a float32 holds whole numbers up to 2**24: larger ones travel in two parts
_CHUNK = 64 << 20  # bytes of a broadcast


class LeftError(Exception):
    """The process is no longer needed: the job ends, or goes on with fewer processes."""


@dataclass(frozen=True)
class Member:
    """The process in a world.

    Parameters
    ----------
    number
        Of the world.
    rank, size
        Its rank, and the number of members.
    """

    number: int
    rank: int
    size: int


@dataclass(frozen=True)
class Sum:
    """What a step of all members came to.

    Parameters
    ----------
    n_row
        Rows of all members.
    is_over
        Whether no member has rows, or will get some.
    n_items
        Of what is gathered, how much each member has.
    """

    n_row: int
    is_over: bool
    n_items: tuple[int, ...] = ()


class Group:
    """The members of one job, seen by one of them; for one thread.

    Parameters
    ----------
    session
        The way to the master.
    dump, load
        Return what others need to go on from this process's state, and take it over: a tensor of bytes.
    seek
        Called with the grant and the rows of it up to which this process's rows are done, as the state of the
        new world contains them.
    checkpoints
        Folder of checkpoints, as of `dlrover_nb.client.checkpoint`.
    backend, device
        torch's backend, and where the tensors of its collectives lie.
    timeout_s
        How long a collective may take before its members count as lost.

    Attributes
    ----------
    step
        Steps applied to the state of this process.
    member
        Its place in the present world.
    """

    def __init__(  # noqa: PLR0913 - what a training is made of, by keyword
        self,
        session: Session,
        *,
        dump: Callable[[], torch.Tensor],
        load: Callable[[torch.Tensor], None],
        seek: Callable[[int, int], None],
        checkpoints: str | None = None,
        backend: str = "gloo",
        device: torch.device | str = "cpu",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._session, self._dump, self._load = session, dump, load
        self._seek, self._checkpoints = seek, checkpoints
        self._backend, self._device = backend, device
        self._timeout = timedelta(seconds=timeout_s)
        self.step, self.member = NO_STATE, Member(0, 0, 0)
        self._owners: list[str] = []
        self._reached: dict[str, tuple[int, int]] = {}
        self._stores: tuple[str, Any] = ("", None)
        self._coming: dict[str, tuple[int, int]] = {}
        self._is_outdated = False

    @property
    def n_tail(self) -> int:
        """How many numbers a buffer of gradients must have room for at its end."""
        return _HEAD + _PER_RANK * self.member.size

    def join(self) -> None:
        """Go to the next world; return when this process trains in it, with the state of all.

        Raises
        ------
        LeftError
            When it is not needed any more.
        """
        while True:
            self._close()
            answer = self._ask()
            self.member = Member(int(answer["number"]), int(answer["rank"]), len(answer["owners"]))
            self._owners = [str(owner) for owner in answer["owners"]]
            try:
                dist.init_process_group(
                    self._backend,
                    store=torch.distributed.distributed_c10d.PrefixStore(
                        f"world-{self.member.number}", self._store(answer["store"])
                    ),
                    rank=self.member.rank,
                    world_size=self.member.size,
                    timeout=self._timeout,
                )
                self._agree(answer)
            except (RuntimeError, OSError) as error:  # another member was lost meanwhile
                logger.info("world %d does not come about: %s", self.member.number, error)
                continue
            self._is_outdated = False
            self._session.report()  # and learn what this world's members do in a step
            return

    def sum(
        self, flat: torch.Tensor, n_row: int, place: tuple[int, int], *, is_over: bool, n_item: int = 0
    ) -> Sum | None:
        """Sum a step over all members; None: it does not count, and this process is in another world.

        Parameters
        ----------
        flat
            Gradients, summed over the rows, float32 [n + n_tail]; holds the sums of all afterwards.
        n_row
            Rows of this process in it.
        place
            Its place in the data after them: a grant, and rows of it; older grants are done.
        is_over
            Whether it has no rows, and will get none.
        n_item
            How much it has of what is gathered next, below 2**24.

        Raises
        ------
        LeftError
            As `join`.
        """
        tail = flat[-self.n_tail :]
        tail.zero_()
        tail[0], tail[1], tail[2] = (
            n_row,
            float(self._session.outdated_world == self.member.number),
            float(is_over),
        )
        at = _HEAD + _PER_RANK * self.member.rank
        for i, value in enumerate(place):
            tail[at + 2 * i], tail[at + 2 * i + 1] = divmod(value, _PART)
        tail[at + 4] = n_item
        try:
            dist.all_reduce(flat)
            numbers = tail.tolist()
        except RuntimeError as error:
            logger.info("a step is given up, as a member is lost: %s", error)
            self.join()
            return None
        self._is_outdated |= numbers[1] > 0
        parts = [int(number) for number in numbers[_HEAD:]]
        of_rank = [parts[i : i + _PER_RANK] for i in range(0, len(parts), _PER_RANK)]
        self._coming = {
            owner: (a * _PART + b, c * _PART + d)
            for owner, (a, b, c, d, _) in zip(self._owners, of_rank)  # noqa: B905 - Python 3.8
        }
        n_items = tuple(each[4] for each in of_rank)
        return Sum(int(numbers[0]), int(numbers[2]) == self.member.size, n_items)

    def gather(self, own: torch.Tensor, total: Sum) -> list[torch.Tensor] | None:
        """Return the rows of a matrix that each member has; None: as for `sum`.

        Parameters
        ----------
        own
            Those of this process, of one shape in all members but for their number, which was given to `sum`.
        total
            What `sum` returned.

        Raises
        ------
        LeftError
            As `join`.
        """
        padded = own.new_zeros((max(total.n_items), *own.shape[1:]))
        padded[: len(own)] = own
        gathered = [torch.empty_like(padded) for _ in total.n_items]
        try:
            dist.all_gather(gathered, padded)
        except RuntimeError as error:
            logger.info("a step is given up, as a member is lost: %s", error)
            self.join()
            return None
        return [rows[:n_item] for rows, n_item in zip(gathered, total.n_items)]  # noqa: B905

    def applied(self) -> None:
        """Note that the last sum was applied to the state; go to another world if one is due.

        Raises
        ------
        LeftError
            As `join`.
        """
        self.step += 1
        self._reached = self._coming
        if self._is_outdated:
            self.join()

    def keep(self) -> None:
        """Keep a checkpoint with all rows that its parameters contain, and no others; by one member.

        It is due between a sum and its application: all members have the step before by then, so its rows may
        count, also if a member is lost. No other member can get further than the summed step while this one
        is here, and it counts the rows of that only after the next one; so with the places of all members the
        master's account is that of these parameters.
        """
        self._session.tell_reached(self._places())
        checkpoint.save(self._dump().numpy().tobytes, self.step, folder=self._checkpoints)

    def close(self) -> None:
        """Leave the present world."""
        self._close()

    # parts

    def _ask(self) -> dict[str, Any]:
        """Ask for the next world until it is made."""
        reached = self._places()
        while True:
            name, answer = self._session.ask_world(self.member.number, self.step, reached)
            if name == "world":
                return answer
            if name == "world over":
                raise LeftError(str(answer["why"]))
            time.sleep(float(answer["wait_s"]))

    def _places(self) -> list[dict[str, Any]]:
        places = self._reached.items()
        return [{"owner": owner, "grant": grant, "n_row": n_row} for owner, (grant, n_row) in places]

    def _store(self, endpoint: str) -> Any:  # noqa: ANN401 - torch's type has no stubs
        """Return the store where members meet; it outlives any of them."""
        if self._stores[0] != endpoint:
            host, _, port = endpoint.rpartition(":")
            store = dist.TCPStore(  # type: ignore[attr-defined]
                host.strip("[]"), int(port), is_master=False, timeout=self._timeout
            )
            self._stores = endpoint, store
        return self._stores[1]

    def _agree(self, answer: dict[str, Any]) -> None:
        """Give all members the state of the one that is furthest, and their places in the data."""
        steps = [int(step) for step in answer["steps"]]
        newest, source = max(steps), int(answer["source"])
        is_source = self.member.rank == source
        if newest == NO_STATE and is_source:
            self.step = self._restored()
        if min(steps) < newest or newest == NO_STATE:
            self.step = self._send_state(source, is_source=is_source)
        reached = {str(each["owner"]): (int(each["grant"]), int(each["n_row"])) for each in answer["reached"]}
        own = self._owners[self.member.rank]
        if own in reached:
            self._seek(*reached[own])
        self._reached = self._coming = reached
        logger.info("world %d: rank %d of %d, step %d", *self._described())

    def _described(self) -> tuple[int, int, int, int]:
        return self.member.number, self.member.rank, self.member.size, self.step

    def _restored(self) -> int:
        """Take over the newest checkpoint, where no member has parameters; return its step, 0 for none."""
        newest = checkpoint.load(folder=self._checkpoints)
        if newest is None:
            return 0
        self._load(torch.frombuffer(bytearray(newest.state), dtype=torch.uint8))
        return newest.step

    def _send_state(self, source: int, *, is_source: bool) -> int:
        """Broadcast the source's state; return its step."""
        data = self._dump() if is_source else None
        head = torch.tensor([self.step, 0 if data is None else data.numel()], device=self._device)
        dist.broadcast(head, source)
        step, n_byte = (int(number) for number in head.tolist())
        if data is None:
            data = torch.empty(n_byte, dtype=torch.uint8)
        for start in range(0, n_byte, _CHUNK):
            chunk = data[start : start + _CHUNK].to(self._device)
            dist.broadcast(chunk, source)
            data[start : start + _CHUNK] = chunk
        if not is_source:
            self._load(data)
        return step

    def _close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
