"""What a database remembers of the service it belongs to: its name, and the secrets it was made
with."""

from collections.abc import Mapping, Sequence

from sqlalchemy import LargeBinary
from sqlmodel import Field, Session, SQLModel, select


class Service(SQLModel, table=True):
    """The one row names the service, among others that use the same cluster."""

    id: str = Field(primary_key=True, max_length=32)


class SecretFingerprint(SQLModel, table=True):
    """A digest of a secret that the service was started with; nothing leads back to the secret."""

    __tablename__ = "secret_mark"

    name: str = Field(primary_key=True, max_length=40)
    digest: bytes = Field(sa_type=LargeBinary)


def service_id(session: Session) -> str:
    """Drawn when the tables were made; 16 hexadecimal digits."""
    return session.exec(select(Service.id)).one()


def unknown_secrets(
    session: Session, marks: Mapping[str, Sequence[bytes]], *, accept: bool = False
) -> list[str]:
    """The names whose mark is none of those given; none with `accept`.

    Where there are none, each name is remembered by its first mark.
    """
    rows = {name: session.get(SecretFingerprint, name, with_for_update=True) for name in marks}
    strange = [name for name, row in rows.items() if row and row.digest not in marks[name]]
    if strange and not accept:
        return strange
    for name in marks:
        session.merge(SecretFingerprint(name=name, digest=marks[name][0]))
    return []
