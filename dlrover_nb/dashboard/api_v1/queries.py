"""What the address of a request may hold after the question mark: strict records, as of bodies."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from dlrover_nb.core.why import Question

MOST_ROWS = 1000
Name = Annotated[str, Meta(max_length=256)]
ProposalId = Annotated[
    str,
    Meta(
        max_length=16,
        pattern="^(p[0-9]{1,14})?$",
        description="Its id; empty: the open one, or why none is.",
    ),
]


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing."""


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of the list of jobs."""

    cluster: Annotated[Name, Meta(description="Only of this cluster; empty: of all.")] = ""


class SeriesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of telemetry."""

    cursor: Annotated[int, Meta(ge=0, lt=1 << 53, description="Rows newer than this; 0: all kept.")] = 0


class ExplainQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of an explanation."""

    proposal: ProposalId = ""


class WhyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of answers to questions about a plan."""

    proposal: ProposalId = ""
    question: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(Question)}|[1-9])?$",
            description=f"One of {', '.join(Question)}, or its number; empty: all of them.",
        ),
    ] = ""


class LogsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of log lines."""

    node: Annotated[Name, Meta(description="Only of this node; empty: of all.")] = ""
    lines: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of the audit."""

    job: Annotated[Name, Meta(description="Only of jobs of this name; empty: of all.")] = ""
    before: Annotated[int, Meta(ge=0, lt=1 << 53, description="Rows older than this; 0: the newest.")] = 0
    rows: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100
