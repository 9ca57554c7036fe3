"""Voices as sealed files: exported, imported, and refused when they are hostile."""

import io
import json
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
import pytest

from api.services import Services
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, write_pack
from pipelines.storage.encryption import Encryption
from pipelines.voices.library import MARK, MAX_BYTES, SALT_BYTES, VoiceFile, VoiceLibrary
from tests.api.money import Books, principal_of
from tests.api.native.voices.sample_reports import full_report
from tests.api.native.voices.test_custom import audit_actions, stored_files, synthesize
from tests.api.native.voices.test_versions import improve
from tests.api.native.voices.voice_making import PACK, create, finish
from tests.engines import TONE_ENGINE
from tests.pipelines.voices.recordings import good_files
from tests.plans import raise_plans

Headers = dict[str, str]
PASSPHRASE = "a passphrase that is long"
SALT = bytes(SALT_BYTES)


async def export(
    client: httpx.AsyncClient, headers: Headers, voice_id: str, **body: Any
) -> httpx.Response:
    return await client.post(f"/voices/{voice_id}/export", headers=headers, json=body)


async def load(
    client: httpx.AsyncClient, headers: Headers, data: bytes, **fields: str
) -> httpx.Response:
    files = {"file": ("ann.voice", data)}
    return await client.post("/voice-imports", headers=headers, data=fields, files=files)


async def exported(
    client: httpx.AsyncClient, auth: Headers, services: Services, **body: Any
) -> bytes:
    """The file of a new voice, which is deleted."""
    fields = {"consent": "She agreed.", "description": "Mine", "language": "en-GB"}
    voice = await create(client, auth, **fields, gender="female")
    await finish(services)
    sealed = await export(client, auth, voice["id"], **body)
    assert sealed.status_code == 200, sealed.text
    await client.delete(f"/voices/{voice['id']}", headers=auth)
    return sealed.content


def content() -> dict[str, Any]:
    """Of a file, as JSON has it."""
    moment = "2026-01-01T12:00:00Z"
    file = VoiceFile(
        id="1b4e28ba-2fa1-41d2-883f-0016d3cca427",
        created_at=moment,
        exported_at=moment,
        name="Ann",
        description=None,
        language="en",
        accent=None,
        gender="female",
        pitch_hz=200,
        engine=TONE_ENGINE,
        similarity=0.9,
        consent="Yes.",
        consent_sentence=None,
        consent_by="key:1",
        consent_address="127.0.0.1",
        consent_at=moment,
        report=full_report(),
        pack=PACK,
    )
    return cast(dict[str, Any], json.loads(file.model_dump_json()))


async def workspace_of(client: httpx.AsyncClient, headers: Headers) -> int:
    return int((await client.get("/auth/workspace", headers=headers)).json()["id"])


def sealed(
    services: Services,
    workspace_id: int,
    changed: bytes | dict[str, Any],
    mark: bytes = MARK,
    passphrase: str | None = None,
) -> bytes:
    """A file of this content, sealed as the service itself would seal it."""
    data = changed if isinstance(changed, bytes) else json.dumps({**content(), **changed}).encode()
    encryption, about = services.voices.library._sealing(workspace_id, passphrase, SALT)
    return mark + SALT + encryption.encrypt(data, about)


