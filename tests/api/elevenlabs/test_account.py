"""What ElevenLabs' clients read of a workspace, and pronunciation dictionaries."""

from typing import Any

import httpx
import pytest

from tests.api.elevenlabs.test_speech import RACHEL
from tests.api.money import Books

Headers = dict[str, str]
PATH = "/v1/pronunciation-dictionaries"
RULES: list[dict[str, Any]] = [
    {"type": "alias", "string_to_replace": "IP", "alias": "internet protocol"},
    {"type": "phoneme", "string_to_replace": "Nginx", "phoneme": "ˈɛndʒɪn", "alphabet": "ipa",
     "case_sensitive": False, "word_boundaries": True},
]  # fmt: skip
PLS = (
    '<lexicon version="1.0" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon" alphabet="ipa">'
    "<lexeme><grapheme>IP</grapheme><alias>internet protocol</alias></lexeme></lexicon>"
)


async def test_the_header_decides_whose_list_of_models_is_shown(
    client: httpx.AsyncClient, xi: Headers, auth: Headers
) -> None:
    (model,) = (await client.get("/v1/models", headers=xi)).json()
    assert model["can_do_text_to_speech"] and model["model_id"] and model["languages"]
    others = (await client.get("/v1/models", headers=auth)).json()
    assert others["object"] == "list" and others["stt"]
    wrong = await client.get("/v1/models", headers={"xi-api-key": "sk_wrong"})
    assert (wrong.status_code, wrong.json()["detail"]["status"]) == (401, "invalid_api_key")


async def test_voices_are_searched_in_pages(client: httpx.AsyncClient, xi: Headers) -> None:
    everything = (await client.get("/v1/voices", headers=xi)).json()["voices"]
    assert {"voice_id", "name", "category", "labels"} <= everything[0].keys()
    found: list[dict[str, Any]] = []
    token: str | None = ""
    while token is not None:
        query: dict[str, Any] = {"page_size": 2, "next_page_token": token}
        page = (await client.get("/v2/voices", headers=xi, params=query)).json()
        assert page["total_count"] == len(everything) and len(page["voices"]) <= 2
        found += page["voices"]
        token = page["next_page_token"]
        assert page["has_more"] == (token is not None)
    assert found == everything
    name = everything[0]["name"]
    query = {"search": name.upper(), "category": "premade"}
    searched = (await client.get("/v2/voices", headers=xi, params=query)).json()["voices"]
    assert name in [one["name"] for one in searched]
    none = (await client.get("/v2/voices", headers=xi, params={"category": "cloned"})).json()
    assert none["voices"] == []
    for wrong in ({"page_size": 0}, {"next_page_token": "x"}):
        assert (await client.get("/v2/voices", headers=xi, params=wrong)).status_code == 422
    missing = await client.get("/v1/voices/unknown", headers=xi)
    assert (missing.status_code, missing.json()["detail"]["status"]) == (404, "voice_not_found")


async def test_the_credit_is_shown_as_characters(
    client: httpx.AsyncClient, xi: Headers, books: Books
) -> None:
    before = (await client.get("/v1/user/subscription", headers=xi)).json()
    assert before["character_count"] == 0 < before["character_limit"]
    voice = (await client.get("/v1/voices", headers=xi)).json()["voices"][0]["voice_id"]
    spoken = await client.post(
        f"/v1/text-to-speech/{voice}", headers=xi, json={"text": "Hello there."}
    )
    assert spoken.status_code == 200
    user = (await client.get("/v1/user", headers=xi)).json()
    after = user["subscription"]
    assert after["character_count"] == 12
    assert after["character_limit"] == before["character_limit"]
    assert user["user_id"] and user["workspace_id"] and after["status"] == "active"
    await books.set_credit(0)
    poor = (await client.get("/v1/user/subscription", headers=xi)).json()
    assert poor["character_limit"] == poor["character_count"] == 12


async def test_dictionaries_are_made_listed_read_and_downloaded(
    client: httpx.AsyncClient, xi: Headers, auth: Headers
) -> None:
    body = {"name": "Names", "rules": RULES}
    made = (await client.post(f"{PATH}/add-from-rules", headers=xi, json=body)).json()
    assert (made["name"], made["version_id"], made["version_rules_num"]) == ("Names", "1", 2)
    shown = (await client.get(f"{PATH}/{made['id']}", headers=xi)).json()
    assert shown["latest_version_id"] == "1" and shown["latest_version_rules_num"] == 2
    assert [one["string_to_replace"] for one in shown["rules"]] == ["IP", "Nginx"]
    assert shown["rules"][1]["phoneme"] == RULES[1]["phoneme"]
    files = {"file": ("names.pls", PLS, "text/xml")}
    form = {"name": "From a file"}
    filed = await client.post(f"{PATH}/add-from-file", headers=xi, data=form, files=files)
    assert filed.json()["version_rules_num"] == 1
    first = (await client.get(PATH, headers=xi, params={"page_size": 1})).json()
    assert first["has_more"] and len(first["pronunciation_dictionaries"]) == 1
    query = {"page_size": 1, "cursor": first["next_cursor"]}
    second = (await client.get(PATH, headers=xi, params=query)).json()
    assert not second["has_more"] and second["next_cursor"] is None
    listed = [*first["pronunciation_dictionaries"], *second["pronunciation_dictionaries"]]
    assert {one["name"] for one in listed} == {"Names", "From a file"}
    pls = await client.get(f"{PATH}/{made['id']}/1/download", headers=xi)
    assert "internet protocol" in pls.text and pls.headers["content-type"] == "application/pls+xml"
    own = (await client.get(f"/pronunciations/{made['id']}", headers=auth)).json()
    assert own["size"] == 2  # the service's own dictionaries are the same ones


