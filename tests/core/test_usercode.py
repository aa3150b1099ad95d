"""A user's code: what travels by value, what is imported, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading

import pytest
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.usercode import file_of, identity, is_import, load, pack

OFFSET = 5
LOCK = threading.Lock()


def shifted(x):
    return x + OFFSET


def locked():
    with LOCK:
        return 1


def test_installed_code_is_named_and_imported():
    packed = pack("json:dumps")
    assert (packed.code, packed.content) == ("json:dumps", b"")
    assert load("json:dumps", None) is json.dumps
    assert load("json:JSONEncoder.encode", None) is json.JSONEncoder.encode


def test_code_that_is_not_installed_travels_by_value_with_its_globals(tmp_path):
    packed = pack(shifted)
    packed.write(tmp_path)
    program = (
        "import sys; from pathlib import Path; from dlrover_nb.core.usercode import load;"
        "print(load(sys.argv[1], Path(sys.argv[2]))(1))"
    )  # another process, which has no module test_usercode
    told = subprocess.run(
        [sys.executable, "-c", program, packed.code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "6"


def test_the_file_is_for_its_owners_eyes_and_named_by_its_content(tmp_path):
    packed = pack(shifted)
    packed.write(tmp_path)
    packed.write(tmp_path)  # a second submit changes nothing
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert packed.code == f"pickle:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_a_file_that_was_changed_is_never_unpickled(tmp_path):
    packed = pack(shifted)
    packed.write(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"cos\nsystem\n(S'touch " + os.fsencode(tmp_path / "owned") + b"'\ntR.")
    with pytest.raises(InvalidValueError, match="is not the code that was submitted"):
        load(packed.code, tmp_path)
    assert not (tmp_path / "owned").exists()


def test_a_file_that_is_not_there_says_where_it_should_be(tmp_path):
    with pytest.raises(NotFoundError, match="need the run folder at the same place"):
        load(pack(shifted).code, tmp_path)


def test_what_cannot_be_pickled_is_named():
    with pytest.raises(
        InvalidValueError, match=r"locked cannot be sent to the nodes: variable 'LOCK': cannot pickle"
    ):
        pack(locked)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("nowhere.at_all:x", "cannot import nowhere.at_all"),
        ("json:dumpz", "module json has no 'dumpz'"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(code, message):
    with pytest.raises(NotFoundError, match=message):
        load(code, None)


@for_each(
    "text",
    ["", "json", "a b:c", "pickle:123", f"pickle:{'a' * 64}", "/x/y.py:z", "os:system('x')", "1a:b"],
)
def test_what_is_no_name_is_refused(text, error_words):
    assert not is_import(text)
    with error_words(InvalidValueError):
        load(text, None)


NET = """
class Net:
    WIDTH = {width}

    def forward(self, x):
        return x {sign} self.WIDTH

    def name(self):
        return {name!r}
"""


def _identity(folder, *, path="/tmp/ipykernel_7/1.py", n_line=0, width=8, sign="+", name="net"):
    """Return the identity of a class as a notebook's cell makes it."""
    cell = {"__name__": "__main__"}
    exec(compile("\n" * n_line + NET.format(width=width, sign=sign, name=name), path, "exec"), cell)
    packed = pack(cell["Net"])
    packed.write(folder)
    return identity(packed.code, folder)


def test_code_keeps_its_identity_when_it_is_pickled_again_elsewhere(tmp_path):
    first = _identity(tmp_path)
    assert first
    assert _identity(tmp_path) == first  # cloudpickle gives each pickled class another random id
    assert _identity(tmp_path, path="/tmp/ipykernel_8/99.py", n_line=40) == first
    assert _identity(tmp_path, width=16) == first  # another size of the same model


@pytest.mark.parametrize("changes", [{"sign": "*"}, {"name": "wide"}])
def test_other_code_has_another_identity(tmp_path, changes):
    assert _identity(tmp_path, **changes) != _identity(tmp_path)


def test_code_that_cannot_be_read_has_no_identity(tmp_path):
    code = pack(shifted).code
    assert identity(code, None) == identity(code, tmp_path) == ""
    (tmp_path / file_of(code)).write_bytes(b"\x80\x05no pickle at all")
    assert identity(code, tmp_path) == ""
    assert identity("json:dumps", None) == identity("json:dumps", tmp_path) != identity("json:loads", None)


def test_reading_an_identity_runs_no_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    packed = pack(Trap())
    packed.write(tmp_path)
    assert identity(packed.code, tmp_path)
    assert not (tmp_path / "sprung").exists()
