"""Chats have a size, so that chats and workspaces are bounded in stored bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SIZES = """
UPDATE chat SET stored_bytes = 4096 + COALESCE(
    (SELECT SUM(LENGTH(content) + 200) FROM chat_message WHERE chat_message.chat_id = chat.id), 0
)
"""


def upgrade() -> None:
    size = sa.Column("stored_bytes", sa.BigInteger(), server_default="4096", nullable=False)
    op.add_column("chat", size)
    op.execute(SIZES)
    op.create_index("ix_chat_workspace_id_stored_bytes", "chat", ["workspace_id", "stored_bytes"])


def downgrade() -> None:
    op.drop_index("ix_chat_workspace_id_stored_bytes", table_name="chat")
    op.drop_column("chat", "stored_bytes")
