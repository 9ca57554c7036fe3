"""A mark of each secret, so that a node with other secrets is told so."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secret_mark",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secret_mark")),
    )


def downgrade() -> None:
    op.drop_table("secret_mark")
