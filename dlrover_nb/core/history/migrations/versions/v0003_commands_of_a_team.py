"""The audit of commands, requests for a second person, credentials, notes of people, and alerts."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the tables."""
    _add_audit()
    _add_requests()
    op.create_table(
        "credentials",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("expires_at_s", sa.Float, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("credentials_by_person", "credentials", ["kind", "person"])
    op.create_table(
        "notes",
        sa.Column("person", sa.String(128), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "alerts",
        sa.Column("key", sa.String(192), primary_key=True),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(24), nullable=False),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("ended_at_s", sa.Float),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("alerts_by_time", "alerts", ["at_s"])


def _add_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("person", sa.String(128), nullable=False),
        sa.Column("entry", sa.String(16), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_index("audit_by_time", "audit", ["at_s"])
    op.create_index("audit_by_job", "audit", ["job", "seq"])
    op.create_index("audit_by_key", "audit", ["key"])
    head = op.create_table(
        "audit_head",
        sa.Column("one", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.bulk_insert(head, [{"one": 1, "seq": 0, "hash": "0" * 64}])


def _add_requests() -> None:
    op.create_table(
        "requests",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("first", sa.String(128), nullable=False),
        sa.Column("at_s", sa.Float, nullable=False),
        sa.Column("expires_at_s", sa.Float, nullable=False),
        sa.Column("state", sa.String(160), nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("requests_by_state", "requests", ["state", "at_s"])
