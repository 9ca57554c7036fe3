"""Jobs have callbacks."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("webhook", sa.Column("job_id", sa.Uuid(), nullable=True))
    op.create_index("ix_webhook_job_id", "webhook", ["job_id"])


def downgrade() -> None:
    op.drop_index("ix_webhook_job_id", "webhook")
    op.drop_column("webhook", "job_id")
