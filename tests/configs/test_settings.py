"""Secrets are generated once and readable by their owner only; invalid settings are errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from yarl import URL

from antiphon.webhooks import signing_key
from configs.environment import SettingsError, cluster_address, cores
from configs.settings import PROJECT_DIR, load_settings
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.registration import Webhooks


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a service that never started."""
    folder = tmp_path / "data"
    monkeypatch.setenv("ANTIPHON_DATA", str(folder))
    return folder


def test_the_first_start_generates_secrets_that_later_starts_read(data: Path) -> None:
    first = load_settings().secrets
    assert load_settings().secrets == first
    assert len({*first.token_keys, first.api_key_pepper, first.url_key, *first.data_keys}) == 4


def test_only_the_owner_reads_the_data_folder_and_the_secrets(data: Path) -> None:
    load_settings()
    assert data.stat().st_mode & 0o077 == 0
    assert (data / "secrets.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o701, 0o750, 0o777])
def test_a_data_folder_that_is_open_to_other_users_is_refused(data: Path, mode: int) -> None:
    load_settings()
    data.chmod(mode)
    with pytest.raises(SettingsError, match=rf"^ANTIPHON_DATA: .*\(mode {mode:o} of .* mode 700 "):
        load_settings()


def test_a_data_folder_that_any_user_can_replace_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_settings()
    data.parent.chmod(0o777)
    with pytest.raises(SettingsError, match="^ANTIPHON_DATA: other users can reach"):
        load_settings()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == data.parent)  # a volume of a pod
    load_settings()
    monkeypatch.undo()
    data.parent.chmod(0o1777)
    monkeypatch.setenv("ANTIPHON_DATA", str(data))
    load_settings()


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o622])
def test_a_secrets_file_accessible_to_other_users_is_refused(data: Path, mode: int) -> None:
    load_settings()
    (data / "secrets.json").chmod(mode)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ANTIPHON_TOKEN_KEY", "short"),
        ("ANTIPHON_TOKEN_KEY", "t" * 48 + ",short"),
        ("ANTIPHON_TOKEN_KEY", "t" * 48 + ","),
        ("ANTIPHON_DATA_KEYS", "A" * 43 + "B"),  # base64 of 33 bytes and not 32
        ("ANTIPHON_DATA_KEYS", "QUFB" * 12),
    ],
)
def test_a_key_of_the_wrong_length_is_refused_without_repeating_it(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=name) as caught:
        load_settings()
    assert value not in str(caught.value)


@pytest.mark.parametrize("value", ["short", "l" * 48])
def test_an_unknown_entry_of_the_secrets_file_is_ignored_and_kept(data: Path, value: str) -> None:
    secrets = load_settings().secrets
    stored = json.loads((data / "secrets.json").read_text()) | {"later": value}
    (data / "secrets.json").write_text(json.dumps(stored))
    assert load_settings().secrets == secrets
    assert json.loads((data / "secrets.json").read_text()) == stored


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url_key": 7}', '{"url_key": ""}'])
def test_a_damaged_secrets_file_is_refused_and_not_overwritten(data: Path, text: str) -> None:
    load_settings()
    (data / "secrets.json").write_text(text)
    with pytest.raises(SettingsError, match="secrets.json' is damaged"):
        load_settings()
    assert (data / "secrets.json").read_text() == text


def test_several_token_keys_are_separated_by_commas(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_TOKEN_KEY", "n" * 32 + "," + "o" * 32)
    assert load_settings().secrets.token_keys == ("n" * 32, "o" * 32)


def test_the_repr_of_settings_contains_no_secret(data: Path) -> None:
    settings = load_settings()
    assert settings.secrets.token_keys[0] not in repr(settings)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("192.0.2.1", "http://192.0.2.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("[::]", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
        ("2001:db8::7", "http://[2001:db8::7]:8000"),
        ("speech.example", "http://speech.example:8000"),
        ("", "http://127.0.0.1:8000"),
    ],
)
def test_the_public_url_is_derived_from_the_host(
    data: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setenv("HOST", host)
    settings = load_settings()
    assert settings.public_url == url
    assert URL(url).host and "[" not in settings.host
    # None of its methods is called, so that it needs no database.
    Webhooks(None, Encryption(settings.secrets.data_keys), settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "sign_up", "plan_changes"),
    [
        ("", "open", "self"),
        ("127.0.0.1", "open", "self"),
        ("[::1]", "open", "self"),
        ("localhost", "open", "self"),
        ("0.0.0.0", "closed", "operator"),
        ("::", "closed", "operator"),
        ("192.168.0.7", "closed", "operator"),
        ("speech.example", "closed", "operator"),
    ],
)
def test_an_exposed_service_is_closed_unless_it_is_set_to_open(
    data: Path, monkeypatch: pytest.MonkeyPatch, host: str, sign_up: str, plan_changes: str
) -> None:
    monkeypatch.setenv("HOST", host)
    settings = load_settings()
    assert (settings.sign_up, settings.plan_changes) == (sign_up, plan_changes)
    monkeypatch.setenv("SIGN_UP", "invite")
    monkeypatch.setenv("PLAN_CHANGES", "self")
    settings = load_settings()
    assert (settings.sign_up, settings.plan_changes) == ("invite", "self")


