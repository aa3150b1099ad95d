"""Kubernetes' quantities: written in one form, read in all."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.kubernetes import gpu_resource
from dlrover_nb.core.yamltext import named

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import RolePlan

MIB = 1 << 20
LARGEST = 1 << 63
_SCALES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(1000),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("MGTPE", start=2)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,3})?")


def resources_of(plan: RolePlan) -> dict[str, str]:
    """Return the resources of one node of a role as quantities; cores as a whole number of thousandths."""
    amounts = {"cpu": f"{round(plan.cpu * 1000)}m", "memory": f"{plan.memory_mib}Mi"}
    return {**amounts, **gpu_resource(plan.gpu)}


def amount(value: object, where: str) -> Decimal:
    """Return the number of a quantity such as ``500m``, ``3Gi``, ``2`` or ``0.5`` means.

    Raises
    ------
    InvalidValueError
        When it is none, or too large; the text begins with `where`.
    """
    text = str(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else ""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise InvalidValueError(f"{where} must be a quantity such as 500m, 2 or 3Gi, got {named(value)}")
    number, unit = match[1], match[2] or ""
    exact = Decimal(number) * _SCALES[unit] if unit in _SCALES else Decimal(number + unit)
    if abs(exact) > LARGEST:
        raise InvalidValueError(f"{where} must be at most 2^63, as Kubernetes counts, got {text[:60]}")
    return exact
