"""The name of the service that a database belongs to, however many processes it has."""

from sqlmodel import Field, Session, SQLModel, select


class Service(SQLModel, table=True):
    """The one row names the service, among others that use the same cluster."""

    id: str = Field(primary_key=True, max_length=32)


def service_id(session: Session) -> str:
    """Drawn when the tables were made; 16 hexadecimal digits."""
    return session.exec(select(Service.id)).one()
