"""How a user's own class, function or object reaches the nodes, and how they verify it.

Code is named in one of two ways. ``package.module:name`` is imported on each node, which must have it
installed. ``pickle:SHA256`` is a file in the job's run folder, which only its user may enter: code that is
not installed (a notebook's cell, a script beside it) is pickled by value at submit, and a node unpickles it
only if the SHA-256 of the file is the one in the job's record. Such files are never sent over a socket.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import pickle
import pickletools
import re
import secrets
import sys
import sysconfig
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.disk.files import replace_synced
from dlrover_nb.core.errors import InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

_IMPORTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PICKLED = re.compile(r"pickle:(?P<sha256>[0-9a-f]{64})")
_FLEETING = re.compile(r".*\.py|<[^>]*>|[0-9a-f]{32}", re.DOTALL)
_PLACES = ("stdlib", "platstdlib", "purelib", "platlib")
_SITES = frozenset({"site-packages", "dist-packages"})
USER_CODE = "__dlrover_nb_user_code__"  # attribute of an object of ours with the user's classes in it


def is_import(text: str) -> bool:
    """Whether `text` names something to import, such as ``package.module:name``; pickled code has no name."""
    return _IMPORTED.fullmatch(text) is not None and _PICKLED.fullmatch(text) is None


@dataclass(frozen=True, slots=True)
class Packed:
    """Code as it is named in a job, and the file that it needs in the run folder (empty: none)."""

    code: str
    content: bytes

    def write(self, folder: Path) -> None:
        """Write the file to the run folder, readable for its owner alone; an existing one is kept."""
        path = _path(self.code, folder)
        if path is None or path.exists():
            return
        temporary = path.with_suffix(f".{secrets.token_hex(8)}")  # pods share folders, and each is process 1
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.content)
        replace_synced(temporary, path)

    def load(self) -> object:
        """Return the object that a node would load."""
        return pickle.loads(self.content) if self.content else load(self.code, None)  # noqa: S301 - made here


def pack(thing: object) -> Packed:
    """Pack a user's class, function or object for the nodes; text names code to import.

    Raises
    ------
    InvalidValueError
        When it cannot be pickled; the text names what of it cannot.
    """
    import cloudpickle  # noqa: PLC0415 - a job of built-in parts needs none

    if isinstance(thing, str):
        return Packed(_checked(thing), b"")
    try:
        with ExitStack() as stack:
            parts = (thing, *getattr(thing, USER_CODE, ()))
            for module in dict.fromkeys(_top_not_installed(_module_of(part)) for part in parts):
                stack.enter_context(_by_value(module))
            content = cloudpickle.dumps(thing)
    except Exception as error:  # whatever a user's object raises when it is pickled
        raise InvalidValueError(
            f"{name_of(thing)} cannot be sent to the nodes: {_culprit(thing)}{_line(error)}; "
            "make it inside the class or function, or name installed code as package.module:name"
        ) from error
    return Packed(f"pickle:{hashlib.sha256(content).hexdigest()}", content)


def load(code: str, folder: Path | None) -> object:
    """Return the user's class, function or object.

    Parameters
    ----------
    code
        ``package.module:name`` or ``pickle:SHA256``.
    folder
        The job's run folder, where pickled code lies.

    Raises
    ------
    NotFoundError
        When there is no such module, name or file here.
    InvalidValueError
        When the file is not the one that was submitted, or cannot be unpickled.
    """
    path = None if folder is None else _path(code, folder)
    return _imported(_checked(code)) if path is None else _unpickled(code, path)


def identity(code: str, folder: Path | None) -> str:
    """Return an identity of code that stays when the same code is pickled again, elsewhere and later.

    Pickled bytes differ each time: they hold paths of notebook cells, line numbers and random ids. So only
    what the code computes with counts, its bytecode, names and texts, and nothing is unpickled to read it:
    a master never runs a user's code. Numbers do not count: with another width it is the same model in
    another size, which `JobTraits` tells by itself. Bytecode is another one in another Python.

    Parameters
    ----------
    code
        As in a job.
    folder
        The job's run folder. Without it, or without the file, pickled code has no identity: empty.
    """
    name = file_of(code)
    if not name:
        return _short_hash([code.encode()])
    if folder is None:
        return ""
    try:
        content = (folder / name).read_bytes()
        parts = {
            part.encode() if isinstance(part, str) else bytes(part)
            for _, part, _ in pickletools.genops(content)
            if isinstance(part, (str, bytes, bytearray)) and not _of_one_pickling(part)
        }
    except (OSError, ValueError):
        return ""
    return _short_hash(sorted(parts))


def _of_one_pickling(part: str | bytes | bytearray) -> bool:
    """Whether a constant of a pickle tells where and when it was made: a path, a random id."""
    return isinstance(part, str) and _FLEETING.fullmatch(part) is not None


def _short_hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:16]


def file_of(code: str) -> str:
    """Return the name of the file in the run folder that holds this code; empty: it is imported."""
    match = _PICKLED.fullmatch(code)
    return "" if match is None else f"code-{match['sha256']}.pickle"


def name_of(thing: object) -> str:
    """Return the name of a user's code for messages."""
    return getattr(thing, "__name__", None) or (thing if isinstance(thing, str) else type(thing).__name__)


