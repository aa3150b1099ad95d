"""The contract of a user's own model, and its marker; without torch, as notebooks import it.

Parameters live on the parameter servers: a module's parameters are written before each batch and its
gradients are read after it. Running statistics of batch normalizations live there too (`batch_norms`). Other
buffers are not shared: one that changes in training would differ between workers, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.data.features import SequenceInput

CUSTOM = "custom"  # the name of a model that is the user's own
LOSS = "__dlrover_nb_loss__"  # attribute of a factory with the loss given to `trainable`

Factory = TypeVar("Factory", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a model is built for.

    Parameters
    ----------
    n_categorical, n_numeric
        Columns of ids, and of numbers.
    embedding_dim
        Floats of an embedding. A row has one more for a linear part: `row_width`.
    sequences
        Those of the columns of ids that have a list in each row: `name`, `place` among the columns of ids,
        `length` with padding, and `target`, the place of the column whose embeddings it has (or None).
    """

    n_categorical: int
    n_numeric: int
    embedding_dim: int
    sequences: tuple[SequenceInput, ...] = ()

    @property
    def row_width(self) -> int:
        """Floats of one embedded id."""
        return self.embedding_dim + 1


@overload
def trainable(factory: Factory) -> Factory: ...
@overload
def trainable(*, loss: Callable[[Any, Any], Any]) -> Callable[[Factory], Factory]: ...
def trainable(
    factory: Factory | None = None, *, loss: Callable[[Any, Any], Any] | None = None
) -> Factory | Callable[[Factory], Factory]:
    """Mark a class of `torch.nn.Module`, or a function that returns a module, as a model to train.

    It is called with one `Columns` record and gives a module whose
    ``forward(embedded, dense)`` returns logits, float32 of shape [batch]:

    - `embedded` is float32 [batch, n_categorical, row_width], the embeddings of the row's ids; their table
      lives on the parameter servers and is trained with the model; a column of lists has the mean of its
      items, zeros where there are none,
    - `dense` is float32 [batch, n_numeric], the scaled numbers.

    A module whose ``forward`` has a third argument named ``sequences`` also gets the items of columns of
    lists: a dict with, for the name of each, ``(items, is_item)``,

    - `items` float32 [batch, length, row_width], the newest of a row, oldest first; zeros behind them,
    - `is_item` bool [batch, length], where there is one. A list may be empty: a softmax over it is NaN.

    `Columns.sequences` says for each where its bag stands in `embedded`, and where the column whose
    embeddings it shares.

    Parameters
    ----------
    factory
        The class or function.
    loss
        ``loss(logits, labels)`` -> scalar, labels float32 of 0 and 1. Without it a method ``loss`` of the
        module is used, and without that binary cross entropy. Probabilities are the logits' sigmoid always.

    Notes
    -----
    Parameters and running statistics are shared between workers; they are float32, and all exist once the
    module is built. So:

    - modules are built on every worker, from one seed; a buffer that stays as it is built (a mask, a table of
      positions) is the same everywhere and is fine,
    - ``nn.BatchNorm1d``, ``2d`` and ``3d`` normalize in training by the rows of that worker's batch alone (no
      SyncBN): small batches per worker make them noisy. ``running_mean`` and ``running_var`` average the
      batches of all workers in the order in which they arrive, as one process would with the same batches.
      Checkpoints hold them, evaluation and predictions use them. ``momentum`` must be a number;
      ``num_batches_tracked`` is not kept. A layer that gets one value of each channel (a batch of one row,
      or lists with one item in all) normalizes it by the running statistics and leaves them,
    - other buffers that change in training are refused, and so is normalizing by the current batch in
      evaluation: a score must not depend on other rows,
    - dropout works: it is on in training and off in evaluation and prediction; each worker draws its own.

    A job takes it as ``cluster.submit(spec, model=MyNet)`` or ``%dlrover submit NAME --model MyNet``;
    installed code is named ``package.module:MyNet``.

    Examples
    --------
    >>> @trainable
    ... class Net(torch.nn.Module):
    ...     def __init__(self, columns):
    ...         super().__init__()
    ...         n_input = columns.n_categorical * columns.row_width + columns.n_numeric
    ...         self.out = torch.nn.Linear(n_input, 1)
    ...     def forward(self, embedded, dense):
    ...         return self.out(torch.cat([embedded.flatten(1), dense], 1)).squeeze(1)
    """

    def mark(thing: Factory) -> Factory:
        setattr(thing, LOSS, loss)
        return thing

    return mark if factory is None else mark(factory)
