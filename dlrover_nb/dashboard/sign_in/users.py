"""The users file: who may sign in by a password, and as what.

YAML or TOML, ``name: {hash: …, groups: […], grants: [{role: operator, namespace: team-a}]}``. A password is
kept as its Argon2id hash, by the parameters that RFC 9106 recommends where memory is scarce. The file is read
again when it changes; while it cannot be read nobody is let in, since it might have been changed to keep
somebody out.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.disk.files import replace_synced
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.history.stores.credentials import PERSON_LENGTH, credential_id
from dlrover_nb.core.structs.decisions.people import Grant, Person
from dlrover_nb.core.yamltext import load_documents, to_yaml

LEAST, MOST = 10, 1000  # letters of a password; hashing a long text costs time
_HASHER = PasswordHasher()
Groups = Mapping[str, tuple[Grant, ...]]  # roles of groups


@dataclass(frozen=True, slots=True)
class User:
    """A person in the file.

    Parameters
    ----------
    hash
        Of the password, as Argon2 writes it.
    groups, grants
        Roles come from both; groups have theirs in the settings of the server.
    """

    hash: str
    groups: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()

    @property
    def stamp(self) -> str:
        """What a session keeps: it ends when anything about the user has changed."""
        return credential_id(to_json(self).decode())

    def person(self, name: str, groups: Groups) -> Person:
        """Return the person, with the roles of their groups."""
        return with_groups(name, self.groups, self.grants, groups)


def with_groups(name: str, of: tuple[str, ...], grants: tuple[Grant, ...], groups: Groups) -> Person:
    """Return a person with the roles of their groups beside their own."""
    return Person(name, of, (*grants, *(grant for group in of for grant in groups.get(group, ()))))


def hashed(password: str, name: str) -> str:
    """Return the hash of a new password.

    Raises
    ------
    InvalidValueError
        When it is too short, too long, or the name.
    """
    if not LEAST <= len(password) <= MOST:
        raise InvalidValueError(
            f"a password has {LEAST} to {MOST} characters, got {len(password)}; some words in a row are good"
        )
    if password.casefold() == name.casefold():
        raise InvalidValueError("a password must not be the name; choose another one")
    return _HASHER.hash(password)


class UsersFile:
    """The users file, read again when it changes; for any thread.

    Parameters
    ----------
    path
        Of the file.

    Raises
    ------
    NotFoundError
        When it is not there.
    InvalidValueError
        When it is malformed, or others could write to it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().absolute()
        self._lock = threading.Lock()
        self._file_state: tuple[int, ...] = ()
        self._users: Mapping[str, User] = {}
        # What the password of an unknown name is checked against, so that both answers take as long.
        self._nobody = User(_HASHER.hash(secrets.token_hex()))
        self._renew()

    def find(self, name: str) -> User | None:
        """Return a user as they are in the file now; None: there is none.

        Raises
        ------
        BackendError
            When the file cannot be read any more.
        """
        with self._lock:
            try:
                self._renew()
            except (InvalidValueError, NotFoundError) as error:
                self._file_state = ()
                raise BackendError(f"nobody can sign in: {error}") from error
            return self._users.get(name)

    def verified(self, name: str, password: str) -> User | None:
        """Return a user if the password is theirs; it takes as long for a name that is not there."""
        user = self.find(name)
        try:
            _HASHER.verify((user or self._nobody).hash, password[: MOST + 1])
        except (VerificationError, InvalidHashError):
            return None
        return user

    def _renew(self) -> None:
        try:
            now = os.stat(self.path)  # noqa: PTH116 - its numbers are the point
        except OSError as error:
            raise NotFoundError(
                f"no users file at {self.path}; "
                f"`dlrover-nb server users add NAME --file {self.path}` makes one"
            ) from error
        file_state = (now.st_mtime_ns, now.st_size, now.st_ino)
        if file_state == self._file_state:
            return
        if now.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InvalidValueError(f"others may write to {self.path}, and so sign in; run chmod 600 on it")
        self._users = read_users(self.path)
        self._file_state = file_state


def read_users(path: Path) -> dict[str, User]:
    """Return the users in a file, by name.

    Raises
    ------
    NotFoundError
        When it is not there.
    InvalidValueError
        When it cannot be read, or is malformed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no users file at {path}; `dlrover-nb server users add NAME` makes one"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"cannot read {path}: {error}; make it readable for this account") from error
    try:
        users = msgspec.convert(_parsed(text, path), dict[str, User])
    except (msgspec.ValidationError, tomllib.TOMLDecodeError) as error:
        raise InvalidValueError(f"users file {path}: {error}; correct it") from error
    for name in users:
        check_name(name)
    return users


def _parsed(text: str, path: Path) -> object:
    if path.suffix == ".toml":
        return tomllib.loads(text)
    documents = [each for each in load_documents(text) if each is not None]
    if len(documents) > 1:
        raise InvalidValueError(f"users file {path} must be one document; remove the `---` in it")
    return documents[0] if documents else {}


def check_name(name: str) -> None:
    """Refuse a name that could be taken for another one, or for none."""
    if not 0 < len(name) <= PERSON_LENGTH or not name.isprintable() or name != name.strip():
        raise InvalidValueError(
            f"a name has 1 to {PERSON_LENGTH} visible characters, got {shown(name)}; use another one"
        )


def write_users(path: Path, users: Mapping[str, User]) -> None:
    """Write the users file whole or not at all, for the eyes of its owner only.

    Raises
    ------
    InvalidValueError
        When it cannot be written, or is TOML, which people write themselves.
    """
    if path.suffix == ".toml":
        raise InvalidValueError(
            f"only YAML is written, got {path}; name a .yaml file, or edit this one yourself"
        )
    content = {name: msgspec.to_builtins(user) for name, user in sorted(users.items())}
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # of mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(to_yaml(content) if content else "")
            replace_synced(Path(name), path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidValueError(f"cannot write {path}: {error.strerror}; name another file") from error
