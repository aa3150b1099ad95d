"""Progress as a training program reports it: the form of Kubeflow's TrainJobs, ``status.trainerStatus``.

Limits are those of the TrainJob's schema (trainer.kubeflow.org/v1alpha1, `TrainerStatus` and `Metric`), so
that whatever is accepted here may also be sent there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

TRAINER_PATH = "/v1/trainer"  # of a master's HTTP: where programs of its job report in this form
URL_VAR, CERTIFICATE_VAR, TOKEN_FILE_VAR = (
    "KUBEFLOW_TRAINER_SERVER_URL",
    "KUBEFLOW_TRAINER_SERVER_CA_CERT",
    "KUBEFLOW_TRAINER_SERVER_TOKEN",
)  # which give a program an address, and the paths of a certificate and of a token
MOST_METRICS, MOST_CHARS = 256, 64  # of one status; of a metric's name, and of its value
MOST_S = (1 << 31) - 1  # of the remaining time: 32 bits with a sign


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """The newest report of a program on its training.

    Parameters
    ----------
    at_s
        When that was so, by the program's clock.
    percentage
        How much is done, 0 to 100; None: not reported.
    remaining_s
        Estimated time until the end; None: not reported.
    metrics
        Names and values, in the program's order; values are text.
    """

    at_s: float
    percentage: int | None = None
    remaining_s: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _check.finite("lastUpdatedTime", self.at_s)
        _check_within("progressPercentage", self.percentage, 100)
        _check_within("estimatedRemainingSeconds", self.remaining_s, MOST_S)
        if len(self.metrics) > MOST_METRICS:
            raise InvalidValueError(f"metrics must be {MOST_METRICS} at most, got {len(self.metrics)}")
        for name, value in self.metrics:
            _check_text("the name of a metric", name)
            _check_text(f"the value of metric {shown(name)}", value)

    def number(self, *names: str) -> float | None:
        """Return the value of the first of these metrics that is there and a finite number."""
        values = dict(self.metrics)
        return next((value for name in names if (value := _number(values.get(name))) is not None), None)


@dataclass(frozen=True, slots=True)
class TrainerReport:
    """A status, and the name of the node whose program sent it."""

    node: str
    status: TrainerStatus


def _check_within(what: str, value: int | None, most: int) -> None:
    if value is not None and not 0 <= value <= most:
        raise InvalidValueError(f"{what} must be 0 to {most}, got {value}")


def _check_text(what: str, text: str) -> None:
    if not 1 <= len(text) <= MOST_CHARS:
        raise InvalidValueError(f"{what} must have 1 to {MOST_CHARS} characters, got {len(text)}")


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
