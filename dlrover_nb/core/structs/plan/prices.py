"""Prices of cores, memory and GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs import _check

ASSUMED = "assumed prices"
ARE_ASSUMED = "Prices are assumed."
MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Money per resource and hour; None is an unknown price.

    The default is a rounded list price of general-purpose virtual machines; it is an assumption,
    shown as such, until the user sets actual prices. With an unknown price no money is shown
    for any plan: a sum with a part left out would be a wrong number. A GPU has no assumed price, as kinds of
    them differ tenfold; it counts for plans with GPUs alone.
    """

    currency: str = "USD"
    cpu_hour: float | None = 0.034
    gib_hour: float | None = 0.0045
    assumed: bool = True
    gpu_hour: float | None = None

    @property
    def note(self) -> str:
        """What follows an amount of money: that its prices are assumed, where they are."""
        return f", {ASSUMED}" if self.assumed else ""

    def __post_init__(self) -> None:
        for name in ("cpu_hour", "gib_hour", "gpu_hour"):
            if getattr(self, name) is not None:
                _check.at_least(f"{name} price", getattr(self, name), 0)

    @property
    def is_free(self) -> bool:
        """Whether nothing costs anything."""
        return self.cpu_hour == 0 and self.gib_hour == 0 and not self.gpu_hour

    def per_hour(self, cpu: float, memory_mib: float, gpu: float = 0) -> float | None:
        """Return the money that these cost in an hour; None where the price of one of them is unknown."""
        if self.cpu_hour is None or self.gib_hour is None or (gpu and self.gpu_hour is None):
            return None
        return cpu * self.cpu_hour + memory_mib / MIB_PER_GIB * self.gib_hour + gpu * (self.gpu_hour or 0.0)
