"""A library whose structs are not those of Python is refused, with the first difference."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.runtime.kernel_world import needs_c

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime import kernels
from dlrover_nb.core.runtime.kernels import VARIABLE, compiled, kernel
from dlrover_nb.core.runtime.kernels.compiled import Place, difference, of_python

SOURCES = Path(kernels.__file__).parent
OURS = of_python(compiled._STRUCTS)


@pytest.fixture
def other_library(monkeypatch, tmp_path):
    """Where a library lies that stands in the place of the package's."""
    monkeypatch.setattr(compiled, "LIBRARY", library := tmp_path / "_kernel.so")
    monkeypatch.delenv(VARIABLE, raising=False)
    kernels._named.cache_clear()
    yield library
    kernels._named.cache_clear()


def assert_refused(flaw, monkeypatch, caplog):
    assert kernel().NAME == "numpy"
    assert f"the compiled kernel {flaw}" in caplog.text
    assert "install the package again" in caplog.text
    monkeypatch.setenv(VARIABLE, "c")
    with pytest.raises(InvalidValueError) as raised:
        kernel()
    assert flaw in str(raised.value)


@needs_c
def test_the_library_shares_data_as_python_does():
    assert compiled.flaw() == ""


@pytest.mark.skipif(
    not (shutil.which("cc") and (SOURCES / "serve.h").exists()), reason="no C compiler or no sources"
)
@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ("epoch, step, at, n_push", "step, epoch, at, n_push", "Request.epoch to have 8 bytes at byte 0, got 8 bytes at"),
        ("int32_t ask, answers;", "int64_t ask, answers;", "Bell to have 216 bytes at byte 0, got 224 bytes"),
    ],
)  # fmt: skip
def test_a_library_of_other_structs_is_refused(before, after, difference, other_library, monkeypatch, caplog):
    sources = shutil.copytree(
        SOURCES, other_library.parent / "sources", ignore=shutil.ignore_patterns("*.py*")
    )
    header = sources / "serve.h"
    assert before in header.read_text()
    header.write_text(header.read_text().replace(before, after))
    (sources / "version.c").write_text(f"int version(void) {{ return {compiled._VERSION}; }}")
    names = [str(sources / name) for name in ("layouts.c", "version.c")]  # the others take seconds
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(other_library), *names], check=True)
    assert_refused(f"does not share data as this release does: expected {difference}", monkeypatch, caplog)


def test_a_library_that_cannot_be_loaded_is_refused(other_library, monkeypatch, caplog):
    other_library.write_bytes(b"of another platform")
    assert_refused("cannot be loaded", monkeypatch, caplog)


@pytest.mark.parametrize("name", ["Request", "Bell.answer", "Store.locks", "Line.slots", "Rule.epsilon"])
def test_any_place_that_differs_is_told(name):
    place = OURS[name]
    without = {other: at for other, at in OURS.items() if other != name}
    assert difference(OURS, OURS) == ""
    assert difference(OURS, without) == f"expected {name} to have {place}, got no place"
    assert difference(without, OURS) == f"expected {name} to have no place, got {place}"
    for other in (Place(place.at + 4, place.n_byte), Place(place.at, place.n_byte + 4)):
        assert difference(OURS, OURS | {name: other}) == f"expected {name} to have {place}, got {other}"
