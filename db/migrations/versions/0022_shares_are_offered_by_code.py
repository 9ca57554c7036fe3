"""Voices are shared by the id of a workspace or by a code; open offers by e-mail expire."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("voice_share", sa.Column("code_digest", sa.LargeBinary(), nullable=True))
    expires_at = sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True)
    op.add_column("voice_share", expires_at)
    with op.batch_alter_table("voice_share") as batch:
        batch.drop_constraint("uq_voice_share_voice_id_email", type_="unique")
    index = op.f("ix_voice_share_code_digest")
    op.create_index(index, "voice_share", ["code_digest"], unique=True)
    op.create_index(op.f("ix_voice_share_voice_id"), "voice_share", ["voice_id"])
    op.execute(
        "UPDATE voice_share SET expires_at = CURRENT_TIMESTAMP"
        " WHERE email <> '' AND accepted_at IS NULL"
    )


def downgrade() -> None:
    op.execute("DELETE FROM voice_share WHERE email = ''")
    op.drop_index(op.f("ix_voice_share_voice_id"), "voice_share")
    op.drop_index(op.f("ix_voice_share_code_digest"), "voice_share")
    with op.batch_alter_table("voice_share") as batch:
        batch.create_unique_constraint("uq_voice_share_voice_id_email", ["voice_id", "email"])
        batch.drop_column("expires_at")
        batch.drop_column("code_digest")
