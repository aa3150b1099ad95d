"""Curves of quality against the age of gradients, from rehearsals and from runs."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "quality_curves",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("at_s", sa.Float, primary_key=True),
        sa.Column("way", sa.String(32), primary_key=True),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("optimizer", sa.String(64), nullable=False),
        sa.Column("data_hash", sa.String(64), nullable=False),
        sa.Column("batch_size", sa.Integer, nullable=False),
        sa.Column("learning_rate", sa.Float, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("quality_curves_by_model", "quality_curves", ["model", "optimizer", "at_s"])
