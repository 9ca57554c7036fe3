"""Redaction over HTTP: what is shown, what reaches the model, and what is kept."""

import json
from typing import Any
from uuid import UUID

import httpx
import numpy as np
import pytest
from sqlmodel import select

from api.app import create_app
from api.services import Services
from configs.schema.transcription import load_profiles
from db.chats import Chat, ChatEntry
from models.base import ModelInfo
from models.llm.base import GenerationRequest
from models.stt.base import STT_SAMPLE_RATE, Segment, Transcript, TranscriptionRequest, Word
from pipelines.chat.history import chat_about
from pipelines.storage.encryption import Encryption
from pipelines.stt.file import TranscriptionPipeline
from telemetry.metrics import REGISTRY
from tests.api.in_process import client_of
from tests.api.money import Books
from tests.api.replaced import with_transcription
from tests.hostile.audio_files import wav

Headers = dict[str, str]
CHAT = "/v1/chat/completions"
SAID = "Hi, my name is Xanthe Quill, call four one five five five five zero one two three."
MASKED = "Hi, my name is [NAME], call [PHONE]."
SECRETS = ("Xanthe", "Quill", "five", "0123", "xanthe@")


class Speaker:
    """A recogniser that hears one text."""

    def __init__(self, text: str = SAID) -> None:
        self.text = text

    async def describe(self) -> ModelInfo:
        return ModelInfo("svc/fake", "stt", "fake", "us", 0, languages=("en",))

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        said = self.text.split()
        words = tuple(Word(word, at / 4, (at + 1) / 4, 0.9) for at, word in enumerate(said))
        segment = Segment(self.text, 0.0, len(said) / 4, -0.1, 0.0, words)
        return Transcript("en", 0.9, (segment,))


@pytest.fixture
def heard(services: Services) -> httpx.AsyncClient:
    """A client of a service that hears SAID."""
    vad = services.speech.transcription.pipeline._vad
    pipeline = TranscriptionPipeline(Speaker(), services.speech.decoder, vad, load_profiles())
    app = create_app(with_transcription(services, pipeline))
    return client_of(app)


async def send(
    client: httpx.AsyncClient, auth: Headers, data: bytes, path: str = "/stt", **fields: Any
) -> httpx.Response:
    name = "audio" if path == "/stt" else "file"
    headers = {**auth, "Idempotency-Key": path + json.dumps(fields)}
    answer = await client.post(path, headers=headers, files={name: ("a", data)}, data=fields)
    assert answer.status_code == 200, answer.text
    again = await client.post(path, headers=headers, files={name: ("a", data)}, data=fields)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.content == answer.content
    return answer


@pytest.mark.parametrize(
    "redact", [["name", "phone"], pytest.param(["all"], marks=pytest.mark.slow)]
)
async def test_every_format_of_a_transcript_is_masked(
    heard: httpx.AsyncClient, auth: Headers, speech_wav: bytes, books: Books, redact: list[str]
) -> None:
    await books.add_webhook("stt.completed")
    answers = [
        await send(heard, auth, speech_wav, redact=redact, response_format=form)
        for form in ("json", "text", "srt", "vtt")
    ]
    openai = "/openai/v1/audio/transcriptions"
    for form in ("json", "text", "srt", "vtt", "verbose_json", "diarized_json"):
        fields: dict[str, Any] = {
            "response_format": form,
            "timestamp_granularities[]": ["word", "segment"],
        }
        answers.append(await send(heard, auth, speech_wav, openai, redact=redact, **fields))
    for answer in answers:
        assert "[NAME]" in answer.text and "[PHONE]" in answer.text
        assert not [one for one in SECRETS if one in answer.text]
    assert answers[0].json()["text"] == MASKED
    events = json.dumps(await books.events())
    assert events.count(MASKED) == len(answers)
    assert not [one for one in SECRETS if one in events]


async def test_words_and_speakers_are_masked_with_the_times_of_all_they_hide(
    heard: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    fields = {"redact": "all", "timestamps": "true", "speaker_labels": "true"}
    body = (await send(heard, auth, speech_wav, **fields)).json()
    words = {word["word"]: (word["start"], word["end"]) for word in body["words"]}
    assert list(words) == ["Hi,", "my", "name", "is", "[NAME],", "call", "[PHONE]."]
    at = [words["[NAME],"], words["[PHONE]."]]
    assert [end - start for start, end in at] == [pytest.approx(0.5), pytest.approx(2.5)]
    assert " ".join(one["text"] for one in body["utterances"]) == MASKED
    plain = {"redact": "all", "punctuate": "false", "numerals": "true"}
    body = (await send(heard, auth, speech_wav, **plain)).json()
    assert body["text"] == "hi my name is [NAME], call [PHONE]."


async def test_a_stream_shows_what_its_end_shows(
    heard: httpx.AsyncClient, auth: Headers, speech: np.ndarray
) -> None:
    pause = np.zeros(3 * STT_SAMPLE_RATE, np.float32)
    pcm = (np.concatenate([speech, pause, speech]) * 32767).astype("<i2").tobytes()
    data, path = wav(pcm, rate=STT_SAMPLE_RATE), "/openai/v1/audio/transcriptions"
    answer = await send(heard, auth, data, path, redact="all", stream="true")
    events = [json.loads(one[6:]) for one in answer.text.strip().split("\n\n")]
    assert "".join(one.get("delta", "") for one in events) == events[-1]["text"]
    assert set(events[-1]["text"].split(" Hi")) <= {MASKED, MASKED.removeprefix("Hi")}
    assert not [one for one in SECRETS if one in answer.text]


async def test_marks_name_the_places_and_leave_the_text(
    heard: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    kinds = ["name", "phone"]
    fields: dict[str, Any] = {"redact": kinds, "redact_mode": "mark", "timestamps": "true"}
    body = (await send(heard, auth, speech_wav, **fields)).json()
    assert body["text"] == SAID
    name, phone = body["entities"]
    assert (name["kind"], SAID[name["start"] : name["end"]]) == ("name", "Xanthe Quill")
    assert (name["start_time"], name["end_time"]) == (1.0, 1.5)
    assert SAID[phone["start"] : phone["end"]].startswith("four one")
    assert (phone["start_time"], phone["end_time"]) == (1.75, 4.25)
    assert "entities" not in (await send(heard, auth, speech_wav)).json()


@pytest.mark.parametrize("fields", [{"redact": ["names"]}, {"redact": ["all"], "redact_mode": "x"}])
async def test_an_unknown_kind_or_mode_of_a_chat_is_named(
    client: httpx.AsyncClient, auth: Headers, fields: dict[str, Any]
) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], **fields}
    answer = await client.post(CHAT, headers=auth, json=body)
    assert answer.status_code == 400 and "redact" in answer.json()["message"]


