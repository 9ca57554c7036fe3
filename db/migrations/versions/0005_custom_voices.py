"""The tables of custom voices."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "voice",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("name_key", sa.String(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("language", sa.String(length=8), nullable=False),
        sa.Column("gender", sa.String(length=8), nullable=False),
        sa.Column("pitch_hz", sa.Float(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("estimated_completion", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("similarity", sa.Float(), nullable=True),
        sa.Column("error", sa.String(length=40), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("engine", sa.String(length=40), nullable=True),
        sa.Column("pack_file", sa.String(length=40), nullable=True),
        sa.Column("pack_digest", sa.String(length=64), nullable=True),
        sa.Column("report_file", sa.String(length=40), nullable=True),
        sa.Column("consent", sa.Text(), nullable=True),
        sa.Column("consent_sentence", sa.Text(), nullable=True),
        sa.Column("consent_by", sa.String(length=40), nullable=True),
        sa.Column("consent_address", sa.String(length=64), nullable=True),
        sa.Column("consent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("operation", sa.String(length=64), nullable=False),
        sa.Column("lease", sa.String(length=40), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("checkpoint_file", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspace.id"],
            name=op.f("fk_voice_workspace_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_voice")),
    )
    op.create_index("ix_voice_workspace_id_created_at", "voice", ["workspace_id", "created_at"])
    op.create_index("ix_voice_workspace_id_name_key", "voice", ["workspace_id", "name_key"])
    op.create_index("ix_voice_status_created_at", "voice", ["status", "created_at"])
    op.create_table(
        "voice_sample",
        sa.Column("voice_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("file_id", sa.String(length=40), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("speech_share", sa.Float(), nullable=False),
        sa.Column("snr_db", sa.Float(), nullable=False),
        sa.Column("level_dbfs", sa.Float(), nullable=False),
        sa.Column("clipped_share", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["voice_id"], ["voice.id"], name=op.f("fk_voice_sample_voice_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("voice_id", "position", name=op.f("pk_voice_sample")),
    )


def downgrade() -> None:
    op.drop_table("voice_sample")
    op.drop_index("ix_voice_status_created_at", "voice")
    op.drop_index("ix_voice_workspace_id_name_key", "voice")
    op.drop_index("ix_voice_workspace_id_created_at", "voice")
    op.drop_table("voice")
