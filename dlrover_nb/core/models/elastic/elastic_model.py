"""A user's module of any library, taken apart: tables for the parameter servers, the rest for the workers.

Its tables keep their values, which become the first rows of the job, so a job of one worker trains what the
module's own loop does. Its code and its other parameters travel to the nodes as they are. What a job needs to
know of it, columns, widths and rows, follows from running it once on rows that tell columns apart
(`tracing`), so nothing has to be declared twice.

Rejected: rows by formula, as for our own models: losses could not be compared with those of the module's own
training. Rejected: tables on the workers with their changes on the PS: they would need the memory that
parameter servers are there for.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.adapters import face_of
from dlrover_nb.core.models.elastic.inputs import InputColumns, ids_and_numbers
from dlrover_nb.core.models.elastic.layout import NO_LAYOUT, layout_of
from dlrover_nb.core.models.elastic.net import ElasticNet, Face
from dlrover_nb.core.models.elastic.tables import take_tables
from dlrover_nb.core.models.elastic.tracing import N_ROW, calls_of
from dlrover_nb.core.structs.data.features import FeatureSpec, SequenceSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import nn

    from dlrover_nb.core.models.elastic.inputs import RowColumns
    from dlrover_nb.core.models.elastic.layout import Layout
    from dlrover_nb.core.models.elastic.tables import TakenModule
    from dlrover_nb.core.structs.data.features import CategoricalColumn
    from dlrover_nb.core.structs.job.job import DataSpec, JobSpec

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    Floats = NDArray[np.float32]

WASTE = 0.5  # share of unused floats of rows from which a submit says so


@dataclass(frozen=True, slots=True)
class ModuleParts:
    """A module that was taken apart: what calls it, its columns, and where its tables lie."""

    net: ElasticNet
    columns: InputColumns
    layout: Layout


class ElasticModel:
    """A module whose tables live on the parameter servers; `elastic` makes it, a submit takes it as model.

    Parameters
    ----------
    parts
        The module.
    weights
        The first values of its tables. They do not travel to the nodes: a pickled model has none.
    loss
        The user's; None: that of `ElasticNet`.
    """

    def __init__(
        self, parts: ModuleParts, weights: tuple[torch.Tensor, ...], loss: Loss | None = None
    ) -> None:
        self.parts, self.weights = parts, weights
        self.__dlrover_nb_loss__ = loss
        self.__name__ = type(parts.net.module).__name__

    def __call__(self, columns: object) -> ElasticNet:  # noqa: ARG002 - as all factories are called
        """Return the module for a worker."""
        return copy.deepcopy(self.parts.net)

    def __getstate__(self) -> dict[str, object]:
        """Return what travels to the nodes."""
        return {**vars(self), "weights": ()}

    @property
    def __dlrover_nb_user_code__(self) -> tuple[object, ...]:
        """The classes and functions of others that it needs on the nodes."""
        net = self.parts.net
        kinds = dict.fromkeys(kind for each in net.module.modules() for kind in type(each).__mro__)
        return (*kinds, *filter(None, (net.inputs, self.__dlrover_nb_loss__)))

    def completed(self, spec: JobSpec) -> JobSpec:
        """Return a job with the columns and the widths of the module.

        Raises
        ------
        InvalidValueError
            When the job names other columns, or cannot train such a module.
        """
        if spec.sync is Sync.ALLREDUCE:
            raise InvalidValueError(
                f"{self.__name__} has its tables on parameter servers, got sync allreduce without them; use "
                "sync asp, ssp, bsp or gba, or dlrover_nb.client.elastic for all-reduce"
            )
        model = replace(spec.model, embedding_dim=self.parts.layout.row_width - 1, embedding=Embedding.FIXED)
        return replace(spec, model=model, data=self._data(spec.data))

    def encoding(self, features: FeatureSpec) -> FeatureSpec:
        """Return the encoding of rows whose ids and numbers reach the module as they are."""
        by_name = {column.name: column for column in features.categorical}
        numbers = {column.name: column for column in features.numeric}
        columns = self.parts.columns
        return replace(
            features,
            numeric=tuple(replace(numbers[name], is_plain=True) for name in columns.numbers),
            categorical=tuple(self._encoded(by_name[name], i) for i, name in enumerate(columns.ids)),
        )

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should know of it before it is trained."""
        layout, texts = self.parts.layout, list[str]()
        if layout.unused > WASTE:
            texts.append(
                f"rows of {self.__name__} are as wide as its widest tables, {layout.row_width} floats, and "
                f"{percent(layout.unused)} of them are unused; give its embeddings similar widths"
            )
        if self.parts.net.penalizes_rows:
            texts.append(
                f"the L2 penalty of the tables of {self.__name__} is added for the rows of each batch alone, "
                "not for all rows in each step, so rows that are seen rarely decay less"
            )
        return tuple(texts)

    def first_rows(self) -> Iterator[tuple[int, int, int, Floats]]:
        """Yield the first values of each table: its first row, its floats [start, stop), and the values."""
        for part, weight in zip(self.parts.layout.tables, self.weights, strict=True):
            yield part.first_row, part.start, part.stop, weight.numpy()

    def _data(self, data: DataSpec) -> DataSpec:
        columns, lists = self.parts.columns, dict(self.parts.columns.lists)
        single = tuple(name for name in columns.ids if name not in lists)
        for key, wanted in (("numeric", columns.numbers), ("categorical", single)):
            named = getattr(data, key)
            if named and set(named) != set(wanted):
                raise InvalidValueError(
                    f"data.{key} must name the columns of {self.__name__}, {', '.join(wanted) or 'none'}, "
                    f"got {', '.join(named)}; leave {key} out"
                )
        named_lists = {each.column: each for each in data.sequences}
        sequences = tuple(
            replace(named_lists.get(name, SequenceSpec(name)), length=length, embedding_of="")
            for name, length in columns.lists
        )
        return replace(data, numeric=columns.numbers, categorical=single, sequences=sequences)

    def _encoded(self, column: CategoricalColumn, index: int) -> CategoricalColumn:
        part = self.parts.layout.columns[index]
        return replace(column, offset=part.first_row, hash_size=part.n_id, is_plain=True)