async def chats_of(services: Services) -> str:
    """All titles and messages that are stored, decrypted."""
    encryption = Encryption(services.infrastructure.settings.secrets.data_keys)

    def read(session: Any) -> list[str]:
        chats = {chat.id: chat for chat in session.exec(select(Chat))}
        found = [
            encryption.decrypt_text(chat.title, chat_about(chat.workspace_id, chat.id, "title"))
            for chat in chats.values()
        ]
        for entry in session.exec(select(ChatEntry)):
            chat = chats[entry.chat_id]
            about = chat_about(chat.workspace_id, chat.id)
            found.append(encryption.decrypt_text(entry.content, about))
        return found

    return "\n".join(await services.infrastructure.database.read(read))


@pytest.mark.parametrize("path", [CHAT, "/openai/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_is_masked_for_the_model_the_client_and_the_store(
    client: httpx.AsyncClient,
    services: Services,
    auth: Headers,
    prompts: list[GenerationRequest],
    path: str,
    stream: bool,
) -> None:
    call = {"name": "save", "arguments": '{"mail": "xanthe@example.com"}'}
    messages = [
        {"role": "system", "content": "You talk to Xanthe Quill."},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": call}]},
        {"role": "tool", "tool_call_id": "1", "content": "saved xanthe@example.com"},
        {"role": "user", "content": SAID},
    ]
    body = {"messages": messages, "stream": stream, "redact": ["all"], "save_chat": True}
    headers = {**auth, "Idempotency-Key": "1"}
    answer = await client.post(path, headers=headers, json=body)
    assert answer.status_code == 200, answer.text
    assert (await client.post(path, headers=headers, json=body)).content == answer.content
    stored = await chats_of(services)
    for shown in (answer.text, str(prompts), stored):
        assert not [one for one in SECRETS if one in shown]
    assert stored.count(MASKED) == 3, "the title, the message and its answer"
    assert '{\\"mail\\": \\"[EMAIL]\\"}' in stored
    if stream:
        lines = [json.loads(one[6:]) for one in answer.text.split("\n\n") if "{" in one]
        texts = [one["choices"][0]["delta"].get("content") or "" for one in lines]
        assert "".join(texts) == MASKED and sum(map(bool, texts)) > 2
    await client.post(CHAT, headers=auth, json={**body, "redact": []})
    assert "xanthe@" in await chats_of(services), "what is not masked is found"


async def test_earlier_turns_are_masked_for_the_model(
    client: httpx.AsyncClient, auth: Headers, prompts: list[GenerationRequest]
) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": SAID}], "stream": False}
    chat_id = (await client.post(CHAT, headers=auth, json=body)).json()["chat_id"]
    assert UUID(chat_id)
    body = {"messages": [{"role": "user", "content": "and now?"}], "stream": False}
    prompts.clear()
    await client.post(CHAT, headers=auth, json={**body, "chat_id": chat_id, "redact": ["all"]})
    (asked,) = prompts
    assert [one.content for one in asked.messages] == [MASKED, MASKED, "and now?"]


@pytest.mark.parametrize("stream", [False, True])
async def test_marks_of_a_chat_are_those_of_its_answer(
    client: httpx.AsyncClient, auth: Headers, stream: bool
) -> None:
    body = {"messages": [{"role": "user", "content": SAID}], "stream": stream}
    answer = await client.post(
        CHAT, headers=auth, json={**body, "redact": ["name"], "redact_mode": "mark"}
    )
    last = json.loads(answer.text.split("\n\n")[-3][6:]) if stream else answer.json()
    start = SAID.index("Xanthe")
    assert last["entities"] == [{"kind": "name", "start": start, "end": start + 12}]
    assert "Xanthe" in answer.text


async def test_a_text_to_correct_is_not_redacted(client: httpx.AsyncClient, auth: Headers) -> None:
    body = {"text": SAID, "stream": False, "redact": ["all"]}
    answer = await client.post(CHAT, headers=auth, json=body)
    assert answer.status_code == 400 and "redact" in answer.json()["message"]


async def test_too_many_messages_to_mask_are_refused(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    said = [{"role": "user", "content": "four " * 50_000}]
    answer = await client.post(CHAT, headers=auth, json={"messages": said, "redact": ["all"]})
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error")


async def test_entities_are_counted_by_kind(
    heard: httpx.AsyncClient, auth: Headers, speech_wav: bytes
) -> None:
    def counted() -> float:
        labels = {"kind": "phone"}
        return REGISTRY.get_sample_value("antiphon_redacted_entities_total", labels) or 0

    before = counted()
    await send(heard, auth, speech_wav, redact=["phone"])
    assert counted() == before + 1
