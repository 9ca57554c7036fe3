"""The page of clients, as far as it can be checked without running them."""

from tests.clients.node_clients import PACKAGES
from tools import compatibility


def test_the_page_has_the_locked_versions_of_all_clients() -> None:
    """After `make lock`, `make compatibility` writes it again."""
    page = compatibility.PAGE.read_text()
    for client, version in compatibility.locked_versions(PACKAGES).items():
        name = client.partition(" ")[2]
        assert f"| {name} | {version} |" in page, f"`make compatibility`: {client} is {version}"
