"""The places of a job where secrets stand, and the job without them.

A job keeps its secrets only where it needs them: in its run folder and in the Secret of its pods, which its
owner alone may read. What is written elsewhere holds a job without them. Exports, which are to run elsewhere,
have placeholders for what looks like a secret by its name or by its value, leave the credentials of URLs out,
and list both. The history, the last snapshot of an ended job, and the answers to programs and agents have a
placeholder for every value of a variable, because a name such as ``FEED`` says nothing of its value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from dlrover_nb.core.basics.redaction import PLACEHOLDER, USERINFO, is_secret_name, redact, redact_words
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.job.external import ExternalRole, FixedRole
    from dlrover_nb.core.structs.job.job import JobSpec

    RoleT = TypeVar("RoleT", ExternalRole, FixedRole)

_USERINFO = re.compile(rf"(?<=://){USERINFO}@")
_SIGNED = re.compile(
    r"(?<=\w)\?[^#\s]*(?:sig|signature|token|key|secret|password|credential)[^=\s]*=[^#\s]*", re.IGNORECASE
)
_VAULT = "vault.hashicorp.com/"
_CHECKPOINTS = {"checkpoint_url", "start_from.source"}
_QUERY = re.compile(r"\?[^#]*")
_URL_PARTS = re.compile(rf"(?<=://)({USERINFO}|[^/?#@\s]+)@|[?&][^=&#\s]+=([^&#\s]+)")


def without_secrets(job: JobSpec) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the job without credentials, and what to fill in, as text.

    A variable, an annotation or a label counts as secret by its name or the form of its value, a word of a
    command by its form or by the option before it, a URL by the part before its host and by its query. A
    label is left out, as its value could not be a placeholder.
    """
    left: list[str] = []

    def text(value: str, key: str) -> str:
        bare = _QUERY.sub("", value) if key in _CHECKPOINTS else _SIGNED.sub("", value)
        bare = redact(_USERINFO.sub("", bare).replace(f"{PLACEHOLDER}@", ""))
        if bare != value:
            left.append(f"the credentials of {key}")
        return bare

    def words(command: tuple[str, ...], key: str) -> tuple[str, ...]:
        bare = redact_words(text(word, key) for word in command)
        if bare != command:
            left.append(f"the credentials of {key}")
        return bare

    def variable(item: str, key: str) -> str:
        name, _, value = item.partition("=")
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

    def note(item: str, key: str) -> str:
        if (bare := _bare_note(item)) != item:
            left.append(f"the value of {item.partition('=')[0]} in {key}")
        return bare

    return _mapped(job, _Places(text, words, variable, note)), tuple(dict.fromkeys(left))


def for_storage(job: JobSpec) -> JobSpec:
    """Return the job as it is stored where others than its owner may read it, with placeholders."""
    return _mapped(
        job,
        _Places(
            text=lambda value, _: redact(value),
            words=lambda command, _: redact_words(command),
            variable=lambda item, _: f"{item.partition('=')[0]}={PLACEHOLDER}",
            note=lambda item, _: _bare_note(item),
        ),
    )


def secret_values(job: JobSpec) -> tuple[str, ...]:
    """Return the secrets of a job that are known: to be looked for in what its nodes write."""
    values: list[str] = []

    def text(value: str, _: str) -> str:
        values.extend(_in_url(value))
        return value

    def words(command: tuple[str, ...], _: str) -> tuple[str, ...]:
        for word, bare in zip(command, redact_words(command), strict=True):
            values.extend((*_in_url(word), *_hidden(word, bare)))
        return command

    def variable(item: str, _: str) -> str:
        name, _, value = item.partition("=")
        values.extend((*([value] if is_secret_name(name) else []), *_in_url(value)))
        return item

    def note(item: str, _: str) -> str:
        values.extend((*_in_url(item), *_hidden(item, _bare_note(item))))
        return item

    _mapped(job, _Places(text, words, variable, note))
    return tuple(dict.fromkeys(each for value in values if value for each in (value, unquote(value))))


def _in_url(value: str) -> list[str]:
    """Return password and parameters of the URLs in a text."""
    return [
        each
        for userinfo, parameter in _URL_PARTS.findall(value)
        for each in (userinfo.partition(":")[2], parameter)
    ]


def _hidden(text: str, bare: str) -> tuple[str, ...]:
    """Return what the placeholder at the end of a bare text stands for, if there is one."""
    begin = bare.removesuffix(PLACEHOLDER)
    return (text.removeprefix(begin),) if begin != bare and text.startswith(begin) else ()


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
    keys: list[str] = []

    def text(value: str, key: str) -> str:
        if PLACEHOLDER in value:
            keys.append(key)
        return value

    def variable(item: str, key: str) -> str:
        if PLACEHOLDER in item:
            keys.append(f"{key}.env {item.partition('=')[0]}")
        return item

    def note(item: str, key: str) -> str:
        if PLACEHOLDER in item:
            keys.append(f"{key} {item.partition('=')[0]}")
        return item

    def words(command: tuple[str, ...], key: str) -> tuple[str, ...]:
        text(" ".join(command), key)
        return command

    _mapped(job, _Places(text, words, variable, note))
    return tuple(dict.fromkeys(keys))


def _bare_note(item: str) -> str:
    """Return an annotation or label without its secret.

    Numbers and truth values are settings, whatever their names; Vault's annotations name where secrets lie.
    """
    name, _, value = item.partition("=")
    is_setting = re.fullmatch(r"\d{0,9}|true|false", value) is not None or name.startswith(_VAULT)
    if not is_setting and is_secret_name(name.rpartition("/")[2]):
        return f"{name}={PLACEHOLDER}"
    return f"{name}={redact(value)}"


@dataclass(frozen=True, slots=True)
class _Places:
    """What to do with each kind of place; the second argument is the key."""

    text: Callable[[str, str], str]
    words: Callable[[tuple[str, ...], str], tuple[str, ...]]  # of a command
    variable: Callable[[str, str], str]  # NAME=VALUE
    note: Callable[[str, str], str]  # the same, of annotations and labels


def _mapped(job: JobSpec, to: _Places) -> JobSpec:
    """Return the job with another text at each place that may hold a secret: the one list of these places."""

    def role(spec: RoleT, where: str) -> RoleT:
        key = f"external.{where}"
        command = to.words(spec.command, f"the command of {key}") if spec.command else ()
        return replace(spec, command=command, env=variables(spec.env, key))

    def variables(items: tuple[str, ...], key: str) -> tuple[str, ...]:
        return tuple(to.variable(item, key) for item in items)

    external, pods, start = job.foreign, job.kubernetes, job.start_from
    return replace(
        job,
        checkpoint_url=to.text(job.checkpoint_url, "checkpoint_url"),
        start_from=start and replace(start, source=to.text(start.source, "start_from.source")),
        data=replace(job.data, path=to.text(job.data.path, "data.path")),
        kubernetes=replace(
            pods,
            code_url=to.text(pods.code_url, "kubernetes.code_url"),
            env=variables(pods.env, "kubernetes"),
            annotations=tuple(to.note(item, "kubernetes.annotations") for item in pods.annotations),
            labels=tuple(
                label
                for label in (to.note(item, "kubernetes.labels") for item in pods.labels)
                if PLACEHOLDER not in label  # which is no value of a label
            ),
        ),
        foreign=external
        and replace(
            external,
            worker=role(external.worker, "worker"),
            ps=role(external.ps, "ps"),
            roles=tuple(role(each, each.name) for each in external.roles),
        ),
    )
