"""Turns of chats have names, and may follow an earlier one."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("chat_message", sa.Column("turn", sa.String(length=16), nullable=True))
    op.add_column("chat_message", sa.Column("follows", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("chat_message", "follows")
    op.drop_column("chat_message", "turn")
