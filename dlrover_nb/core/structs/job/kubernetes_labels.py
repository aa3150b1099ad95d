"""Labels and annotations that a user gives to a job's objects, by Kubernetes' own rules.

They are checked where the job is read, since the API server would refuse a worker's pod only when the job
runs. Keys that this product or a controller sets are refused rather than overwritten: a label that silently
does not hold is looked for in vain.
"""

from __future__ import annotations

import re

from dlrover_nb.core.errors import InvalidValueError

_TAKEN = ("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "job-name", "controller-uid")
_TAKEN_PREFIXES = ("dlrover-nb/", "batch.kubernetes.io/", "elasticjob.dlrover/")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_PREFIX = 253
# Kubernetes takes 256 KiB of an object's annotations; the rest is for those of this product.
MOST_BYTES = 64 << 10


def check_labels(items: tuple[str, ...]) -> None:
    """Refuse labels, ``NAME=VALUE`` each, that an API server would refuse, or that are not the user's."""
    for item in items:
        key, value = _pair("labels", item)
        _check_key("labels", key)
        if value and not _NAME.fullmatch(value):
            raise InvalidValueError(
                f"the value of label {key} must be empty or at most 63 letters, digits, '-', '_' and '.', "
                f"with a letter or digit at both ends, got {value!r}"
            )


def check_annotations(items: tuple[str, ...]) -> None:
    """Refuse annotations, ``NAME=VALUE`` each; as `check_labels`, but their values are any text."""
    for item in items:
        _check_key("annotations", _pair("annotations", item)[0])
    if (n_byte := sum(len(item.encode()) for item in items)) > MOST_BYTES:
        raise InvalidValueError(
            f"annotations must be at most {MOST_BYTES >> 10} KiB together, got {n_byte >> 10} KiB; "
            "mount a ConfigMap as a volume instead"
        )


def _pair(field: str, item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals:
        raise InvalidValueError(f"{field} must hold NAME=VALUE, got {item!r}")
    return key, value


def _check_key(field: str, key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _is_domain(prefix)):
        raise InvalidValueError(
            f"a key in {field} must be NAME or DOMAIN/NAME, the name of at most 63 letters, digits, '-', '_' "
            f"and '.', as in kueue.x-k8s.io/queue-name, got {key!r}"
        )
    if key in _TAKEN or key.startswith(_TAKEN_PREFIXES):
        raise InvalidValueError(
            f"{field} must leave {key} out, which is set for each job's objects; choose another key"
        )


def _is_domain(text: str) -> bool:
    return len(text) <= _LONGEST_PREFIX and all(map(_DNS_LABEL.fullmatch, text.split(".")))
