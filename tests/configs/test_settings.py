"""Secrets are made once, for the service's user alone."""

from pathlib import Path

import pytest

from configs.settings import load_settings

VARIABLES = ("ANTIPHON_TOKEN_KEY", "ANTIPHON_KEY_PEPPER", "ANTIPHON_URL_KEY", "ANTIPHON_DATA_KEYS")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a service that never started."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "data"
    monkeypatch.setenv("ANTIPHON_DATA", str(folder))
    return folder


def test_the_first_start_makes_secrets_that_the_next_one_reads(data: Path) -> None:
    first = load_settings().secrets
    assert load_settings().secrets == first
    assert len({first.token_key, first.api_key_pepper, first.url_key, *first.data_keys}) == 4


def test_nobody_else_can_read_what_is_made(data: Path) -> None:
    load_settings()
    assert data.stat().st_mode & 0o077 == 0
    assert (data / "secrets.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o622])
def test_secrets_that_others_may_reach_are_refused(data: Path, mode: int) -> None:
    load_settings()
    (data / "secrets.json").chmod(mode)
    with pytest.raises(PermissionError, match="chmod 600"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTIPHON_TOKEN_KEY", "short"),
        ("ANTIPHON_DATA_KEYS", "A" * 43 + "B"),  # base64 of no whole byte
        ("ANTIPHON_DATA_KEYS", "QUFB" * 12),
    ],
)
def test_a_weak_or_broken_key_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as caught:
        load_settings()
    assert value not in str(caught.value)


def test_secrets_do_not_show_when_settings_are_printed(data: Path) -> None:
    settings = load_settings()
    assert settings.secrets.token_key not in repr(settings)
