"""How gradients and parameters are written for the way to another host: fewer bytes for less precision."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check


class Precision(StrEnum):
    """Type of the numbers of an array on its way."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"  # its range, 8 bits of precision
    FLOAT16 = "float16"  # 11 bits of precision; arrays are scaled into its range


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """What a job's exchanges between hosts carry; on one host all is float32.

    Parameters
    ----------
    dense
        Of the dense parameters and of their gradients.
    rows
        Of rows and of their gradients.
    dense_every
        Dense gradients of so many batches travel as their sum, and dense parameters come with it.
    """

    dense: Precision = Precision.FLOAT32
    rows: Precision = Precision.FLOAT32
    dense_every: int = 1

    def __post_init__(self) -> None:
        for name in ("dense", "rows"):
            if getattr(self, name) not in set(Precision):
                raise InvalidValueError(
                    f"exchange {name} must be {', '.join(Precision)}, got {getattr(self, name)!r}"
                )
        _check.at_least("exchange dense_every", self.dense_every, 1)

    @property
    def is_plain(self) -> bool:
        """Whether all is sent as it is, with every batch."""
        return self == PLAIN

    @property
    def words(self) -> str:
        """What differs from float32 with every batch, for people; empty: nothing does."""
        every = f" every {self.dense_every} batches" if self.dense_every > 1 else ""
        parts = [f"dense {self.dense}{every}"] if every or self.dense is not Precision.FLOAT32 else []
        return ", ".join([*parts, *([f"rows {self.rows}"] if self.rows is not Precision.FLOAT32 else [])])


PLAIN = ExchangeSpec()
