"""How a custom voice says its language, where its owner said so."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("voice", sa.Column("accent", sa.String(length=16), nullable=True))


def downgrade() -> None:
    op.drop_column("voice", "accent")
