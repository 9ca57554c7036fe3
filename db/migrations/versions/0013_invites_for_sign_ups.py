"""Invites of the operator, each for one sign-up."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "invite",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=True),
        sa.Column("credit", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_invite")),
    )
    op.create_index(op.f("ix_invite_expires_at"), "invite", ["expires_at"])


def downgrade() -> None:
    op.drop_table("invite")
