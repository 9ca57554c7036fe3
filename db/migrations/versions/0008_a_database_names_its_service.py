"""A name for the service of this database, to tell its jobs on a cluster from those of others."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    table = op.create_table(
        "service",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_service")),
    )
    op.bulk_insert(table, [{"id": secrets.token_hex(8)}])


def downgrade() -> None:
    op.drop_table("service")
