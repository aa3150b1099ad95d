"""Shards for TensorFlow: a `tf.data.Dataset` of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .shards import LOCAL_ROWS, Feed, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class ShardedData:
    """A dataset of batches, and the account of those that are trained.

    Parameters
    ----------
    read
        Returns a batch: its argument are the numbers of its rows.
    signature
        `tf.TypeSpec` of a batch, or a structure of them, as of ``tf.data.Dataset.from_generator``.
    new
        Returns where rows come from, for each time that the dataset is read.
    wait
        As of `shards`.
    batch_size
        Rows of a batch; one at the end of a shard has less.

    Attributes
    ----------
    dataset
        The dataset. It may read ahead (``prefetch``), but not be shuffled: rows count as done in the order in
        which they were drawn.
    """

    def __init__(
        self,
        read: Callable[[Sequence[int]], Any],
        signature: Any,  # noqa: ANN401 - a structure of TensorFlow's types
        new: Callable[[], Source],
        *,
        batch_size: int,
        wait: bool,
    ) -> None:
        import tensorflow as tf  # noqa: PLC0415 - only programs of TensorFlow have it

        self._read, self._new, self._batch_size = read, new, batch_size
        self._feed = Feed(new(), wait=wait)
        self.dataset = tf.data.Dataset.from_generator(self._batches, output_signature=signature)

    def done(self, n_row: int) -> None:
        """Count the next `n_row` rows as done, in the order in which they were drawn; after each step."""
        self._feed.done(int(n_row))

    def _batches(self) -> Iterator[Any]:
        self._feed.renew(self._new())
        for shard in self._feed.draw():
            for at in range(0, len(shard), self._batch_size):
                yield self._read(shard.rows[at : at + self._batch_size])


def tf_dataset(  # noqa: PLR0913 - settings, all but three by keyword
    read: Callable[[Sequence[int]], Any],
    signature: Any,  # noqa: ANN401 - as above
    n_row: int | None = None,
    *,
    batch_size: int,
    shuffle: bool = False,
    wait: bool = True,
    epochs: int = 1,
    shard_rows: int = LOCAL_ROWS,
) -> ShardedData:
    """Return the shards of this process as a `tf.data.Dataset`; see `ShardedData` and `shards`."""

    def new() -> Source:
        return Source(n_row, shuffle=shuffle, epochs=epochs, shard_rows=shard_rows)

    return ShardedData(read, signature, new, batch_size=batch_size, wait=wait)
