"""Higher plans, for tests that exceed the limits of a new workspace's plan."""

from sqlmodel import Session, update

from db.accounts import Workspace
from db.database import make_engine


def raise_plans(database_url: str, plan: str = "enterprise") -> None:
    """Puts every workspace on `plan`; call it before the first request, since plans are cached."""
    engine = make_engine(database_url)
    try:
        with Session(engine) as session:
            session.exec(update(Workspace).values(plan=plan))
            session.commit()
    finally:
        engine.dispose()
