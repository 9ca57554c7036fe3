"""Which webhook URLs may be registered, without a DNS lookup."""

from ipaddress import ip_network

import pytest

from pipelines.errors import InvalidUrl
from pipelines.webhooks.targets import check_url

OWN = {"speech.example.com"}

REFUSED = [
    "",
    "example.com",
    "//example.com",
    "http://example.com/",
    "ftp://example.com/",
    "https:",
    "https://",
    "https:///path",
    "https:example.com",
    "https://user@example.com/",
    "https://user:word@example.com/",
    "https://@example.com/",
    "https://example.com@evil.example.net/",
    "https://example.com/#part",
    "https://example.com/#",
    "https://example.com:22/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://example.com:port/",
    "https://8.8.8.8/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://017700000001/",
    "https://1.2.3.4./",
    "https://１２７.０.０.１/",
    "https://127。0。0。1/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[fe80::1%25eth0]/",
    "https://localhost/",
    "https://LOCALHOST./",
    "https://a.localhost/",
    "https://printer.local/",
    "https://metadata.google.internal/",
    "https://intranet/",
    "https://speech.example.com/",
    "https://Speech.Example.com./",
    "https://exa mple.com/",
    "https://example.com/a b",
    "https://example.com\\@evil.example.net/",
    "https://example.com/\r\nHost: x",
    "https://example.com/\x00",
    "https://exam%70le.com/",
    "https://a..example.com/",
    "https://-a.example.com/",
    f"https://{'a' * 64}.com/",
    f"https://example.com/{'a' * 2048}",
]


@pytest.mark.parametrize("url", REFUSED)
def test_an_invalid_or_non_public_webhook_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl, match="url: "):
        check_url(url, OWN, ())


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://example.com/hook?key=a@b&x=%20",
        "HTTPS://Example.COM:8443/",
        "https://example.com:65535/",
        "https://hooks.ünï.example/ä",
        "https://xn--n-nga1b.example/",
        "https://under_score.example.com/",
        "https://1.example.com/",
        "https://not-yet-resolvable.example/",
    ],
)
def test_a_public_https_url_is_accepted(url: str) -> None:
    check_url(url, OWN, ())


def test_an_allowed_network_permits_its_addresses_and_internal_names() -> None:
    allowed = (ip_network("10.0.0.0/8"),)
    for url in ("https://10.1.2.3:9000/", "https://receiver/", "https://hooks.internal/"):
        check_url(url, OWN, allowed)
    for url in ("https://192.168.0.1/", "https://speech.example.com/", "http://10.1.2.3/"):
        with pytest.raises(InvalidUrl):
            check_url(url, OWN, allowed)
