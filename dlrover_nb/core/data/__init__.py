"""Rows of the user's data as numbers to train on.

The one source of rows that ships with the package is a part of Census-Income (KDD), UCI Machine Learning
Repository, licensed CC BY 4.0; ``census/README.md`` describes what was selected and how.

`make_features` reads a sample of the data once, at submit, and fixes how rows become numbers. Every node then
opens the same data with the same `FeatureSpec` in a `ShardReader` and reads the rows of its shards: shards
are index ranges, data is never sent. Nothing here depends on a node's state, hash seed or platform, so two
nodes that read the same rows get the same batch. Only numpy and pyarrow are imported, as this runs in
workers.
"""

from dlrover_nb.core.data.encode import Batch
from dlrover_nb.core.data.reader import ShardReader
from dlrover_nb.core.data.selection.feature_spec import make_features
from dlrover_nb.core.data.storage.encoded_rows import EncodedRows, encoded_rows

__all__ = ["Batch", "EncodedRows", "ShardReader", "encoded_rows", "make_features"]
