"""Parameters of one PS: rows of the embedding table, and a slice of the dense vector."""

from dlrover_nb.core.runtime.store.partition import (
    StorePart,
    averages_in,
    dense_slice,
    even_bucket_owner,
    owned_buckets,
)
from dlrover_nb.core.runtime.store.store import ParameterStore

__all__ = ["ParameterStore", "StorePart", "averages_in", "dense_slice", "even_bucket_owner", "owned_buckets"]