WHSEC = "whsec_" + "A" * 43 + "="


@pytest.mark.parametrize(
    ("url", "secret", "named"),
    [
        ("", WHSEC, "PLAN_WEBHOOK_URL"),
        ("ftp://pay.example", WHSEC, "PLAN_WEBHOOK_URL"),
        ("https://", WHSEC, "PLAN_WEBHOOK_URL"),
        ("https://user:canary@pay.example/", WHSEC, "PLAN_WEBHOOK_URL"),
        ("https://pay.example/", "", "PLAN_WEBHOOK_SECRET"),
        ("https://pay.example/", "canary", "PLAN_WEBHOOK_SECRET"),
        ("https://pay.example/", "whsec_canary", "PLAN_WEBHOOK_SECRET"),
        ("https://pay.example/", WHSEC[:-1], "PLAN_WEBHOOK_SECRET"),
        ("https://pay.example/", "whsec_" + "A" * 100, "PLAN_WEBHOOK_SECRET"),
    ],
)
def test_a_payment_system_needs_an_address_and_a_secret(
    data: Path, monkeypatch: pytest.MonkeyPatch, url: str, secret: str, named: str
) -> None:
    monkeypatch.setenv("PLAN_CHANGES", "webhook")
    monkeypatch.setenv("PLAN_WEBHOOK_URL", "https://pay.example/plans?tenant=7")
    monkeypatch.setenv("PLAN_WEBHOOK_SECRET", WHSEC)
    settings = load_settings()
    assert settings.plan_webhook is not None and WHSEC not in repr(settings)
    assert signing_key(settings.plan_webhook.secret)
    monkeypatch.setenv("PLAN_WEBHOOK_URL", url)
    monkeypatch.setenv("PLAN_WEBHOOK_SECRET", secret)
    with pytest.raises(SettingsError, match=named) as caught:
        load_settings()
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "workspace_id"),
    [
        ({}, 7),
        ({"HOST": "localhost"}, 7),
        ({"HOST": "::1", "PORT": "9000", "SIGN_UP": "closed"}, 7),
        ({"HOST": "0.0.0.0"}, None),
        ({"HOST": "192.0.2.1"}, None),
        ({"PUBLIC_URL": "https://speech.example"}, None),
        ({"PUBLIC_URL": "http://127.0.0.1:8000"}, None),
        ({"TRUSTED_PROXIES": "127.0.0.1"}, None),
        ({"CLUSTER_ADDRESS": "10.0.0.1:6379"}, None),
        ({"ANTIPHON_ALONE": "off"}, None),
        ({"ANTIPHON_OWNER": ""}, None),
    ],
)
def test_only_a_service_for_its_own_machine_has_an_owner_without_limits(
    data: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], workspace_id: int | None
) -> None:
    for name, value in ({"ANTIPHON_OWNER": "7"} | variables).items():
        monkeypatch.setenv(name, value)
    assert load_settings().free_workspace_id == workspace_id


@pytest.mark.parametrize("text", ["10.0.0.1:", "10.0.0.1:70000", "fd00::1", "http://10.0.0.1"])
def test_a_wrong_cluster_address_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CLUSTER_ADDRESS", text)
    with pytest.raises(SettingsError, match="a port, like 10.0.0.1:6379"):
        cluster_address()


