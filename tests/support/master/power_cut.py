"""A disk that loses power: what a folder may hold after a cut at any moment, from a recording of its use.

POSIX promises what was synced and nothing else. So after each operation two things are known of the folder:
what is there, and what is durable: the content of a file at its last sync (nothing where it was never
synced), and the names in a folder at the last sync of that folder. After a cut each folder has its durable
names or its present ones, independently of all others, and files have their durable content: `states` yields
all combinations. Files and folders are known by inode, and held open, so that no number is used twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    Tree = dict[str, "Tree | bytes"]

OPERATIONS = ("fsync", "fdatasync", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "link")


@dataclass(frozen=True)
class Moment:
    """The folder after one operation; `mark` is what the test knew then."""

    mark: Any
    there: dict[int, dict[str, int]]
    durable: dict[int, dict[str, int]]
    content: dict[int, bytes]


@dataclass
class Disk:
    """Records what happens below `root`; `forgets` makes a disk that takes no notice of syncs."""

    root: Path
    mark: Callable[[], Any]
    forgets: bool = False
    moments: list[Moment] = field(default_factory=list)
    _durable: dict[int, dict[str, int]] = field(default_factory=dict)
    _content: dict[int, bytes] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)

    def record(self, patch: pytest.MonkeyPatch) -> None:
        """Record from now on; what is there already is durable."""
        self._durable = self._names()
        for name in OPERATIONS:
            patch.setattr(os, name, self._noting(name, getattr(os, name)))

    def close(self) -> None:
        for handle in self._held.values():
            os.close(handle)

    def _noting(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **options: Any) -> Any:
            result = operation(*args, **options)
            if name.endswith("sync") and not self.forgets:
                self._sync(args[0])
            self.moments.append(Moment(self.mark(), self._names(), dict(self._durable), dict(self._content)))
            return result

        return noted

    def _sync(self, handle: int) -> None:
        inode = os.fstat(handle).st_ino
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            self._durable[inode] = {name: os.stat(name, dir_fd=handle).st_ino for name in os.listdir(handle)}
            return
        with open(f"/proc/self/fd/{handle}", "rb") as file:  # noqa: PTH123 - a descriptor
            self._content[inode] = file.read()

    def _names(self) -> dict[int, dict[str, int]]:
        found: dict[int, dict[str, int]] = {}
        for folder, folders, files in os.walk(self.root):
            found[self._inode(folder)] = {
                name: self._inode(f"{folder}/{name}") for name in (*folders, *files)
            }
        return found

    def _inode(self, path: str) -> int:
        inode = os.stat(path).st_ino  # noqa: PTH116 - in the way of the recording, as open below
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def states(self) -> Iterator[tuple[Any, Tree]]:
        """Yield each state that a cut may leave once, with the mark of its first moment."""
        top, seen = os.stat(self.root).st_ino, set()  # noqa: PTH116 - as above
        for moment in self.moments:
            unsure = [inode for inode in moment.there if moment.there[inode] != moment.durable.get(inode)]
            for n_kept in range(len(unsure) + 1):
                for kept in combinations(unsure, n_kept):
                    tree = _tree(moment, top, set(kept))
                    if (key := (moment.mark, repr(tree))) not in seen:
                        seen.add(key)
                        yield moment.mark, tree


def _tree(moment: Moment, folder: int, kept: set[int]) -> Tree:
    names = moment.there[folder] if folder in kept else moment.durable.get(folder, {})
    is_folder = moment.there.keys() | moment.durable.keys()
    return {
        name: _tree(moment, inode, kept) if inode in is_folder else moment.content.get(inode, b"")
        for name, inode in names.items()
    }


def lay(tree: Tree, folder: Path) -> None:
    """Make `folder` hold exactly this."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir()
    for name, inner in tree.items():
        if isinstance(inner, bytes):
            (folder / name).write_bytes(inner)
        else:
            lay(inner, folder / name)
