"""Work in a queue knows since when it makes no progress."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("job", "voice"):
        op.add_column(table, sa.Column("tried_since", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    for table in ("job", "voice"):
        op.drop_column(table, "tried_since")
