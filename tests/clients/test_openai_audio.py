"""Speech, transcripts and models with OpenAI's official clients, for Python and for Node."""

import re
from collections.abc import Iterator
from pathlib import Path

import jiwer
import openai
import pytest
from openai import OpenAI

from tests.api.local_server import Server
from tests.clients.node_clients import NodeClients
from tests.clients.openai_texts import HEARD

# The client calls `audio.translations` deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")

TEXT = "A sentence for the room. And one more."


@pytest.fixture(scope="module")
def client(tone_server: Server) -> Iterator[OpenAI]:
    base_url = f"{tone_server.url}/openai/v1"
    with OpenAI(base_url=base_url, api_key=tone_server.key, max_retries=0) as made:
        yield made


def test_speech_is_streamed_in_pieces(client: OpenAI) -> None:
    create = client.audio.speech.with_streaming_response.create
    with create(model="tts-1-hd", voice="nova", input=TEXT * 10, response_format="pcm") as speech:
        pieces = list(speech.iter_bytes())
    assert len(pieces) > 3
    with create(model="tts-1", voice="nova", input=TEXT * 100) as speech:
        assert next(speech.iter_bytes()).startswith(b"ID3")  # and closes before the end


def test_transcripts_parse_into_the_classes_of_the_client(client: OpenAI, recording: Path) -> None:
    create = client.audio.transcriptions.create
    plain = create(file=recording, model="whisper-1")
    assert plain.text == HEARD
    assert plain.usage is not None and plain.usage.type == "duration"
    verbose = create(
        file=recording,
        model="whisper-1",
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert [word.word for word in verbose.words or ()] == HEARD.split()
    assert verbose.segments and verbose.segments[0].text == HEARD
    assert verbose.language == "english"
    speakers = create(
        file=recording,
        model="gpt-4o-transcribe-diarize",
        response_format="diarized_json",
        chunking_strategy="auto",
    )
    assert [segment.speaker for segment in speakers.segments] == ["A"]
    for response_format in ("srt", "vtt"):
        subtitles = create(file=recording, model="whisper-1", response_format=response_format)
        assert "-->" in str(subtitles)
    assert create(file=recording, model="whisper-1", response_format="text") == f"{HEARD}\n"


def test_a_transcript_is_streamed(client: OpenAI, recording: Path) -> None:
    stream = client.audio.transcriptions.create(
        file=recording, model="gpt-4o-transcribe", stream=True
    )
    events = list(stream)
    deltas = [one.delta for one in events if one.type == "transcript.text.delta"]
    assert "".join(deltas) == HEARD
    assert events[-1].type == "transcript.text.done" and events[-1].text == HEARD


def test_models_are_listed_and_retrieved_by_openai_names(client: OpenAI) -> None:
    assert {one.id for one in client.models.list()} == {
        "svc/tts-tone",
        "svc/stt-scripted",
        "svc/echo",
        "svc/letters",
    }
    for alias, kind in (("gpt-4o-mini-tts", "tts"), ("whisper-1", "stt")):
        model = client.models.retrieve(alias)
        assert (model.id, model.to_dict()["kind"]) == (alias, kind)
    assert client.models.retrieve("svc/echo").owned_by == "antiphon"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("gpt-9")
    assert missing.value.code == "model_not_found"


def test_errors_raise_the_exception_classes_of_the_client(client: OpenAI, recording: Path) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.audio.speech.create(model="tts-1", voice="unknown", input=TEXT)
    assert (missing.value.code, missing.value.param) == ("voice_not_found", "voice")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT, speed=5)
    assert (wrong.value.code, wrong.value.param) == ("validation_error", "speed")
    with pytest.raises(openai.BadRequestError, match="does not translate"):
        client.audio.translations.create(model="whisper-1", file=recording)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk_wrong").models.list()


@pytest.mark.weights
def test_synthesised_speech_is_transcribed_with_real_models(speech_server: Server) -> None:
    base_url = f"{speech_server.url}/openai/v1"
    said = "The harbour lay still, and no one expected the ship. It carried letters and tea."
    with OpenAI(base_url=base_url, api_key=speech_server.key, max_retries=0) as client:
        speech = client.audio.speech.create(
            model="tts-1", voice="alloy", input=said, response_format="opus"
        )
        heard = client.audio.transcriptions.create(
            file=("speech.ogg", speech.content),
            model="whisper-1",
            response_format="verbose_json",
            timestamp_granularities=["word"],
            prompt="A story of the sea.",
        )
        translate = client.audio.translations.create
        english = translate(file=("speech.ogg", speech.content), model="whisper-1")
        verbose = translate(
            file=("speech.ogg", speech.content), model="whisper-1", response_format="verbose_json"
        )
    assert jiwer.wer(plain(said), plain(english.text)) <= 0.2
    assert (verbose.text, verbose.language) == (english.text, "english")
    assert jiwer.wer(plain(said), plain(heard.text)) <= 0.15
    assert heard.language == "english"
    ends = [word.end for word in heard.words or ()]
    assert len(ends) > 10 and ends == sorted(ends) and ends[-1] <= heard.duration


def plain(text: str) -> str:
    return re.sub(r"[^a-z ]", "", text.lower())


def test_the_node_client_reads_speech_transcripts_and_models(
    node_clients: NodeClients, tone_server: Server, recording: Path
) -> None:
    base_url = f"{tone_server.url}/openai/v1"
    seen = node_clients.run("openai_audio.mjs", base_url, tone_server.key, TEXT, str(recording))
    assert (seen["type"], seen["head"]) == ("audio/mpeg", "ID3")
    assert set(seen["events"][:-1]) == {"speech.audio.delta"}
    assert seen["events"][-1] == "speech.audio.done"
    assert seen["text"] == HEARD and "-->" in seen["srt"]
    assert [word["word"] for word in seen["verbose"]["words"]] == HEARD.split()
    assert seen["streamed"] == ["transcript.text.delta", "transcript.text.done"]
    assert "svc/echo" in seen["models"] and seen["alias"] == "tts-1"
    assert seen["refused"] == {
        "name": "NotFoundError",
        "code": "voice_not_found",
        "param": "voice",
    }
