"""Actions against stragglers of a run."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "mitigations",
        sa.Column("run", sa.String(96), sa.ForeignKey("runs.run"), primary_key=True),
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("created_at_s", sa.Float, nullable=False),
        sa.Column("closed_at_s", sa.Float),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("gain", sa.Float),
        sa.Column("decision", sa.String(16)),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