async def test_a_downloaded_dictionary_with_control_characters_can_be_read_again(
    client: httpx.AsyncClient, xi: Headers
) -> None:
    """XML 1.0 has no form for most control characters."""
    rule = {"type": "alias", "string_to_replace": "I\x07P\x1b\ufffe", "alias": "inter\x1fnet"}
    made = await client.post(
        f"{PATH}/add-from-rules", headers=xi, json={"name": "Names", "rules": [rule]}
    )
    pls = await client.get(f"{PATH}/{made.json()['id']}/1/download", headers=xi)
    files = {"file": ("names.pls", pls.content, "text/xml")}
    again = await client.post(
        f"{PATH}/add-from-file", headers=xi, data={"name": "Again"}, files=files
    )
    assert again.status_code == 200, again.text
    shown = (await client.get(f"{PATH}/{again.json()['id']}", headers=xi)).json()
    (read,) = shown["rules"]
    assert (read["string_to_replace"], read["alias"]) == ("IP", "internet")


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [{"type": "alias", "string_to_replace": "IP"}],
        [{"type": "phoneme", "string_to_replace": "IP", "alias": "internet"}],
        [{"type": "phoneme", "string_to_replace": "IP", "phoneme": "AY1", "alphabet": "cmu"}],
        [{"type": "alias", "string_to_replace": "", "alias": "internet"}],
        [{"type": "alias", "string_to_replace": "IP", "alias": "a", "word_boundaries": False}],
    ],
)
async def test_wrong_rules_are_refused(
    client: httpx.AsyncClient, xi: Headers, rules: list[dict[str, object]]
) -> None:
    body = {"name": "Names", "rules": rules}
    answer = await client.post(f"{PATH}/add-from-rules", headers=xi, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"][0]["msg"]


async def test_wrong_files_and_other_workspaces_dictionaries_are_refused(
    client: httpx.AsyncClient, xi: Headers, other_auth: Headers
) -> None:
    for data in (b"\xff\xfe", b"<lexicon", b""):
        files = {"file": ("a.pls", data, "text/xml")}
        answer = await client.post(
            f"{PATH}/add-from-file", headers=xi, data={"name": "A"}, files=files
        )
        assert answer.status_code in (400, 422), answer.text
    body = {"name": "Names", "rules": RULES}
    made = (await client.post(f"{PATH}/add-from-rules", headers=xi, json=body)).json()
    for path in (f"{PATH}/{made['id']}", f"{PATH}/{made['id']}/1/download"):
        assert (await client.get(path, headers=other_auth)).status_code == 404
    assert (await client.get(f"{PATH}/{made['id']}/9/download", headers=xi)).status_code == 404
    assert (await client.get(f"{PATH}/{made['id']}/x/download", headers=xi)).status_code == 422


async def test_rules_are_added_removed_and_replaced_in_new_versions(
    client: httpx.AsyncClient, xi: Headers, other_auth: Headers
) -> None:
    body = {"name": "Names", "rules": RULES}
    made = (await client.post(f"{PATH}/add-from-rules", headers=xi, json=body)).json()
    path = f"{PATH}/{made['id']}"
    http = {"type": "alias", "string_to_replace": "HTTP", "alias": "hypertext"}
    added = [{**RULES[0], "alias": "address"}, http]
    changes: list[tuple[str, dict[str, Any], list[str]]] = [
        ("add-rules", {"rules": added}, ["Nginx", "IP", "HTTP"]),
        ("remove-rules", {"rule_strings": ["Nginx", "unknown"]}, ["IP", "HTTP"]),
        ("set-rules", {"rules": [http]}, ["HTTP"]),
        ("remove-rules", {"rule_strings": ["HTTP"]}, []),
    ]
    no_change = {"rule_strings": ["unknown"]}
    same = await client.post(f"{path}/remove-rules", headers=xi, json=no_change)
    assert same.json()["version_id"] == "1"
    for version, (change, fields, strings) in enumerate(changes, start=2):
        answer = await client.post(f"{path}/{change}", headers=xi, json=fields)
        assert answer.status_code == 200, answer.text
        size = len(strings)
        made = {
            "id": path.rpartition("/")[2],
            "version_id": str(version),
            "version_rules_num": size,
        }
        assert made.items() <= answer.json().items()
        shown = (await client.get(path, headers=xi)).json()
        assert [one["string_to_replace"] for one in shown["rules"]] == strings
    for change, fields, _ in changes:
        other = await client.post(f"{path}/{change}", headers=other_auth, json=fields)
        assert other.status_code == 404
        assert (await client.post(f"{path}/{change}", headers=xi, json={})).status_code == 422


async def test_voices_are_filtered_and_sorted(client: httpx.AsyncClient, xi: Headers) -> None:
    async def search(**query: Any) -> list[dict[str, Any]]:
        answer = await client.get("/v2/voices", headers=xi, params={"page_size": 100, **query})
        assert answer.status_code == 200, answer.text
        voices: list[dict[str, Any]] = answer.json()["voices"]
        return voices

    everything = await search()
    for query, label, values in (
        ({"gender": "Female"}, "gender", {"female"}),
        ({"language": ["de", "en-GB"]}, "language", {"de", "en"}),
        (
            {"accent": everything[0]["labels"]["accent"]},
            "accent",
            {everything[0]["labels"]["accent"]},
        ),
    ):
        listed = await search(**query)
        assert listed == [one for one in everything if one["labels"][label] in values] != []
    ids = [everything[1]["voice_id"], "unknown"]
    assert [one["voice_id"] for one in await search(voice_ids=ids)] == ids[:1]
    assert await search(search="use_case") == []
    assert await search(voice_type="default") == everything
    assert await search(voice_type="personal") == await search(language="tlh") == []
    names = [one["name"] for one in await search(sort="name", sort_direction="desc")]
    assert names == sorted(names, key=str.lower, reverse=True)
    wrong = await client.get("/v2/voices", headers=xi, params={"sort_direction": "up"})
    assert wrong.status_code == 422


@pytest.mark.in_process  # another gateway remembers settings for 5 s
async def test_stored_settings_are_the_defaults_of_the_speech_of_one_workspace(
    client: httpx.AsyncClient, xi: Headers, other_auth: Headers
) -> None:
    path = f"/v1/voices/{RACHEL}/settings"
    default = (await client.get("/v1/voices/settings/default", headers=xi)).json()
    assert (
        (await client.get(path, headers=xi)).json() == default == {"stability": 0.5, "speed": 1.0}
    )
    changes: tuple[dict[str, Any], ...] = (
        {"stability": 0.3, "speed": 0.7},
        {"speed": 1.2, "stability": None, "style": 0.2},
    )
    for change in changes:
        stored = await client.post(f"{path}/edit", headers=xi, json=change)
        assert (stored.status_code, stored.json()) == (200, {"status": "ok"})
    assert stored.headers["X-Ignored-Fields"] == "style"
    expected = {"stability": 0.3, "speed": 1.2}
    assert (await client.get(path, headers=xi)).json() == expected
    assert (await client.get(f"/v1/voices/{RACHEL}", headers=xi)).json()["settings"] == expected
    wrong = await client.post(f"{path}/edit", headers=xi, json={"speed": 9})
    assert (wrong.status_code, wrong.json()["detail"][0]["loc"]) == (422, ["body", "speed"])

    async def length(headers: Headers, voice: str = RACHEL, **body: Any) -> int:
        url = f"/v1/text-to-speech/{voice}"
        query = {"output_format": "pcm_16000"}
        sent = {"text": "A sentence for the room.", **body}
        answer = await client.post(url, headers=headers, params=query, json=sent)
        assert answer.status_code == 200, answer.text
        return len(answer.content)

    theirs = await length(other_auth)
    assert (await client.get(path, headers=other_auth)).json() == default
    assert await length(xi, voice_settings={"speed": 1.0}) == pytest.approx(theirs, rel=0.02)
    bodies: list[dict[str, Any]] = [{}, {"voice_settings": {"stability": 0.9}}]
    for body in bodies:
        assert await length(xi, **body) == pytest.approx(theirs / 1.2, rel=0.03)
    # By the name of a voice or its id.
    voice = (await client.get("/v1/voices", headers=xi)).json()["voices"][0]
    edit = f"/v1/voices/{voice['name']}/settings/edit"
    assert (await client.post(edit, headers=xi, json={"speed": 0.8})).status_code == 200
    assert await length(xi, voice["voice_id"]) > 1.15 * await length(other_auth, voice["voice_id"])
    listed = (await client.get("/v2/voices", headers=xi)).json()["voices"]
    slow = [one["voice_id"] for one in listed if one["settings"]["speed"] == 0.8]
    assert slow == [voice["voice_id"]]
    assert (await client.get("/v1/voices/unknown/settings", headers=xi)).status_code == 404
    unknown = await client.post("/v1/voices/unknown/settings/edit", headers=xi, json={"speed": 1.0})
    assert unknown.status_code == 404
