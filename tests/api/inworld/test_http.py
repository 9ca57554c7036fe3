"""Inworld's paths over HTTP."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pipelines.audio.encode.encoder import wav_header
from tests.api.local_server import Server, patient_client, serve_local
from tests.engines.tone import ToneEngine
from tests.patience import PATIENCE_S

TEXT = "It costs 5 euros. Shall we go?"
RAW: dict[str, Any] = {"audioEncoding": "PCM", "sampleRateHertz": 16_000}
CHARACTER_S = 0.06  # of the tone engine


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve_local(tmp_path_factory.mktemp("inworld")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Basic {server.key}"}
    with patient_client(server.url, headers) as opened:
        yield opened


@pytest.fixture(scope="module")
def voice(client: httpx.Client) -> str:
    voices = client.get("/tts/v1/voices").raise_for_status().json()["voices"]
    return str(voices[0]["voiceId"])


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_voices_are_listed_and_filtered_by_language(client: httpx.Client) -> None:
    every = client.get("/tts/v1/voices").json()["voices"]
    assert set(every[0]) == {
        "voiceId",
        "displayName",
        "description",
        "languages",
        "tags",
        "isCustom",
    }
    english = client.get("/tts/v1/voices", params={"filter": "language=en-US"}).json()["voices"]
    assert english == [one for one in every if one["languages"] == ["en"]] != []
    wrong = client.get("/tts/v1/voices", params={"filter": "gender=male"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "validation_error")


def test_synthesis_returns_a_file_timestamps_and_usage(client: httpx.Client, voice: str) -> None:
    body = {"text": TEXT, "voiceId": voice, "modelId": "inworld-tts-2", "timestampType": "WORD"}
    answer = client.post("/tts/v1/voice", json=body | {"audioConfig": RAW}).json()
    audio = base64.b64decode(answer["audioContent"])
    assert len(audio) / 32_000 == pytest.approx(len(TEXT) * CHARACTER_S, rel=0.4)
    assert answer["timestampInfo"]["wordAlignment"]["words"] == TEXT.split()
    assert answer["usage"]["processedCharactersCount"] == len(TEXT)
    for encoding in ("LINEAR16", "WAV"):
        audio_config = RAW | {"audioEncoding": encoding}
        wav = client.post("/tts/v1/voice", json=body | {"audioConfig": audio_config}).json()
        header = wav_header(RAW["sampleRateHertz"], len(audio))
        assert base64.b64decode(wav["audioContent"]) == header + audio
    mp3 = client.post("/tts/v1/voice", json=body).json()  # the default, as Inworld's
    assert base64.b64decode(mp3["audioContent"])[:3] == b"ID3"


def test_a_stream_is_ndjson_and_its_last_word_ends_with_the_audio(
    client: httpx.Client, voice: str
) -> None:
    body = {"text": TEXT, "voiceId": voice, "audioConfig": RAW, "timestampType": "WORD"}
    results = [line["result"] for line in lines(client.post("/tts/v1/voice:stream", json=body))]
    audio = b"".join(base64.b64decode(result["audioContent"]) for result in results)
    rows = [one["timestampInfo"]["wordAlignment"] for one in results if "timestampInfo" in one]
    assert [word for row in rows for word in row["words"]] == TEXT.split()
    assert rows[-1]["wordEndTimeSeconds"][-1] == pytest.approx(len(audio) / 32_000, abs=0.02)
    assert "usage" in results[0] and len(results) > 2


def test_an_error_ends_a_stream_and_frees_the_idempotency_key(
    client: httpx.Client, voice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak = ToneEngine.synthesize

    def broken(engine: ToneEngine, request: Any) -> Any:
        yield next(speak(engine, request))
        raise RuntimeError("the engine broke")

    monkeypatch.setattr(ToneEngine, "synthesize", broken)
    body = {"text": TEXT, "voiceId": voice, "audioConfig": RAW}
    headers = {"Idempotency-Key": "it failed once"}
    *_, last = lines(client.post("/tts/v1/voice:stream", json=body, headers=headers))
    assert last["error"]["code"] == 13 and "broke" not in last["error"]["message"]
    monkeypatch.undo()
    deadline = time.monotonic() + PATIENCE_S
    while True:  # the key is released after the last line was sent
        again = client.post("/tts/v1/voice:stream", json=body, headers=headers)
        if again.status_code != 409 or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert again.status_code == 200 and "idempotency-replayed" not in again.headers
    assert all("result" in line for line in lines(again))
