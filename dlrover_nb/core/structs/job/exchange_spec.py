"""What gradients and parameters are on the way to another host: how precise, and who can read them."""

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


class Encryption(StrEnum):
    """What protects messages between hosts; where it is `NONE`, they are authenticated all the same."""

    AES_GCM = "aes-gcm"
    NONE = "none"  # on a trusted network: it may read them


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
    encryption
        Of gradients, parameters, moves and copies of checkpoints between hosts. Messages to and from the
        master are always encrypted.
    """

    dense: Precision = Precision.FLOAT32
    rows: Precision = Precision.FLOAT32
    dense_every: int = 1
    encryption: Encryption = Encryption.AES_GCM

    def __post_init__(self) -> None:
        for name in ("dense", "rows"):
            if getattr(self, name) not in set(Precision):
                raise InvalidValueError(
                    f"exchange {name} must be {', '.join(Precision)}, got {getattr(self, name)!r}"
                )
        _check.at_least("exchange dense_every", self.dense_every, 1)
        if self.encryption not in set(Encryption):
            raise InvalidValueError(
                f"exchange encryption must be {', '.join(Encryption)}, got {self.encryption!r}"
            )

    @property
    def is_plain(self) -> bool:
        """Whether all is sent as it is, with every batch."""
        return self.dense == self.rows == Precision.FLOAT32 and self.dense_every == 1

    @property
    def warning(self) -> str:
        """What a person who submits such a job should know; empty: nothing."""
        return "" if self.encryption is Encryption.AES_GCM else _READABLE

    @property
    def words(self) -> str:
        """What differs from float32 with every batch, for people; empty: nothing does."""
        every = f" every {self.dense_every} batches" if self.dense_every > 1 else ""
        parts = [f"dense {self.dense}{every}"] if every or self.dense is not Precision.FLOAT32 else []
        return ", ".join([*parts, *([f"rows {self.rows}"] if self.rows is not Precision.FLOAT32 else [])])


_READABLE = (
    "exchange: {encryption: none}: anyone who can read the network between hosts can read gradients, "
    "parameters and copies of checkpoints of this job. Without its key no one can connect, change a message "
    "or forge one. Leave it out unless you trust that network."
)
PLAIN = ExchangeSpec()
