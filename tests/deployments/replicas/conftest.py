"""Replicas in the process of the tests."""

import os

import pytest


@pytest.fixture(autouse=True)
def priority_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica lowers the priority of its process, which here runs all later tests, too."""
    monkeypatch.setattr(os, "nice", lambda more: 0)
