"""CPU time of rows that were encoded before, beside encoding them again.

rows   512 rows of the Census data by shards of the default size: `encode_ms` reads and encodes them,
       `first_ms` does so and keeps them, as a first pass does, `again_ms` reads what was kept, as later
       passes do. As Parquet, and as CSV (`csv_...`).
step   a step of the quick start's model with its parameters in this process, over one pass: with rows that
       are encoded (`step_encoding_ms`) and that were encoded before (`step_ms`, `step_over_encoding`). Both
       have the same losses to the bit, or this fails.

    python benchmarks/encoded_rows.py [--rounds 3]

All take turns; figures are medians of the rounds, of CPU time, which the load of a machine disturbs less than
wall-clock time. One line of JSON comes last.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lengths import parsed, print_figures

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1] / "tests"))

import numpy as np
from support.runtime.single_process import train_single

from dlrover_nb.core.data import EncodedRows, ShardReader, encoded_rows, make_features
from dlrover_nb.core.data.source import CENSUS_FILE
from dlrover_nb.core.data.storage.cache import FOLDER_VAR
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat

BATCH = 512


def ms_of(reader: ShardReader, shards: list[tuple[int, int]]) -> float:
    began_s = time.process_time()
    for shard in shards:
        reader.read(*shard)
    return 1e3 * (time.process_time() - began_s) / sum(stop - start for start, stop in shards) * BATCH


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in rounds), 4) for name in rounds[0]}


def rows(data: DataSpec, n_round: int) -> dict[str, float]:
    spec = JobSpec("rows", data=data)
    features = make_features(data, spec.model)
    size, rng = spec.batch_size * spec.shard_batches, np.random.default_rng(0)
    starts = rng.permutation(np.arange(0, features.n_train - size + 1, size)).tolist()
    shards = [(start, start + size) for start in starts]
    plain = ShardReader(data, features)
    ms_of(plain, shards)  # warm
    rounds: list[dict[str, float]] = []
    for _ in range(n_round):
        shutil.rmtree(os.environ[FOLDER_VAR], ignore_errors=True)
        encoded = encoded_rows(data, features)
        assert encoded is not None
        cached = ShardReader(data, features, encoded=encoded)
        sides = (("encode_ms", plain), ("first_ms", cached), ("again_ms", cached))
        rounds.append({name: ms_of(reader, shards) for name, reader in sides})
        assert encoded.uses.n_hit == encoded.uses.n_miss == len(shards), encoded.uses
    return medians(rounds)


def steps(n_round: int) -> dict[str, float]:
    spec = JobSpec("steps", batch_size=BATCH, n_epoch=1)
    features = make_features(spec.data, spec.model)

    def one_pass(encoded: EncodedRows | None) -> tuple[float, tuple[float, ...]]:
        began_s = time.process_time()
        losses = train_single(spec, features, encoded=encoded).losses
        return 1e3 * (time.process_time() - began_s) / len(losses), losses

    encoded = encoded_rows(spec.data, features)
    one_pass(encoded)  # warm
    rounds = []
    for _ in range(n_round):
        encoding_ms, expected = one_pass(None)
        again_ms, losses = one_pass(encoded)
        assert losses == expected
        ratio = again_ms / encoding_ms
        rounds.append({"step_encoding_ms": encoding_ms, "step_ms": again_ms, "step_over_encoding": ratio})
    return medians(rounds)


def as_csv(folder: str) -> DataSpec:
    import pyarrow.csv
    import pyarrow.parquet as pq

    path = f"{folder}/rows.csv"
    pyarrow.csv.write_csv(pq.read_table(CENSUS_FILE), path)
    return DataSpec(DataFormat.CSV, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parsed(parser)
    with tempfile.TemporaryDirectory(prefix="dlb") as folder:
        os.environ[FOLDER_VAR] = f"{folder}/cache"
        data = as_csv(folder)
        time.sleep(2.1)  # rows of a file that was written a moment ago are not kept
        result = rows(DataSpec(), options.rounds)
        result |= {f"csv_{name}": value for name, value in rows(data, options.rounds).items()}
        result |= steps(options.rounds)
    print_figures("encoded_rows", result)


if __name__ == "__main__":
    main()
