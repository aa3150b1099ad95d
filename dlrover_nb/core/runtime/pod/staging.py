"""What pods need of a user: code, rows, and a place for checkpoints.

Code is staged in a Secret where it is small, else in a folder of the user's. It is verified: a job names its
code by SHA-256, and any other content is refused before it is unpickled. Rows are not staged: pods read what
is mounted into them.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.disk.paths import rows_folder
from dlrover_nb.core.errors import CheckpointError, InvalidValueError, NotFoundError
from dlrover_nb.core.runtime.checkpoints import as_checkpoint_error, place_of
from dlrover_nb.core.runtime.checkpoints.first_parameters import write_first
from dlrover_nb.core.structs.job.datafiles import is_pattern, is_url
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.wire.pod_contract import CODE_BYTES, CODE_FOLDER
from dlrover_nb.core.usercode import Packed, file_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.runtime.store.partition import StorePart
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.checkpoint_places import FirstParameters


@dataclass(frozen=True, slots=True)
class Delivery:
    """Staged code: a folder, or the files for a Secret."""

    url: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


def send(packed: Sequence[Packed], *, url: str, run: str) -> Delivery:
    """Stage a user's code: return files for a Secret, or upload it into the folder if it is large.

    Parameters
    ----------
    packed
        What was pickled.
    url
        `KubernetesSpec.code_url`; empty: there is no such folder.
    run
        Name of the run: its code lies in a folder of that name below `url`.

    Raises
    ------
    InvalidValueError
        When the code is too large for a Secret and there is no other place.
    NotFoundError
        When the other place cannot be written to.
    """
    files = {name: each.content for each in packed if (name := file_of(each.code))}
    n_byte = sum(map(len, files.values()))
    if n_byte <= CODE_BYTES:
        return Delivery(files=files)
    if not url:
        raise InvalidValueError(
            f"code in a Secret must be <= {CODE_BYTES >> 10} KiB, got {-(-n_byte >> 10)} KiB; keep data out "
            "of it, or install it in the image and name it package.module:name, or set kubernetes.code_url "
            "to a folder that pods can read, such as s3://bucket/code"
        )
    folder = f"{url.rstrip('/')}/{run}"
    for name, content in files.items():
        _upload(f"{folder}/{name}", content)
    return Delivery(url=folder)


def send_first(part: StorePart, spec: JobSpec, *, run: str) -> FirstParameters:
    """Upload the parameters that a user's module has already to where pods can read them.

    Parameters
    ----------
    run
        As for `send`.

    Raises
    ------
    InvalidValueError
        When there is no such place.
    CheckpointError
        When it cannot be written to.
    """
    url = spec.kubernetes.code_url or spec.checkpoint_url
    if not url:
        raise InvalidValueError(
            "the embedding tables of a module begin with the values that it has here, and pods need to read "
            "them; set kubernetes.code_url, or checkpoint_url, to a folder that both can reach, such as "
            "s3://bucket/code"
        )
    root = f"{url.rstrip('/')}/{run}"
    with as_checkpoint_error(f"cannot write to {root}", "name a folder that you may write to"):
        fs, path, _ = place_of(root)
        fs.makedirs(path, exist_ok=True)  # as for code: pods may have another account
    return write_first(root, part)


def receive(spec: JobSpec, folder: Path, *, url: str, mounted: Path = Path(CODE_FOLDER)) -> None:
    """Fetch the code that a job names into its run folder; existing files are kept.

    Parameters
    ----------
    spec
        The job.
    folder
        The run folder, made if missing.
    url
        `Delivery.url`; empty: the code is in the Secret.
    mounted
        Where the Secret is.

    Raises
    ------
    NotFoundError
        When code cannot be read.
    InvalidValueError
        When it is not what was submitted.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for code in (spec.model.code, spec.data.path):
        name = file_of(code)
        if not name or (folder / name).exists():
            continue
        content = _download(f"{url}/{name}") if url else _read(mounted / name)
        if code != f"pickle:{hashlib.sha256(content).hexdigest()}":
            place = url or mounted
            raise InvalidValueError(
                f"{place}/{name} is not the code that was submitted; submit the job again"
            )
        Packed(code, content).write(folder)


def sees_rows(spec: JobSpec) -> bool:
    """Whether the client can read the job's rows as its pods do; else the job's master reads them.

    Raises
    ------
    InvalidValueError
        When they are a local file that no pod can read.
    """
    if spec.data.format in {DataFormat.CENSUS, DataFormat.OWN}:
        return True
    for path in spec.data.paths:
        if not is_url(path):
            _check_mounted(Path(path), [Path(volume.mount) for volume in spec.kubernetes.volumes])
    return False


def _check_mounted(path: Path, mounts: list[Path]) -> None:
    if is_pattern(str(path)) and not path.exists():
        path = Path(*itertools.takewhile(lambda part: not is_pattern(part), path.parts))
    if path.parent == rows_folder():
        raise InvalidValueError(
            "pods cannot read rows that are held here; write them where pods can read them, such as "
            "frame.to_parquet on a volume of kubernetes.volumes, and give that path as data"
        )
    if not any(path.is_relative_to(mount) for mount in mounts) and path.exists():
        raise InvalidValueError(
            f"pods cannot read {path}; mount a volume that holds it, such as kubernetes.volumes: "
            f"[{{mount: {path.parent}, claim: NAME, read_only: true}}], or give the rows as an object (data=)"
        )


def _upload(url: str, content: bytes) -> None:
    try:
        with as_checkpoint_error(
            f"cannot write code to {url}", "set kubernetes.code_url to a folder that you may write to"
        ):
            fs, path, _ = place_of(url)
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            fs.pipe_file(path, content)
    except CheckpointError as error:
        raise NotFoundError(str(error)) from error


def _download(url: str) -> bytes:
    try:
        with as_checkpoint_error(
            f"cannot read the job's code at {url}", "give pods what they need in kubernetes.env_secrets"
        ):
            fs, path, _ = place_of(url)
            content: bytes = fs.cat_file(path)
    except CheckpointError as error:
        raise NotFoundError(str(error)) from error
    return content


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(
            f"the job's code is not at {path} ({error.strerror}); submit the job again"
        ) from error
