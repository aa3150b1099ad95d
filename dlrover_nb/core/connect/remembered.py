"""The cluster that a shell is connected to: what `dlrover-nb connect` chose, for the calls after it.

One small file of this user holds kind, address and options, as kubectl's current context does. It names
places and holds no credentials: those stay with the kubeconfig. A variable alone was rejected: without
it, the line after `connect kubernetes` trained on this machine.

A notebook neither reads nor writes the file: its own `connect` stands in the notebook, which so means the
same in every account, and running it again does not move the next job of a shell.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, cast

from dlrover_nb.core.connect.kinds import Options, Target, kind_of
from dlrover_nb.core.disk.files import replace_synced, writing_to
from dlrover_nb.core.disk.paths import Xdg, state_folder, user_folder
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "connected.json"


def remembered() -> Target | None:
    """Return what `remember` wrote last; None: nothing, or it was forgotten.

    Raises
    ------
    InvalidValueError
        When the file cannot be read, or holds something else.
    BackendError
        When this user has no home directory.
    """
    path = user_folder(Xdg.STATE) / FILE
    try:
        return _target(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidValueError(
            f"expected in {path} the cluster that `connect` chose, got {type(error).__name__}: {error}; "
            "`dlrover-nb connect` with the kind of a cluster writes it anew, --forget removes it"
        ) from error


def remember(target: Target) -> None:
    """Write down where the next calls go, for this user alone; `BackendError` where it cannot be written."""
    path = state_folder() / FILE
    new = path.with_name(f"{FILE}.{os.getpid()}")
    options = {name: value for name, value in target.options.items() if value is not None}
    document = {"kind": target.kind, "address": target.address, "options": options}
    with writing_to(path.parent):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(json.dumps(document) + "\n")
            replace_synced(new, path)
        finally:
            new.unlink(missing_ok=True)


def forget() -> None:
    """Forget the cluster: the next calls go to the Ray of this machine."""
    with writing_to(state_folder()):
        (state_folder() / FILE).unlink(missing_ok=True)


def _target(document: Mapping[str, object]) -> Target:
    address, options = document["address"], document["options"]
    if not (isinstance(address, str | None) and isinstance(options, dict)):
        raise TypeError("address must be a text or null, options a mapping")
    return Target(kind_of(str(document["kind"])).name, address, cast("Options", options))