async def load_sealed(
    client: httpx.AsyncClient,
    headers: Headers,
    services: Services,
    changed: bytes | dict[str, Any],
    mark: bytes = MARK,
) -> httpx.Response:
    workspace_id = await workspace_of(client, headers)
    return await load(client, headers, sealed(services, workspace_id, changed, mark))


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
async def test_an_imported_voice_is_the_exported_one_with_its_report_and_consent(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    passphrase: str | None,
) -> None:
    fields = {"consent": "She agreed.", "description": "Mine", "language": "en-GB"}
    voice = await create(client, auth, **fields, gender="female")
    row = await finish(services)
    said = (await synthesize(client, auth, voice_id=voice["id"])).json()["audio_base64"]
    report = (await client.get(f"/voices/{voice['id']}/report", headers=auth)).json()
    body = {} if passphrase is None else {"passphrase": passphrase}
    file = await export(client, auth, voice["id"], **body)
    assert file.headers["content-type"] == "application/octet-stream"
    assert f"{voice['id']}.voice" in file.headers["content-disposition"]
    assert b"She agreed" not in file.content
    assert (await audit_actions(client, auth))[0] == "voice.exported"
    await client.delete(f"/voices/{voice['id']}", headers=auth)

    await books.add_webhook("voice.ready")
    answer = await load(client, auth, file.content, **body)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["id"] != voice["id"] and made["is_imported"] is True
    assert (made["name"], made["status"], made["similarity"]) == ("Ann", "ready", 0.912)
    assert (made["description"], made["gender"], made["language"]) == ("Mine", "female", "en")
    (event,) = await books.events()
    assert (event["event"], event["data"]) == ("voice.ready", made)
    assert (await audit_actions(client, auth))[0] == "voice.imported"
    again = (await synthesize(client, auth, voice_id=made["id"])).json()["audio_base64"]
    assert again == said
    kept = (await client.get(f"/voices/{made['id']}/report", headers=auth)).json()
    same = {"judged", "samples", "pitch", "spectrum", "similarity_curve", "seconds"}
    assert {one: kept[one] for one in same} == {one: report[one] for one in same}
    assert kept["recordings"] == []
    caller = await principal_of(services, auth)
    found = await services.voices.custom.get(caller, made["id"])
    assert (found.consent, found.consent_by, found.consent_address, found.consent_at) == (
        *("She agreed.", row.consent_by, "127.0.0.1"),
        row.consent_at,
    )
    assert found.imported is not None and found.imported["id"] == voice["id"]
    assert found.accent == "British"
    holds = [one.service for one in await books.entries() if one.kind == "hold"]
    assert holds == ["voice", "tts", "tts"]  # nothing for the import


