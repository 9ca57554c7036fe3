"""Jobs have details."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job", sa.Column("details", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("job", "details")
