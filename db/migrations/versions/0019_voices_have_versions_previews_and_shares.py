"""Voices have versions, previews and shares."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("voice", sa.Column("version_of", sa.Uuid(), nullable=True))
    op.add_column("voice", sa.Column("imported", sa.JSON(), nullable=True))
    op.add_column("voice", sa.Column("preview_file", sa.String(length=40), nullable=True))
    op.add_column("voice", sa.Column("preview_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(op.f("ix_voice_version_of"), "voice", ["version_of"])
    op.create_table(
        "voice_share",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("voice_id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["voice_id"], ["voice.id"], name=op.f("fk_voice_share_voice_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_voice_share_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_voice_share")),
        sa.UniqueConstraint("voice_id", "email", name=op.f("uq_voice_share_voice_id_email")),
    )
    op.create_index(op.f("ix_voice_share_workspace_id"), "voice_share", ["workspace_id"])


def downgrade() -> None:
    op.drop_table("voice_share")
    op.drop_index(op.f("ix_voice_version_of"), "voice")
    for name in ("preview_at", "preview_file", "imported", "version_of"):
        op.drop_column("voice", name)
