"""The files of a program, in the run folder's ``nodes`` on its machine; and what is set before it begins."""

from __future__ import annotations

import logging
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import to_checked_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.launch.pod_script import (
    CLUSTER_VAR,
    REPORT_FILE_VAR,
    REPORT_TOKEN_VAR,
    TRUSTED_VAR,
)
from dlrover_nb.core.structs.job.external import CONFIG_VAR
from dlrover_nb.core.structs.training.reported import TOKEN_FILE_VAR
from dlrover_nb.core.structs.wire.pod_contract import NODE_VAR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

logger = logging.getLogger(__name__)

_BEGIN = """\
import sys
sys.path[:] = {path}
from dlrover_nb.core.backends.programs.program import main
main()
"""


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """The files of one node."""

    folder: Path
    node: str

    @property
    def configuration(self) -> Path:
        """Its `NodeConfig`."""
        return self.folder / f"{self.node}.json"

    @property
    def variables(self) -> Path:
        """The variables of the rendezvous, which its shell waits for."""
        return self.folder / f"{self.node}.variables"

    @property
    def master(self) -> Path:
        """The URL that it reports to."""
        return self.folder / f"{self.node}.url"

    @property
    def token(self) -> Path:
        """The token with which it reports."""
        return self.folder / f"{self.node}.token"

    @property
    def certificate(self) -> Path:
        """The certificate of the master's HTTP."""
        return self.folder / f"{self.node}.pem"

    @property
    def code(self) -> Path:
        """The exit code, once it has ended by itself."""
        return self.folder / f"{self.node}.code"

    @property
    def log(self) -> Path:
        """What it writes, to standard output and error alike."""
        return self.folder / f"{self.node}.log"

    def write_configuration(self, config: NodeConfig) -> None:
        """Write the configuration, for the user alone: it may hold secrets."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self.configuration, to_checked_json(config).decode())

    def remove(self) -> None:
        """Delete all but the log."""
        files = (self.configuration, self.variables, self.master, self.token, self.certificate, self.code)
        for path in files:
            path.unlink(missing_ok=True)


def command(files: ProgramFiles, how: str) -> list[str]:
    """Return the command of a program's process; `how` as in `supervisor`.

    It finds our modules as this process does, whatever the program's own variables say to Python.
    """
    path = [each for each in sys.path if Path(each).is_absolute()]
    return [sys.executable, "-I", "-c", _BEGIN.format(path=path), str(files.configuration), how]


def variables(
    config: NodeConfig,
    files: ProgramFiles,
    inherited: Mapping[str, str],
    *,
    token: str,
    certificate: str,
) -> dict[str, str]:
    """Return the variables of a program's process: inherited ones, the role's own, and ours, which win.

    The token and the certificate that they name are written into their files.
    """
    assert config.spec.foreign is not None
    theirs = dict(item.partition("=")[::2] for item in config.spec.foreign.program(config.role).env)
    write_whole(files.token, token)
    write_whole(files.certificate, certificate)
    ours = {
        CONFIG_VAR: str(files.configuration),
        CLUSTER_VAR: str(files.variables),
        NODE_VAR: config.node,
        REPORT_FILE_VAR: str(files.master),
        REPORT_TOKEN_VAR: token,
        TOKEN_FILE_VAR: str(files.token),
        TRUSTED_VAR: str(files.certificate),
    }
    return {**inherited, **theirs, **ours}


def free_port() -> int:
    """Return a port that no program listens on now, on any address: many programs listen on all of them."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def write_whole(path: Path, text: str) -> None:
    """Write a file that is read at any moment."""
    new = path.with_suffix(path.suffix + ".new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.replace(path)


def note_placement(spec: JobSpec, *, is_one: bool = True) -> None:
    """Note what it means, where there `is_one` machine, that roles say where they run."""
    assert spec.foreign is not None
    for role in spec.foreign.placed if is_one else ():
        logger.warning(
            "job %s: all programs share this machine: together_with of %s holds, apart_from is not applied",
            spec.name,
            role,
        )


def check_commands(spec: JobSpec) -> None:
    """Refuse programs that are not on this machine: their job would end after several starts."""
    assert spec.foreign is not None
    for role in spec.foreign.every:
        words = spec.foreign.program(role).command
        if words and shutil.which(words[0]) is None:
            raise InvalidValueError(
                f"the command of external.{role} begins with {words[0]!r}, which is no program of this "
                "machine; give the path of one, or install it"
            )
