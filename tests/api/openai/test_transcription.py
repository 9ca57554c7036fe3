"""POST /openai/v1/audio/transcriptions: transcripts for OpenAI's clients, in process."""

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from api.app import create_app
from api.services import Services
from configs.schema.transcription import load_profiles
from models.errors import EngineLost
from models.stt.base import STT_SAMPLE_RATE, Segment, Transcript, TranscriptionRequest, Word
from models.vad.base import VADEngine
from pipelines.audio.levels import QUIET_WARNING
from pipelines.stt.file import TranscriptionPipeline
from tests.api.disconnects import send_and_disconnect
from tests.api.in_process import client_of
from tests.api.money import Books
from tests.api.native.voices.test_custom import stored_files
from tests.api.replaced import with_transcription
from tests.hostile.audio_files import wav
from tests.pipelines.voices import recordings

Headers = dict[str, str]
PATH = "/openai/v1/audio/transcriptions"
SCRIPT = "the quick brown fox"


@pytest.fixture(scope="module")
def three_wav(speech: np.ndarray) -> bytes:
    """Three utterances with pauses between them."""
    pause = np.zeros(2 * STT_SAMPLE_RATE, np.float32)
    return to_wav(np.concatenate([speech, pause, speech, pause, speech]))


def to_wav(pcm: np.ndarray) -> bytes:
    return wav((pcm * 32767).astype("<i2").tobytes(), rate=STT_SAMPLE_RATE)


async def send(
    client: httpx.AsyncClient, auth: Headers, data: bytes, **fields: Any
) -> httpx.Response:
    named = {name.replace("__", "[]"): value for name, value in fields.items()}
    return await client.post(
        PATH,
        headers=auth,
        files={"file": ("speech.wav", data)},
        data={"model": "whisper-1", **named},
    )


@pytest.mark.parametrize(
    "response_format", ["json", "text", "srt", "vtt", "verbose_json", "diarized_json"]
)
async def test_every_format_warns_of_a_very_quiet_recording(
    client: httpx.AsyncClient, auth: Headers, speech: np.ndarray, response_format: str
) -> None:
    audible = await send(client, auth, to_wav(speech), response_format=response_format)
    quiet = await send(client, auth, to_wav(speech * 1e-3), response_format=response_format)
    assert "warning" not in audible.headers
    assert quiet.headers["warning"] == f'299 - "{QUIET_WARNING}"'


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.split("\n\n")
    assert lines.pop() == ""
    return [json.loads(line.removeprefix("data: ")) for line in lines]


class Listener:
    """A transcriber that records its requests and fails at one of them."""

    def __init__(self, services: Services, fails_at: int | None = None) -> None:
        self._inner = services.speech.transcription.pipeline._transcriber
        self.asked: list[TranscriptionRequest] = []
        self.waits = asyncio.Event()
        self.waits.set()
        self._fails_at = fails_at

    async def describe(self) -> Any:
        return await self._inner.describe()

    async def transcribe(self, request: TranscriptionRequest) -> Any:
        self.asked.append(request)
        if len(self.asked) - 1 == self._fails_at:
            raise EngineLost("the replica died")
        if len(self.asked) > 1:
            await self.waits.wait()
        return await self._inner.transcribe(request)


class Translator(Listener):
    """Hears Japanese, and says it in English."""

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        self.asked.append(request)
        words = (Word("good", 0.1, 0.3, 0.9), Word("morning", 0.3, 0.8, 0.9))
        segment = Segment("good morning", 0.1, 0.8, -0.1, 0.0, words)
        return Transcript("ja", 0.9, (segment,), scores={"ja": 0.9})


def client_with(services: Services, listener: Listener) -> httpx.AsyncClient:
    vad: VADEngine = services.speech.transcription.pipeline._vad
    pipeline = TranscriptionPipeline(listener, services.speech.decoder, vad, load_profiles())
    return client_of(create_app(with_transcription(services, pipeline)))


async def test_json_is_the_default_and_is_charged_by_duration(
    client: httpx.AsyncClient, auth: Headers, books: Books, speech: np.ndarray, speech_wav: bytes
) -> None:
    await books.add_webhook("stt.completed")
    body = (await send(client, auth, speech_wav)).json()
    seconds = len(speech) / STT_SAMPLE_RATE
    assert body["text"] == SCRIPT and body["languages"] == [{"code": "en"}]
    assert body["usage"] == {"type": "duration", "seconds": pytest.approx(seconds, abs=0.01)}
    assert (await books.charged("stt"))[0] == pytest.approx(seconds * 1000, abs=2)
    assert [event["event"] for event in await books.events()] == ["stt.completed"]