def _checked(code: str) -> str:
    if not is_import(code):
        raise InvalidValueError(f"expected code named as package.module:name, got {code!r}")
    return code


def _path(code: str, folder: Path) -> Path | None:
    name = file_of(code)
    return folder / name if name else None


def _imported(code: str) -> object:
    module_name, _, attribute = code.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise NotFoundError(
            f"cannot import {module_name} of {code} ({_line(error)}); install it on every node, "
            "or submit the class or function itself"
        ) from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise NotFoundError(f"module {module_name} has no {attribute!r}; check the name {code}")
        value = getattr(value, part)
    return value


def _unpickled(code: str, path: Path) -> object:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFoundError(
            f"the job's code is not at {path} ({error.strerror}); "
            "nodes on other machines need the run folder at the same place"
        ) from error
    if f"pickle:{hashlib.sha256(content).hexdigest()}" != code:
        raise InvalidValueError(f"{path} is not the code that was submitted; submit the job again")
    try:
        return pickle.loads(content)  # noqa: S301 - in a folder closed to others, and of the SHA-256 that the job names
    except ImportError as error:
        raise NotFoundError(
            f"the job's code needs a module that is missing here ({_line(error)}); install it on every node"
        ) from error
    except Exception as error:  # whatever a user's object raises when it is unpickled
        raise InvalidValueError(
            f"the job's code cannot be loaded here: {_line(error)}; "
            "use the same Python and libraries on every node"
        ) from error


def _module_of(thing: object) -> ModuleType | None:
    return inspect.getmodule(thing if hasattr(thing, "__qualname__") else type(thing))


@contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    """Let cloudpickle include a module; None: none."""
    import cloudpickle  # noqa: PLC0415 - as above

    if module is None:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _top_not_installed(module: ModuleType | None) -> ModuleType | None:
    """Return the package of a module that nodes do not have; None: they have it, or it is a notebook."""
    if module is None or module.__name__ == "__main__" or _is_installed(module):
        return None
    return sys.modules.get(module.__name__.partition(".")[0], module)


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.partition(".")[0] == __name__.partition(".")[0]:
        return True
    path = Path(file).resolve()
    if not _SITES.isdisjoint(path.parts):  # also of another environment, which this one includes
        return True
    return any(Path(sysconfig.get_path(place)).resolve() in path.parents for place in _PLACES)


def _culprit(thing: object) -> str:
    """Name the first global or enclosing variable that cannot be pickled, if it is one."""
    import cloudpickle  # noqa: PLC0415 - as above

    for function in _functions(thing):
        variables = inspect.getclosurevars(function)
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            try:
                cloudpickle.dumps(value)
            except Exception:  # noqa: BLE001 - any failure is the answer here
                return f"variable {name!r}: "
    return ""


def _functions(thing: object) -> list[Any]:
    if inspect.isfunction(thing):
        return [thing]
    kind = thing if inspect.isclass(thing) else type(thing)
    return [value for value in vars(kind).values() if inspect.isfunction(value)]


def _line(error: BaseException) -> str:
    """Return an error of other code as one line."""
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else type(error).__name__
