"""YAML as this package writes it: for people to read and edit, and to come back exactly."""

from __future__ import annotations

import re

import yaml


def to_yaml(*documents: object) -> str:
    """Write documents as one YAML text, fields in their given order, the same text for the same documents."""
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=110)


class _Plain(yaml.SafeDumper):
    """Writer without anchors: an export is read by people, and edited."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base's signature
        """Repeat values in full."""
        return True


_ODD = re.compile("[\x85\u2028\u2029\ufeff]")


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote text with unusual line breaks, which PyYAML would write as they are and read back as blanks."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _ODD.search(text) else None)


_Plain.add_representer(str, _text)
