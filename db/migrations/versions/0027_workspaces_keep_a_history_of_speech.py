"""Workspaces keep a history of speech."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "workspace",
        sa.Column("speech_history_days", sa.Integer(), server_default="0", nullable=False),
    )
    op.create_table(
        "speech_history",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("file_id", sa.String(length=40), nullable=False),
        sa.Column("source", sa.String(length=8), nullable=False),
        sa.Column("voice_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("details", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspace.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_speech_history_workspace_id_id", "speech_history", ["workspace_id", "id"])
    op.create_index("ix_speech_history_created_at", "speech_history", ["created_at"])


def downgrade() -> None:
    # The previous release does not know these kinds, and would keep their files forever.
    chapters = "FROM job_file WHERE kind = 'chapters'"
    op.execute(
        "UPDATE stored_file SET expires_at = created_at "
        f"WHERE kind = 'history' OR id IN (SELECT file_id {chapters})"
    )
    op.execute(f"DELETE {chapters}")
    op.drop_table("speech_history")
    op.drop_column("workspace", "speech_history_days")