async def test_a_file_with_a_passphrase_opens_in_another_installation(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    """Whose keys are others."""
    file = await exported(client, auth, services, passphrase=PASSPHRASE)
    own = await exported(client, auth, services)
    elsewhere = VoiceLibrary(services.voices.custom, Encryption(["A" * 43 + "="]))
    workspace_id = await workspace_of(client, auth)
    assert elsewhere._open(workspace_id + 1, file, PASSPHRASE).name == "Ann"
    from pipelines.errors import InvalidRequest

    with pytest.raises(InvalidRequest, match="another workspace or service"):
        elsewhere._open(workspace_id, own, None)


async def test_a_rotated_key_still_opens_earlier_files(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    file = await exported(client, auth, services)
    old = services.infrastructure.settings.secrets.data_keys
    rotated = VoiceLibrary(services.voices.custom, Encryption(["B" * 43 + "=", *old]))
    assert rotated._open(await workspace_of(client, auth), file, None).name == "Ann"


async def test_another_workspace_opens_a_file_only_with_its_passphrase(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    own = await exported(client, auth, services)
    refused = await load(client, other_auth, own)
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert refused.json()["message"].startswith("passphrase: ")
    given = await exported(client, auth, services, passphrase=PASSPHRASE)
    assert (await load(client, other_auth, given, passphrase=PASSPHRASE)).status_code == 201


async def test_an_imported_voice_has_no_recordings_by_which_it_could_be_improved(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    """Else anyone's recordings could take the place of its speaker, under their consent."""
    made = (await load_sealed(client, auth, services, {})).json()
    refused = await improve(client, auth, made["id"], good_files())
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert refused.json()["message"].startswith("version_of: ")


@pytest.mark.parametrize("passphrase", [None, pytest.param(PASSPHRASE, marks=pytest.mark.slow)])
async def test_every_change_of_a_file_is_noticed(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    tmp_path: Path,
    passphrase: str | None,
) -> None:
    body = {} if passphrase is None else {"passphrase": passphrase}
    file = await exported(client, auth, services, **body)
    places = [0, len(MARK) - 1, len(MARK), len(MARK) + SALT_BYTES, len(MARK) + SALT_BYTES + 12]
    places += [len(file) // 2, len(file) - 1]
    changed = [file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :] for at in places]
    changed += [
        file[:size] for size in (0, 1, len(MARK), len(MARK) + SALT_BYTES + 3, len(file) - 1)
    ]
    changed += [file + b"\0", file[:100] + file[200:], b"PK\3\4" + file, bytes(1000)]
    for number, data in enumerate(changed):
        refused = await load(client, auth, data, **body)
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error"), number
        assert refused.json()["message"].startswith(("file: ", "passphrase: ")), number
    assert (await client.get("/voices", headers=auth)).json()["data"] == []
    assert stored_files(tmp_path) == []


async def test_a_wrong_passphrase_is_named(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    file = await exported(client, auth, services, passphrase=PASSPHRASE)
    for given in ({}, {"passphrase": "another passphrase"}, {"passphrase": "é" * 900}):
        refused = await load(client, auth, file, **given)
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
        assert refused.json()["message"].startswith("passphrase: ")
    own = await exported(client, auth, services)
    refused = await load(client, auth, own, passphrase=PASSPHRASE)
    assert refused.json()["message"].startswith("passphrase: ")
    for passphrase in ("short", "x" * 1001, 7):
        voice = {"passphrase": passphrase}
        refused = await export(client, auth, "1b4e28ba-2fa1-41d2-883f-0016d3cca427", **voice)
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert (await load(client, auth, file, passphrase="x" * 1001)).status_code == 400


def npz(**members: bytes) -> bytes:
    """An archive with these bytes as its arrays, compressed."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members.items():
            packed.writestr(f"{name}.npy", data)
    return target.getvalue()


def npy(shape: str, kind: str = "<f4") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode()


def array(values: Any) -> bytes:
    target = io.BytesIO()
    np.save(target, values)
    return target.getvalue()


STYLE, FLAG, TAPS = np.zeros(STYLE_SHAPE, np.float32), np.array(False), np.zeros(0, np.float32)
GOOD = {"style": array(STYLE), "filter": array(TAPS), "british": array(FLAG)}
HUGE = np.full(STYLE_SHAPE, 1e30, np.float32)
HOSTILE: dict[str, Callable[[], bytes]] = {
    "no archive": lambda: b"\0" * 1000,
    "an empty archive": lambda: npz(),
    "cut off": lambda: PACK[:-100],
    "a bomb": lambda: npz(**GOOD | {"style": bytes(300 * 2**20)}),
    "an array of a terabyte": lambda: npz(**GOOD | {"style": npy("(274877906944,)")}),
    "an array of many dimensions": lambda: npz(**GOOD | {"style": npy(f"({'1,' * 40})")}),
    "a negative shape": lambda: npz(**GOOD | {"style": npy("(-1, 256)")}),
    "a shape that is code": lambda: npz(**GOOD | {"style": npy("__import__('os')")}),
    "objects": lambda: npz(**GOOD | {"style": npy("(1,)", "|O") + b"cos\nsystem\n."}),
    "another shape": lambda: write_pack(VoicePack(np.zeros((3, 3), np.float32))),
    "integers": lambda: npz(**GOOD | {"style": array(np.zeros(STYLE_SHAPE, np.int32))}),
    "not a number": lambda: write_pack(VoicePack(np.full(STYLE_SHAPE, np.nan, np.float32))),
    "numbers beyond any style": lambda: write_pack(VoicePack(HUGE)),
    "a filter beyond any": lambda: write_pack(VoicePack(STYLE, np.full(9, -1e6, np.float32))),
    "a prompt": lambda: npz(prompt=array(np.zeros(48_000, np.int16))),
}


CONTENTS: list[bytes | dict[str, Any]] = [
    b"",
    b"{}",
    b"[" * 100_000,
    b'{"id": ' + b"9" * 100_000,
    zlib.compress(bytes(1000)),
    {"name": "a\nb"},
    {"name": ""},
    {"name": "x" * 201},
    {"description": "nul \0"},
    {"description": "x" * 2001},
    {"consent": "x" * 2001},
    {"consent_by": "x" * 41},
    {"gender": "robot"},
    {"accent": "Martian"},
    {"language": "xx"},
    {"language": "x" * 9},
    {"engine": "another"},
    {"similarity": float("nan")},
    {"similarity": None},
    {"pitch_hz": float("inf")},
    {"created_at": "yesterday"},
    {"consent_at": "2026-01-01T00:00:00"},
    {"consent_at": "0001-01-01T00:00:00+14:00"},
    {"consent_at": "9999-12-31T23:59:59-14:00"},
    {"pack": "?"},
    {"pack": ""},
    {"report": {"version": 2}},
    {"report": {**full_report().model_dump(), "similarity_curve": [[1, 0.5]] * 5001}},
    {"report": {**full_report().model_dump(), "similarity_curve": [[1, float("inf")]]}},
]


async def test_hostile_packs_and_contents_in_a_well_sealed_file_are_refused(
    client: httpx.AsyncClient, auth: Headers, services: Services, tmp_path: Path
) -> None:
    raise_plans(services.infrastructure.settings.database_url)
    workspace_id = await workspace_of(client, auth)
    assert (await load(client, auth, sealed(services, workspace_id, {}))).status_code == 201
    count = len(stored_files(tmp_path))
    packs = [{"pack": urlsafe_b64encode(make()).decode()} for make in HOSTILE.values()]
    for changed in (*packs, *CONTENTS):
        refused = await load(client, auth, sealed(services, workspace_id, changed))
        shown = str(changed)[:80]
        assert (refused.status_code, refused.json()["error"]) == (400, "validation_error"), shown
        assert changed not in packs or refused.json()["message"].startswith("file: "), shown
        assert len(stored_files(tmp_path)) == count, shown
    assert (await client.get("/voices", headers=auth)).json()["pagination"]["total"] == 1


async def test_a_file_of_another_version_or_size_is_refused(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    refused = await load_sealed(client, auth, services, {}, b"antiphon voice 2\n")
    assert refused.json()["message"].startswith("file: is not a voice that this version")
    refused = await load(client, auth, bytes(MAX_BYTES + 1))
    assert (refused.status_code, refused.json()["error"]) == (400, "file_too_large")
    missing = await client.post("/voice-imports", headers=auth, files={"other": b"x"})
    assert missing.json()["message"].startswith("file: ")
    no_form = await client.post("/voice-imports", headers=auth, json={})
    assert no_form.json()["error"] == "unsupported_media_type"


async def test_an_import_needs_the_consent_that_a_voice_needs(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    nothing = {"consent": None, "consent_at": None}
    services.voices.custom.consent.needed = "attest"
    refused = await load_sealed(client, auth, services, nothing)
    assert refused.json()["message"].startswith("file: does not contain the speaker's consent")
    services.voices.custom.consent.needed = "spoken"
    made = sealed(services, 0, {}, passphrase=PASSPHRASE)
    # Who knows the passphrase may have written the consent into the file.
    refused = await load(client, auth, made, passphrase=PASSPHRASE)
    assert refused.json()["message"].startswith("passphrase: ")
    # Sealed by the service itself, but with a consent that was only attested.
    refused = await load_sealed(client, auth, services, {})
    assert refused.json()["message"].startswith("file: this service only imports voices whose spoken consent")
    heard = {"consent_sentence": "I agree."}
    refused = await load_sealed(client, auth, services, heard | {"consent_claimed": True})
    assert refused.status_code == 400
    assert (await load_sealed(client, auth, services, heard)).status_code == 201


async def test_an_import_obeys_the_plan_and_is_done_once(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    keyed = {**auth, "Idempotency-Key": "once"}
    file = sealed(services, await workspace_of(client, auth), {})
    first, again = [await load(client, keyed, file) for _ in range(2)]
    assert (first.status_code, again.json()) == (201, first.json())
    refused = await load(client, auth, file)
    assert (refused.status_code, refused.json()["error"]) == (403, "plan_required")


async def test_only_a_ready_voice_of_ones_own_is_exported(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    early = await export(client, auth, voice["id"])
    assert (early.status_code, early.json()["error"]) == (400, "voice_not_ready")
    await finish(services)
    theirs = await export(client, other_auth, voice["id"])
    assert (theirs.status_code, theirs.json()["error"]) == (404, "voice_not_found")
