"""Voices have consents and settings."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "voice_consent",
        sa.Column("id", sa.Uuid(), primary_key=True),
        _workspace(),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("language", sa.String(35), nullable=False),
        sa.Column("phrase", sa.Text(), nullable=False),
        sa.Column("embedding", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    columns = ["workspace_id", "created_at"]
    op.create_index("ix_voice_consent_workspace_id_created_at", "voice_consent", columns)
    op.create_table(
        "voice_settings",
        _workspace(primary_key=True),
        sa.Column("voice_id", sa.String(40), primary_key=True, index=True),
        sa.Column("settings", sa.JSON(), nullable=False),
    )


def _workspace(*, primary_key: bool = False) -> "sa.Column[int]":
    reference = sa.ForeignKey("workspace.id", ondelete="CASCADE")
    return sa.Column(
        "workspace_id", sa.BigInteger(), reference, nullable=False, primary_key=primary_key
    )


def downgrade() -> None:
    op.drop_table("voice_settings")
    op.drop_table("voice_consent")
