"""Builds a job role by role: the same keys, defaults and refusals as a job file has."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.basics.redaction import BareRepr, redact_content
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.structs.job.job import JobSpec

_PLAN = ("count", "cpu", "memory_mib")


@dataclass(frozen=True, slots=True, repr=False)
class JobBuilder(BareRepr):
    """A job under construction; each method returns another builder, and changes nothing.

    Without any command it builds a job of our own trainer, with commands an external one.

    Parameters
    ----------
    name
        The job's name; or give it to `set`.
    content
        What is set so far, as in a job file.

    Examples
    --------
    >>> job = (
    ...     JobBuilder("ads")
    ...     .programs(framework="tensorflow", n_sample=1_000_000)
    ...     .role("worker", "python /app/train.py", count=4, cpu=2, memory_mib=4096)
    ...     .role("ps", "python /app/train.py", count=2)
    ...     .role("evaluator", "python /app/evaluate.py")
    ...     .build()
    ... )
    >>> job.plan.worker.count, [role.name for role in job.foreign.roles]
    (4, ['evaluator'])
    """

    name: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)

    def role(
        self,
        name: str,
        command: str | Sequence[str] = (),
        **settings: object,
    ) -> JobBuilder:
        """Return the builder with a role; one of the same name is replaced.

        Parameters
        ----------
        name
            ``worker``, ``ps``, or the name of a role beside them.
        command
            Its program and arguments; a text is split as a shell does. Of jobs of our own trainer: none.
        **settings
            Of `count`, `cpu` and `memory_mib` those that differ from the default; of an external job's role
            also the other keys that it has in a job file (`image`, `env`, `ends_job`, `together_with`,
            `apart_from`).

        Raises
        ------
        InvalidValueError
            When the command is no text that a shell could split, and no list.
        """
        words = _words(name, command)
        entry = _written(settings) | ({"command": words} if words else {})
        if name not in set(Role):
            others = [each for each in self._external.get("roles", ()) if each["name"] != name]
            return self.programs(roles=[*others, {"name": name, **entry}])
        size = {key: entry.pop(key) for key in _PLAN if key in entry}
        plan = {**self.content.get("plan", {}), name: size}
        sized = replace(self, content={**self.content, "plan": plan})
        return sized.programs(**{name: entry}) if entry or name in self._external else sized

    def programs(self, **keys: object) -> JobBuilder:
        """Return the builder with keys of the job file's ``external`` group, such as ``framework``."""
        return self.set(external={**self._external, **keys})

    def set(self, **keys: object) -> JobBuilder:
        """Return the builder with keys of a job file; a group is a mapping, and replaces that of before."""
        return replace(self, content={**self.content, **_written(keys)})

    def build(self) -> JobSpec:
        """Return the job.

        Raises
        ------
        InvalidValueError
            As for a job file, with the path of the key at fault.
        """
        return job_from({**({"name": self.name} if self.name else {}), **self.content})

    @property
    def _external(self) -> Mapping[str, Any]:
        external: Mapping[str, Any] = self.content.get("external", {})
        return external


def _words(role: str, command: str | Sequence[str]) -> list[str]:
    """Return the program and its arguments."""
    try:
        return shlex.split(command) if isinstance(command, str) else list(command)
    except (ValueError, TypeError) as error:
        raise InvalidValueError(
            f"the command of {role} must be a text as in a shell or a list of words, "
            f"got {redact_content('command', command)!r}: {error}"
        ) from error


def _written(value: Any) -> Any:  # noqa: ANN401 - whatever a job file may hold
    """Return a value as a job file would hold it."""
    if isinstance(value, dict):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_written(each) for each in value]
    return str(value) if isinstance(value, Path) else value
