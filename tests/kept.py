"""What would take most of the time of thousands of tests: done once a process, or cheaply."""

import os
import pickle
import ssl
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from httpx._transports import default
from sqlalchemy import create_engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from configs import load
from configs.settings import PROJECT_DIR
from db import database
from pipelines.accounts import passwords

NICENESS = passwords.NICENESS
_read = load._read


def hash_cheaply() -> None:
    """Hashes passwords in 0.1 ms, in place of 40 ms of the lowest priority, for which a sign-up
    waits up to a second beside other tests."""
    vars(passwords)["PasswordHasher"] = lambda **_: PasswordHasher(1, 8, 1)
    passwords.NICENESS = 0


def hash_as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes `hash_cheaply` for one test."""
    monkeypatch.setattr(passwords, "PasswordHasher", PasswordHasher)
    monkeypatch.setattr(passwords, "NICENESS", NICENESS)


def keep_files() -> None:
    """Keeps the files of `configs/`, of which a service reads eighteen, in 90 of its 112 ms of CPU
    time, and the authorities of HTTPS, which a client of httpx reads in 19 ms."""
    load._read = _read_once
    vars(default)["create_ssl_context"] = _context


def keep_statements() -> None:
    """Compiles each statement once a process and not once a database, a sixth of the CPU time of a
    test with a service of its own."""
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):  # the keys of compiled statements
        vars_of_class: Any = dialect
        vars_of_class.__eq__ = lambda self, other: type(self) is type(other)
        vars_of_class.__hash__ = lambda self: hash(type(self))
    options: dict[str, Any] = {"compiled_cache": {}}
    vars(database)["create_engine"] = partial(create_engine, execution_options=options)


def _read_once(name: str) -> Any:
    path = Path(name) if name.endswith(".yaml") else load.CONFIGS_DIR / f"{name}.yaml"
    # A file of a test may change and keep its size and, as that has few digits, its time.
    if not path.is_absolute() or not path.is_relative_to(PROJECT_DIR):
        return _read(name)
    return pickle.loads(_parsed(name))


@cache
def _parsed(name: str) -> bytes:
    return pickle.dumps(_read(name))


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if verify is not True or cert is not None:
        return httpx.create_ssl_context(verify, cert, trust_env)
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR") if trust_env else ()
    return _usual_context(tuple(os.environ.get(name) for name in names))


@cache
def _usual_context(named: tuple[str | None, ...]) -> ssl.SSLContext:
    """One for each value of the variables that name the authorities, if they are to be read."""
    return httpx.create_ssl_context(trust_env=bool(named))