async def test_verbose_json_has_the_requested_timestamps(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    asked: list[tuple[list[str], set[str]]] = [
        ([], {"segments"}),
        (["segment"], {"segments"}),
        (["word"], {"words"}),
        (["word", "segment"], {"words", "segments"}),
    ]
    for granularities, members in asked:
        fields = {
            "response_format": "verbose_json",
            "timestamp_granularities__": granularities,
        }
        body = (await send(client, auth, speech_wav, **fields)).json()
        assert set(body) == {"task", "language", "duration", "text", "usage"} | members
        assert (body["task"], body["language"]) == ("transcribe", "english")
        if "words" in members:
            assert [word["word"] for word in body["words"]] == SCRIPT.split()
            assert set(body["words"][0]) == {"word", "start", "end"}
        if "segments" in members:
            (segment,) = body["segments"]
            assert (segment["id"], segment["text"], segment["tokens"]) == (0, SCRIPT, [])
            assert segment["compression_ratio"] > 0 > segment["avg_logprob"]


async def test_words_of_verbose_json_have_no_punctuation(
    services: Services, auth: Headers, speech_wav: bytes
) -> None:
    class Punctuating(Listener):
        async def transcribe(self, request: TranscriptionRequest) -> Transcript:
            said = "My fellow Americans, — it’s 50% “free”."
            words = tuple(Word(one, 0.0, 0.1, 0.9) for one in said.split())
            return Transcript("en", 0.9, (Segment(said, 0, 1, -0.1, 0, words),))

    async with client_with(services, Punctuating(services)) as client:
        fields = {"response_format": "verbose_json", "timestamp_granularities__": ["word"]}
        body = (await send(client, auth, speech_wav, **fields)).json()
    assert body["text"] == "My fellow Americans, — it’s 50% “free”."
    words = [one["word"] for one in body["words"]]
    assert words == ["My", "fellow", "Americans", "it’s", "50%", "free"]


@pytest.mark.parametrize(
    ("response_format", "media_type", "start"),
    [
        ("text", "text/plain", f"{SCRIPT}\n"),
        ("srt", "text/plain", "1\n00:00:"),
        ("vtt", "text/vtt", "WEBVTT\n\n00:00:"),
    ],
)
async def test_text_srt_and_vtt_have_their_media_type(
    client: httpx.AsyncClient,
    auth: Headers,
    speech_wav: bytes,
    response_format: str,
    media_type: str,
    start: str,
) -> None:
    answer = await send(client, auth, speech_wav, response_format=response_format)
    assert answer.headers["content-type"].startswith(media_type)
    assert answer.text.startswith(start)


async def test_diarized_json_labels_segments_with_speakers(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    model = "gpt-4o-transcribe-diarize"
    fields = {"response_format": "diarized_json", "model": model, "chunking_strategy": "auto"}
    body = (await send(client, auth, speech_wav, **fields)).json()
    (segment,) = body["segments"]
    assert set(segment) == {"type", "id", "start", "end", "text", "speaker"}
    assert (segment["type"], segment["speaker"]) == ("transcript.text.segment", "A")
    events = events_of(await send(client, auth, speech_wav, stream="true", **fields))
    kinds = [event["type"] for event in events]
    assert kinds == ["transcript.text.delta", "transcript.text.segment", "transcript.text.done"]


def clip(seconds: float, *, thin: bool = False) -> str:
    pcm = recordings.recording(1, seconds)
    if thin:  # without low tones: another voice to the encoder of these tests
        pcm = np.diff(pcm, 2, append=pcm[-2:])
    data = recordings.wav((pcm / np.abs(pcm).max() * 0.5).astype(np.float32))
    return f"data:audio/wav;base64,{b64encode(data).decode()}"


async def diarized(
    client: httpx.AsyncClient, auth: Headers, data: bytes, names: list[str], clips: list[str]
) -> httpx.Response:
    fields = {"known_speaker_names__": names, "known_speaker_references__": clips}
    return await send(client, auth, data, response_format="diarized_json", **fields)


async def test_speakers_of_reference_clips_are_named_and_not_stored(
    client: httpx.AsyncClient, auth: Headers, services: Services, tmp_path: Path
) -> None:
    data = recordings.wav(recordings.recording(1, 8))
    thin = clip(4, thin=True)
    for names, clips, told in (
        (["Ann"], [clip(4)], "Ann"),
        (["Ben"], [thin], "A"),
        (["Ben", "Ann", "C", "D"], [thin, clip(10), thin, thin], "Ann"),
    ):
        body = (await diarized(client, auth, data, names, clips)).json()
        assert {one["speaker"] for one in body["segments"]} == {told}, names
    assert stored_files(tmp_path) == []
    assert (await client.get("/speakers", headers=auth)).json()["data"] == []


SILENCE = b64encode(wav(bytes(2 * 3 * STT_SAMPLE_RATE), rate=STT_SAMPLE_RATE)).decode()


@pytest.mark.parametrize(
    ("names", "clips", "param"),
    [
        (["Ann"], [], "names"),
        ([], ["data:audio/wav;base64,"], "names"),
        (["Ann", "ann"], ["data:audio/wav;base64,"] * 2, "names"),
        (["Ann\n"], ["data:audio/wav;base64,"], "names"),
        (["Ann"], ["https://example.com/a.wav"], "references"),
        (["Ann"], ["data:audio/wav,RIFF"], "references"),
        (["Ann"], ["data:audio/wav;base64,????"], "references"),
        (["Ann"], ["data:audio/wav;base64,"], "references"),
        (["Ann"], ["data:audio/wav;base64,AAAA"], "references"),
        (["Ann"], ["data:audio/mpegurl;base64," + b64encode(b"#EXTM3U").decode()], "references"),
        (["Ann"], [f"data:audio/wav;base64,{SILENCE}"], "references"),
        (["Ann"], [1.5], "references"),
        (["Ann"], [11.0], "references"),
    ],
)
async def test_wrong_reference_clips_are_refused_by_their_field(
    client: httpx.AsyncClient,
    auth: Headers,
    speech_wav: bytes,
    books: Books,
    names: list[str],
    clips: list[Any],
    param: str,
) -> None:
    sent = [clip(one) if isinstance(one, float) else one for one in clips]
    answer = await diarized(client, auth, speech_wav, names, sent)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, f"known_speaker_{param}"), answer.text
    assert error["type"] == "invalid_request_error" and await books.kinds() == []


async def test_a_form_has_one_file_and_four_reference_clips_at_most(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    answer = await diarized(client, auth, speech_wav, list("ABCDE"), ["data:,"] * 5)
    assert answer.status_code == 400
    files = [("file", ("a.wav", speech_wav)), ("file", ("b.wav", speech_wav))]
    answer = await client.post(PATH, headers=auth, files=files, data={"model": "whisper-1"})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid_file_count"


async def test_a_stream_sends_deltas_by_utterance_then_the_whole_text(
    client: httpx.AsyncClient, auth: Headers, books: Books, three_wav: bytes
) -> None:
    events = events_of(await send(client, auth, three_wav, stream="true"))
    assert [event["type"] for event in events] == [
        *["transcript.text.delta"] * 3,
        "transcript.text.done",
    ]
    assert "".join(event["delta"] for event in events[:-1]) == events[-1]["text"]
    assert events[-1]["text"] == " ".join([SCRIPT] * 3)
    whole = (await send(client, auth, three_wav)).json()
    assert whole.pop("usage")["type"] == "duration"
    assert {**whole, "type": "transcript.text.done"} == events[-1]
    assert await books.kinds() == ["hold", "capture", "hold", "capture"]


async def test_silence_gives_an_empty_text_with_and_without_stream(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    silence = to_wav(np.zeros(STT_SAMPLE_RATE, np.float32))
    assert (await send(client, auth, silence)).json()["text"] == ""
    (done,) = events_of(await send(client, auth, silence, stream="true"))
    assert (done["type"], done["text"], done["languages"]) == ("transcript.text.done", "", [])


async def test_prompt_keywords_and_languages_reach_the_engine(
    services: Services, auth: Headers, speech_wav: bytes
) -> None:
    listener = Listener(services)
    async with client_with(services, listener) as client:
        answer = await send(
            client,
            auth,
            speech_wav,
            prompt="Antiphon, a service.",
            keywords__=["Hibari"],
            keyterms__=["Kokoro"],
            language="auto",
            languages__=["de", "", "en-GB"],
        )
        assert answer.status_code == 200, answer.text
        await send(client, auth, speech_wav, model="phone_call", prompt="x" * 5000)
    first, second = listener.asked
    assert first.options.prompt == "Antiphon, a service."
    assert first.options.keyterms == ("Hibari", "Kokoro")
    assert (first.language, first.languages) == (None, ("de", "en"))
    assert len(second.options.prompt) == 700


async def test_an_error_during_a_stream_is_an_event_and_is_not_charged(
    services: Services, auth: Headers, books: Books, three_wav: bytes
) -> None:
    await books.add_webhook("stt.failed")
    async with client_with(services, Listener(services, fails_at=2)) as client:
        events = events_of(await send(client, auth, three_wav, stream="true"))
    assert events[0]["type"] == "transcript.text.delta"
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("error", "unavailable")
    assert await books.kinds() == ["hold", "release"]
    assert [event["event"] for event in await books.events()] == ["stt.failed"]


async def test_an_error_before_the_first_event_is_an_http_error(
    services: Services, auth: Headers, three_wav: bytes
) -> None:
    async with client_with(services, Listener(services, fails_at=0)) as client:
        answer = await send(client, auth, three_wav, stream="true")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


async def test_a_disconnect_from_a_stream_charges_only_transcribed_audio(
    services: Services, auth: Headers, books: Books, three_wav: bytes
) -> None:
    listener = Listener(services)
    listener.waits.clear()  # after the first utterance
    client = client_with(services, listener)
    app: Any = client._transport.app  # type: ignore[attr-defined]
    request = client.build_request(
        "POST", PATH, headers=auth, files={"file": three_wav}, data={"stream": "true"}
    )
    began = asyncio.Event()

    async def leave() -> None:
        while len(listener.asked) < 2:
            await asyncio.sleep(0.01)
        began.set()

    leaving = asyncio.create_task(leave())
    assert await send_and_disconnect(app, request, began) == 200
    await leaving
    milliseconds, _ = await books.charged("stt")
    total = len(three_wav) / 2 / STT_SAMPLE_RATE * 1000
    assert 0 < milliseconds < total / 2


async def test_a_missing_file_or_a_model_of_speech_is_refused(
    client: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    answer = await client.post(PATH, headers=auth, files={"audio": speech_wav})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
    answer = await send(client, auth, speech_wav, model="tts-1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


async def translate(
    client: httpx.AsyncClient, auth: Headers, data: bytes, **fields: str
) -> httpx.Response:
    files = {"file": ("speech.wav", data)}
    return await client.post(
        "/openai/v1/audio/translations", headers=auth, files=files, data=fields
    )


async def test_a_translation_is_english_in_the_format_asked_for(
    services: Services, auth: Headers, books: Books, three_wav: bytes
) -> None:
    listener = Translator(services)
    async with client_with(services, listener) as client:
        plain = await translate(client, auth, three_wav, model="whisper-1", prompt="A call.")
        assert plain.json()["text"] == " ".join(["good morning"] * 3)
        verbose = await translate(client, auth, three_wav, response_format="verbose_json")
        text = await translate(client, auth, three_wav, response_format="text")
        srt = await translate(client, auth, three_wav, response_format="srt")
    found = verbose.json()
    assert (found["task"], found["language"], len(found["segments"])) == ("translate", "english", 3)
    assert text.text == plain.json()["text"] + "\n"
    assert srt.text.startswith("1\n00:00:0") and "good morning" in srt.text
    assert all(asked.options.translate and not asked.speech for asked in listener.asked)
    assert listener.asked[1].expected == "ja", "the language of the first segment"
    assert listener.asked[0].options.prompt == "A call."
    seconds = 4 * verbose.json()["duration"]
    assert (await books.charged("stt"))[0] == pytest.approx(seconds * 1000, abs=8)


async def test_a_model_that_cannot_translate_is_refused_at_no_charge(
    client: httpx.AsyncClient, auth: Headers, books: Books, speech_wav: bytes
) -> None:
    answer = await translate(client, auth, speech_wav)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "validation_error")
    assert "does not translate" in error["message"]
    for wrong in ({"response_format": "diarized_json"}, {"model": "svc/none"}):
        assert (await translate(client, auth, speech_wav, **wrong)).status_code in (400, 404)
    assert await books.charged("stt") == (0, 0)
