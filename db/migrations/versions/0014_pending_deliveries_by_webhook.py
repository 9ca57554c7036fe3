"""The due deliveries of each webhook are found by an index, however many the others have."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pending = sa.text("status = 'pending'")
    op.create_index(
        "ix_delivery_pending",
        "delivery",
        ["webhook_id", "next_at"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
    op.drop_index("ix_delivery_status_next_at", "delivery")


def downgrade() -> None:
    op.create_index("ix_delivery_status_next_at", "delivery", ["status", "next_at"])
    op.drop_index("ix_delivery_pending", "delivery")
