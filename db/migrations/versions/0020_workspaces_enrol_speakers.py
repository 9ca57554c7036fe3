"""Workspaces enrol speakers."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "enrolled_speaker",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("embedding", sa.LargeBinary(), nullable=False),
        sa.Column("consent", sa.Text(), nullable=False),
        sa.Column("consent_by", sa.String(length=40), nullable=False),
        sa.Column("consent_address", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_enrolled_speaker_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enrolled_speaker")),
    )
    op.create_index(op.f("ix_enrolled_speaker_workspace_id"), "enrolled_speaker", ["workspace_id"])


def downgrade() -> None:
    op.drop_table("enrolled_speaker")
