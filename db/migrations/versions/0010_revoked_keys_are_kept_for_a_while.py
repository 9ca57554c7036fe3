"""A revoked key stays for a while, so that its use is told; and when that was told last."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_key", sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("api_key", sa.Column("refused_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_api_key_revoked_at"), "api_key", ["revoked_at"])


def downgrade() -> None:
    op.execute("DELETE FROM api_key WHERE revoked_at IS NOT NULL")  # else they would work again
    op.drop_index(op.f("ix_api_key_revoked_at"), table_name="api_key")
    op.drop_column("api_key", "refused_at")
    op.drop_column("api_key", "revoked_at")
