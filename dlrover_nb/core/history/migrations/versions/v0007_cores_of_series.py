"""Cores that nodes used, beside their memory, in the series of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the columns; 0 in the rows that are there: not known."""
    for name in ("worker_cpu", "ps_cpu"):
        op.add_column("series", sa.Column(name, sa.Float, nullable=False, server_default="0"))
