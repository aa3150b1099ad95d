"""Data behind URLs: listed and fetched with fsspec, which knows s3, gs, http and many more.

A file is fetched whole, to the cache of its machine: formats are read by ranges many times over, and a
shard that waits for a server is a worker that waits. A fetch has its size checked against what the server
told, is tried `N_TRY` times where the network is at fault, and gives up where the server says no. No
message holds credentials: files are named by their URLs without user and query, and errors of others are
redacted.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job.datafiles import bare, is_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.data.storage.cache import DataCache

N_TRY, PAUSE_S = 3, 1.0
CONNECT_S, STALL_S = 20.0, 60.0  # of a server without an answer, and of one that sends nothing more
_VERSIONS = (  # what file systems tell of a file's version, each by its own names
    "ETag", "etag", "Content-MD5", "md5Hash", "mtime", "LastModified", "last_modified", "Last-Modified",
    "updated", "created", "generation", "version_id",
)  # fmt: skip
_DENIED = {401, 403, 407}


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file behind a URL.

    Parameters
    ----------
    name
        Its URL without credentials.
    fs, path
        The file system of fsspec that holds it, and where.
    """

    name: str
    fs: Any
    path: str


def find(url: str) -> tuple[tuple[RemoteFile, ...], str]:
    """Return the files of a URL, sorted, and empty text; for one of a local disk none, and its path.

    Raises
    ------
    NotFoundError, InvalidValueError, BackendError
        When there are none, the URL is malformed or not permitted, or the server does not answer.
    """
    with as_data_error(bare(url), url):
        fs, path = _opened(url)
        if isinstance(fs, LocalFileSystem):
            return (), path
        fs.invalidate_cache()
        if is_pattern(url):
            paths = [name for name, info in fs.glob(path, detail=True).items() if info["type"] == "file"]
        elif url.endswith("/") or (not url.startswith("http") and fs.isdir(path)):
            paths = [info["name"] for info in fs.ls(path, detail=True) if info["type"] == "file"]
        else:
            paths = [path]
        return tuple(RemoteFile(bare(fs.unstrip_protocol(each)), fs, each) for each in sorted(paths)), ""


def fetch(file: RemoteFile, cache: DataCache) -> Path:
    """Return the file on this machine, fetched if it is not there yet; raises as `find` does."""

    def write(part: Path) -> None:
        _tried(lambda: _get(file, part, size), file)

    info = _tried(lambda: file.fs.info(file.path), file)
    size = info.get("size")
    version = [f"{key}={info[key]}" for key in _VERSIONS if info.get(key) is not None]
    where = file.fs.unstrip_protocol(file.path)
    return cache.get("\n".join([where, f"size={size}", *version]), write)


def _get(file: RemoteFile, part: Path, size: int | None) -> None:
    file.fs.get_file(file.path, str(part))
    n_byte = part.stat().st_size
    if size is not None and n_byte != size:
        raise BackendError(
            f"the connection ended after {n_byte:,} of {size:,} bytes of {file.name}; try again later"
        )


def _tried(call: Any, file: RemoteFile) -> Any:  # noqa: ANN401 - whatever fsspec returns
    """Return what a call gives, tried again where the network is at fault."""
    for n_left in range(N_TRY - 1, -1, -1):
        try:
            with as_data_error(file.name, str(file.path)):
                return call()
        except BackendError:
            if not n_left:
                raise
            time.sleep(PAUSE_S * (N_TRY - n_left))
    raise AssertionError  # the last try returns or raises


def _opened(url: str) -> tuple[Any, str]:
    options: dict[str, Any] = {}
    if url.startswith(("http://", "https://")):
        import aiohttp  # noqa: PLC0415 - only this file system takes it

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=STALL_S)
        options = {"client_kwargs": {"timeout": timeout}}
    fs, path = fsspec.core.url_to_fs(url, **options)
    return fs, path


@contextlib.contextmanager
def as_data_error(name: str, secret: str) -> Iterator[None]:
    """Convert any error of a file system into one line about the file `name`; `secret` is its full URL."""
    try:
        yield
    except DlroverError:
        raise
    except ImportError as error:
        raise InvalidValueError(
            f"reading {name} needs a package that is not installed ({error}); install it on every node"
        ) from error
    except Exception as error:  # each file system of fsspec has errors of its own
        raise _error_of(error, name, secret) from error


def _error_of(error: Exception, name: str, secret: str) -> DlroverError:
    status = _status(error)
    if isinstance(error, PermissionError) or status in _DENIED:
        what = (
            f"the server answered {status} ({HTTPStatus(status).phrase})" if status else "permission denied"
        )
        return InvalidValueError(
            f"cannot read {name}: {what}; renew the URL, or give nodes credentials for it"
        )
    if status in {404, 410} or (isinstance(error, FileNotFoundError) and not status):
        return NotFoundError(f"no data at {name}; check the URL")
    if isinstance(error, ValueError) and "rotocol" in str(error):
        return InvalidValueError(f"cannot read {name}: {error}; give a URL such as s3://, gs:// or https://")
    kind = type(error).__name__
    if isinstance(error, TimeoutError) or "Timeout" in kind:
        what = "accepted no connection" if "Connect" in kind else "sent nothing"
        limit_s = CONNECT_S if "Connect" in kind else STALL_S
        return BackendError(f"cannot read {name}: the server {what} for {limit_s:g} s; try again later")
    text = " ".join(redact(str(error).replace(secret, name)).split())[:200]
    reason = f"the server answered {status}" if status else f"{kind}: {text}"
    return BackendError(f"cannot read {name}: {reason}; check the network and the server")


def _status(error: BaseException | None) -> int | None:
    """Return the status of an HTTP answer that an error stems from."""
    while error is not None:
        status = getattr(error, "status", None)
        if isinstance(status, int) and status >= HTTPStatus.BAD_REQUEST:
            return status
        error = error.__cause__ or error.__context__
    return None
