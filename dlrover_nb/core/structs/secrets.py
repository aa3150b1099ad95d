"""The places of a job where secrets stand, and the job without them.

A job keeps its secrets only where it needs them: in its run folder and in the Secret of its pods, which its
owner alone may read. What is written elsewhere holds a job without them. Exports, which are to run somewhere,
have placeholders for what looks like a secret by its name or by its value, leave the credentials of URLs out,
and list both; the history and the last snapshot of an ended job have a placeholder for every value of a
variable, because a name such as ``FEED`` tells nothing of its value.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.redaction import PLACEHOLDER, USERINFO, is_secret_name, redact

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.external import ExternalRole, FixedRole
    from dlrover_nb.core.structs.job import JobSpec

    RoleT = TypeVar("RoleT", ExternalRole, FixedRole)

_USERINFO = re.compile(rf"(?<=://){USERINFO}@")
_SIGNED = re.compile(
    r"(?<=\w)\?[^#\s]*(?:sig|signature|token|key|secret|password|credential)[^=\s]*=[^#\s]*", re.IGNORECASE
)
_CHECKPOINTS = {"checkpoint_url", "start_from.source"}
_QUERY = re.compile(r"\?[^#]*")
_URL_PARTS = re.compile(rf"(?<=://)({USERINFO}|[^/?#@\s]+)@|[?&][^=&#\s]+=([^&#\s]+)")


def without_secrets(job: JobSpec) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the job without credentials in URLs, variables and commands, and what to fill in, as text.

    A variable counts as secret by its name or the form of its value, a word of a command by its form, a URL
    by the part before its host and by its query.
    """
    left: list[str] = []

    def text(value: str, key: str) -> str:
        bare = _QUERY.sub("", value) if key in _CHECKPOINTS else _SIGNED.sub("", value)
        bare = redact(_USERINFO.sub("", bare).replace(f"{PLACEHOLDER}@", ""))
        if bare != value:
            left.append(f"the credentials of {key}")
        return bare

    def variables(items: tuple[str, ...], key: str) -> tuple[str, ...]:
        return tuple(variable(*item.partition("=")[::2], key) for item in items)

    def variable(name: str, value: str, key: str) -> str:
        if not is_secret_name(name) and PLACEHOLDER not in value:
            bare = text(value, f"the variable {name} of {key}")
            if PLACEHOLDER not in bare:
                return f"{name}={bare}"
            left.pop()
        left.append(
            f"the variable {name} of {key} (fill it in, or remove it and name a Secret with it in "
            "kubernetes.env_secrets)"
        )
        return f"{name}={PLACEHOLDER}"

    return _mapped(job, text, variables), tuple(dict.fromkeys(left))


def for_storage(job: JobSpec) -> JobSpec:
    """Return the job as it is stored where others than its owner may read it, with placeholders."""

    def hidden(items: tuple[str, ...], _: str) -> tuple[str, ...]:
        return tuple(f"{item.partition('=')[0]}={PLACEHOLDER}" for item in items)

    return _mapped(job, lambda value, _: redact(value), hidden)


def secret_values(job: JobSpec) -> tuple[str, ...]:
    """Return the secrets of a job that are known: to be looked for in what its nodes write."""
    values: list[str] = []

    def text(value: str, _: str) -> str:
        for userinfo, parameter in _URL_PARTS.findall(value):
            values.extend([userinfo.partition(":")[2], parameter])
        return value

    def variables(items: tuple[str, ...], key: str) -> tuple[str, ...]:
        for item in items:
            name, _, value = item.partition("=")
            if is_secret_name(name):
                values.append(value)
            text(value, key)
        return items

    _mapped(job, text, variables)
    return tuple(dict.fromkeys(each for value in values if value for each in (value, unquote(value))))


def check_complete(job: JobSpec) -> None:
    """Check that no secret of a job is a placeholder, as in a job that was read from the history.

    Raises
    ------
    InvalidValueError
        It names the keys.
    """
    if keys := _placeholders(job):
        raise InvalidValueError(
            f"{', '.join(keys)} of job {job.name} must hold a secret, got {PLACEHOLDER}: none is stored; "
            "set their values, or name Secrets in kubernetes.env_secrets"
        )


def _placeholders(job: JobSpec) -> tuple[str, ...]:
    """Return the keys that hold a placeholder."""
    found: list[str] = []

    def text(value: str, key: str) -> str:
        if PLACEHOLDER in value:
            found.append(key)
        return value

    def variables(items: tuple[str, ...], key: str) -> tuple[str, ...]:
        found.extend(f"{key}.env {item.partition('=')[0]}" for item in items if PLACEHOLDER in item)
        return items

    _mapped(job, text, variables)
    return tuple(dict.fromkeys(found))


def _mapped(
    job: JobSpec,
    text: Callable[[str, str], str],
    variables: Callable[[tuple[str, ...], str], tuple[str, ...]],
) -> JobSpec:
    """Return the job with another text at each place that may hold a secret: the one list of these places."""

    def role(told: RoleT, where: str) -> RoleT:
        words = tuple(text(word, f"the command of external.{where}") for word in told.command)
        return replace(told, command=words, env=variables(told.env, f"external.{where}"))

    external, pods, start = job.foreign, job.kubernetes, job.start_from
    return replace(
        job,
        checkpoint_url=text(job.checkpoint_url, "checkpoint_url"),
        start_from=start and replace(start, source=text(start.source, "start_from.source")),
        data=replace(job.data, path=text(job.data.path, "data.path")),
        kubernetes=replace(
            pods,
            code_url=text(pods.code_url, "kubernetes.code_url"),
            env=variables(pods.env, "kubernetes"),
        ),
        foreign=external
        and replace(
            external,
            worker=role(external.worker, "worker"),
            ps=role(external.ps, "ps"),
            roles=tuple(role(each, each.name) for each in external.roles),
        ),
    )
