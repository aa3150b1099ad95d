"""What is read of Kueue's objects stands in Kueue's own definitions, in each version that is asked for."""

from __future__ import annotations

import pytest
import yaml
from suite.missing import shared
from support.kubernetes.kueue_crds import KINDS

from dlrover_nb.core.backends.kubernetes.room.queue_waits import KUEUE, KUEUE_VERSIONS

COMMIT = "ff69552e"
NAMES = {"v1beta1": {}, "v1beta2": {"cohort": "cohortName", "queueName": "queueName"}}


def real(kind, version):
    """Return the real schema of a version of a kind, and whether it is served."""
    text = shared("crds", "kueue", f"{KUEUE}_{kind.lower()}s.{COMMIT}.yaml").read_text("utf-8")
    spec = yaml.load(text, yaml.CSafeLoader)["spec"]
    (found,) = [each for each in spec["versions"] if each["name"] == version]
    return spec["scope"], found["served"], found["schema"]["openAPIV3Schema"]["properties"]


def compare(read, schema, path, names):
    """Compare a schema of fields that are read with the real one: each is there, of that type."""
    if read.get("type") is None:  # a quantity: a number or a text
        assert "x-kubernetes-int-or-string" in schema, path
        return
    assert schema["type"] == read["type"], path
    assert set(read.get("enum", ())) <= set(schema.get("enum", read.get("enum", ()))), path
    for name, of in read.get("properties", {}).items():
        there = names.get(name, name)
        assert there in schema["properties"], f"{path}.{there}"
        compare(of, schema["properties"][there], f"{path}.{there}", names)
    if "items" in read:
        compare(read["items"], schema["items"], f"{path}[]", names)


@pytest.mark.parametrize("version", KUEUE_VERSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_fields_that_are_read_are_those_of_the_real_definitions(kind, version):
    scope, spec, status = KINDS[kind]
    real_scope, is_served, properties = real(kind, version)
    assert (real_scope, is_served) == (scope, True)
    compare(spec, properties["spec"], f"{kind}.spec", NAMES[version])
    compare(status, properties["status"], f"{kind}.status", NAMES[version])
