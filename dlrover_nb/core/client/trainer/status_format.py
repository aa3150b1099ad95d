"""Kubeflow Trainer's protocol of training progress: a status as it goes over the wire.

A program of a TrainJob finds in its variables an address, the path of a file with a token, and that of a
certificate. It sends its status there now and then: a POST of JSON with the token as bearer. The answer is
200 with the status as it was understood, or a Kubernetes ``Status`` that says what is wrong.

Source: KEP-2779 and ``pkg/statusserver`` of kubeflow/trainer 2.2. As there, fields that are not known are
skipped, an update without a status is accepted and changes nothing, and a status needs ``lastUpdatedTime``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError, WireError
from dlrover_nb.core.structs.training.reported import TrainerStatus


class _Metric(msgspec.Struct):
    name: str
    value: str


class _Status(msgspec.Struct, rename="camel", omit_defaults=True):
    last_updated_time: Annotated[datetime, msgspec.Meta(tz=True)]
    progress_percentage: int | None = None
    estimated_remaining_seconds: int | None = None
    metrics: tuple[_Metric, ...] | None = None


class TrainJobUpdate(msgspec.Struct, rename="camel", omit_defaults=True):
    """The body of a request."""

    trainer_status: _Status | None = None


def read_status(body: bytes) -> TrainerStatus | None:
    """Return the status of a request's body; None where it has none.

    Raises
    ------
    WireError
        When it is something else, or a TrainJob could not hold it.
    """
    status = from_json(body, TrainJobUpdate).trainer_status
    if status is None:
        return None
    metrics = tuple((each.name, each.value) for each in status.metrics or ())
    try:
        return TrainerStatus(
            status.last_updated_time.astimezone(UTC).timestamp(),
            status.progress_percentage,
            status.estimated_remaining_seconds,
            metrics,
        )
    except (InvalidValueError, OverflowError) as error:  # the latter: no year of UTC
        raise WireError(str(error)) from error


def write_status(status: TrainerStatus | None) -> bytes:
    """Return the body that `read_status` reads."""
    if status is None:
        return to_json(TrainJobUpdate())
    metrics = tuple(_Metric(name, value) for name, value in status.metrics)
    at = datetime.fromtimestamp(status.at_s, UTC)
    return to_json(TrainJobUpdate(_Status(at, status.percentage, status.remaining_s, metrics or None)))