def test_trusted_ipv4_proxies_are_also_trusted_as_ipv4_mapped_ipv6_addresses(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUSTED_PROXIES", "10.0.0.0/8, fd00::/8")
    expected = ("10.0.0.0/8", "fd00::/8", "::ffff:10.0.0.0/104")
    assert load_settings().trusted_proxies == expected


def test_origins_are_of_pages_extensions_and_apps(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins = (
        "https://a.example",
        "http://localhost:443",
        "chrome-extension://abc",
        "moz-extension://1-2",
        "app://obsidian",
    )
    monkeypatch.setenv("CORS_ORIGINS", ", ".join(origins))
    assert load_settings().cors_origins == origins


def test_a_relative_storage_path_becomes_an_absolute_file_url(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_URL", "kept")
    assert load_settings().storage_url == f"file://{Path('kept').absolute()}"


def test_a_shared_folder_of_files_is_said_by_the_operator(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not load_settings().storage_shared
    monkeypatch.setenv("STORAGE_SHARED", "on")
    assert load_settings().storage_shared


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("200000 100000", 2), ("150000 100000", 2), ("10000 100000", 1), ("max 100000", 6), (None, 6)],
)
def test_affinity_and_container_quota_bound_the_cores_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr("configs.environment._CPU_MAX", tmp_path / "cpu.max")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert cores() == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "abc"),
        ("STORAGE_SHARED", "yes"),
        ("SIGN_UP", "yes"),
        ("PLAN_CHANGES", "none"),
        ("PORT", "0"),
        ("PORT", "65536"),
        ("STORAGE_URL", "gs://bucket"),  # gcsfs is not installed
        ("STORAGE_URL", "s3://"),
        ("STORAGE_URL", "nowhere://folder"),
        ("STORAGE_URL", "memory://"),
        ("STORAGE_URL", "/data/a::b"),  # fsspec would store in /data/a
        ("TRUSTED_PROXIES", "10.0.0.1/8"),
        ("TRUSTED_PROXIES", "127.0.0.1, proxy"),
        ("WEBHOOK_NETWORKS", "all"),
        ("WEBHOOK_TIME_SCALE", "x"),
        ("WEBHOOK_TIME_SCALE", "nan"),
        ("WEBHOOK_TIME_SCALE", "0"),
        ("WEBHOOK_CA_FILE", "/nowhere/ca.pem"),
        *(("CORS_ORIGINS", one) for one in ("app.example", "https://a.example/", "https://*.b")),
        *(("CORS_ORIGINS", one) for one in ("null", "chrome-extension://*", "://a", "app://")),
        *(("CORS_ORIGINS", one) for one in ("HTTPS://a.example", "https://A.example", "é://x")),
        *(("CORS_ORIGINS", one) for one in ("wss://a.example", "ws://a", "file://x", "data://x")),
        *(
            ("CORS_ORIGINS", one)
            for one in ("javascript://x", "https://ä.example", "https://a:443")
        ),
        ("METRICS_TOKEN", ""),
        ("METRICS_TOKEN", "two words"),
        ("OPERATOR_TOKEN", "t" * 31),
        ("REQUIRE_CONSENT", "yes"),
        ("WATERMARK", "some"),
        ("DATABASE_URL", "mysql://canary@host/database"),
        ("DATABASE_URL", "nosuch://canary@host/database"),
        ("DATABASE_URL", "canary"),
        ("DATABASE_URL", "postgresql://user:canary@host:port/database"),
        ("REDIS_URL", "canary"),
        ("REDIS_URL", "redis://:canary@host:port/0"),
        ("PUBLIC_URL", "speech.example"),
        ("PUBLIC_URL", "https://speech.example/?a=b"),
        ("PUBLIC_URL", "http://:::8000"),
        ("ANTIPHON_DATA", "/dev/null/data"),
        *((name, "~nouser/x") for name in ("ANTIPHON_DATA", "ANTIPHON_WEIGHTS", "STORAGE_URL")),
        ("WYOMING_PORT", "70000"),
        ("WYOMING_PORT", "10300"),  # without a key
        ("WYOMING_KEY", "two words"),
        ("WYOMING_ZEROCONF", "yes"),
        ("WEBRTC", "1"),
        *(("WEBRTC_ADDRESSES", one) for one in ("localhost", "10.0.0.5=::1", "0.0.0.0/0")),
        *(("WEBRTC_PORTS", one) for one in ("50000", "80-90", "50001-50000", "60000-70000")),
        *(("WEBRTC_ICE_SERVERS", one) for one in ("http://a", "turn:a,turns:b", "stun:a b")),
        ("WEBRTC_TURN_PASSWORD", "two words"),
    ],
)
def test_an_invalid_setting_is_reported_in_a_line_with_its_name(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"^{name}") as caught:
        load_settings()
    assert "\n" not in str(caught.value) and "canary" not in str(caught.value)


def test_wyoming_without_a_key_is_refused_before_anything_is_installed() -> None:
    command = [sys.executable, "-S", "-m", "configs.environment"]
    environment = {"WYOMING_PORT": "10300"}
    ended = subprocess.run(
        command, cwd=PROJECT_DIR, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 1
    assert (
        ended.stderr.startswith("WYOMING_PORT needs WYOMING_KEY") and ended.stderr.count("\n") == 1
    )


def test_a_machine_that_joins_others_makes_no_secrets_of_its_own(data: Path) -> None:
    with pytest.raises(SettingsError, match="^ANTIPHON_DATA_KEYS, .*: neither set nor in"):
        load_settings(new_secrets=False)
    assert not (data / "secrets.json").exists()


def test_calls_use_the_address_of_the_service_or_those_named(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = load_settings().webrtc
    assert local is not None and local.addresses == (("127.0.0.1", "127.0.0.1"),)
    monkeypatch.setenv("HOST", "0.0.0.0")
    everywhere = load_settings().webrtc
    assert everywhere is not None and everywhere.addresses == () and everywhere.ports is None
    monkeypatch.setenv("WEBRTC_ADDRESSES", "10.0.0.5=203.0.113.7, fd00::5")
    monkeypatch.setenv("WEBRTC_PORTS", "50000-50999")
    monkeypatch.setenv("WEBRTC_ICE_SERVERS", "stun:s.example,turn:t.example:3478?transport=tcp")
    named = load_settings().webrtc
    assert named is not None and named.ports == (50000, 50999) and len(named.ice_servers) == 2
    assert named.addresses == (("10.0.0.5", "203.0.113.7"), ("fd00::5", "fd00::5"))
    monkeypatch.setenv("WEBRTC", "off")
    assert load_settings().webrtc is None