def elastic(  # noqa: PLR0913 - the names of the columns, and what few modules need
    module: nn.Module,
    *,
    ids: Sequence[str] | None = None,
    numbers: Sequence[str] | None = None,
    lists: Mapping[str, int] | None = None,
    inputs: Callable[[RowColumns], object] | None = None,
    loss: Loss | None = None,
    probabilities: bool = False,
) -> ElasticModel:
    """Take a torch module as it is, with its embedding tables on the parameter servers.

    Its `nn.Embedding` and `nn.EmbeddingBag` (also with `padding_idx`, `sparse=True`, or one table for several
    columns) are looked up there and start with the values that they have now; the rest of its code and its
    other parameters are left as they are. The module itself is not changed.

    Models of DeepCTR-Torch and FuxiCTR say themselves which columns they take. Of any other module the names
    are given here.

    Parameters
    ----------
    module
        The module. It returns logits, float32 [n] or [n, 1].
    ids
        Columns of the data whose ids are looked up: whole numbers, the rows of the tables.
    numbers
        Columns of numbers, which are given as they are.
    lists
        Those of `ids` that have lists, with the most items that the module takes; shorter ones end with
        zeros, of longer ones the last items are taken.
    inputs
        Makes the arguments of `forward` of a mapping from columns to tensors (ids int64 [n], lists int64
        [n, length], numbers float32 [n]): a tuple, or the only one. None: ``(ids, numbers)``, int64 [n, n_id]
        and float32 [n, n_number], or ids alone where there are no numbers.
    loss
        ``loss(logits, labels)`` -> scalar; None: binary cross entropy, for models of the two libraries as
        their own training computes it.
    probabilities
        Whether the module returns probabilities instead of logits.

    Raises
    ------
    InvalidValueError
        When a table cannot be taken; it says which and what to do.

    Examples
    --------
    >>> model = dlrover_nb.elastic(net, ids=["user", "item"], numbers=["age"])
    >>> job = cluster.submit(data="clicks.parquet", label="clicked", model=model, optimizer="adagrad")
    """
    source = take_tables(module)
    if ids is None:
        face = face_of(source)
        if numbers or lists or inputs:
            raise InvalidValueError(
                "numbers, lists and inputs go with ids; name the columns of ids, too, or leave all out"
            )
    else:
        length = dict(lists or {})
        if unknown := [name for name in length if name not in ids]:
            raise InvalidValueError(f"lists names {unknown[0]}, which is not among ids; name it there, too")
        columns = InputColumns(tuple(ids), tuple(numbers or ()), tuple(length.items()))
        face = Face(columns, inputs or ids_and_numbers)
    face = replace(face, is_probability=face.is_probability or probabilities)
    return ElasticModel(_apart(source, face), source.weights, loss)


def _apart(source: TakenModule, face: Face) -> ModuleParts:
    """Find what the module looks up, and lay its tables out."""
    was_training = source.module.training
    source.module.eval()
    probe = ElasticNet(source.module, source.lookups, face, NO_LAYOUT)
    try:
        calls = calls_of(source.lookups, face.columns, probe.run)
    except InvalidValueError:
        raise
    except Exception as error:
        raise InvalidValueError(
            f"{type(source.module).__name__} failed on {N_ROW} rows of its columns "
            f"({type(error).__name__}: {error}); check ids, numbers and inputs"
        ) from error
    source.module.train(was_training)
    layout = layout_of(source.tables, calls, face.columns.slots)
    source.lookups.plan(calls, layout.cuts(calls))
    return ModuleParts(
        ElasticNet(source.module, source.lookups, face, layout, source.tables), face.columns, layout
    )
