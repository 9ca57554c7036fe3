"""ElevenLabs' own client, pointed at this service. Arguments: URL, that with TLS, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import base64
import io
import json
import sys
import time
import wave
import zipfile
from typing import Any

import httpx
from elevenlabs import DialogueInput, PronunciationDictionaryVersionLocator, VoiceSettings
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core import ApiError
from elevenlabs.pronunciation_dictionaries import (
    BodyAddAPronunciationDictionaryV1PronunciationDictionariesAddFromRulesPostRulesItem_Alias,
)
from elevenlabs.pronunciation_dictionaries.rules import (
    PronunciationDictionaryRule_Alias as Rule,
)
from elevenlabs.realtime import AudioFormat, CommitStrategy, RealtimeEvents

Alias = BodyAddAPronunciationDictionaryV1PronunciationDictionariesAddFromRulesPostRulesItem_Alias
SENTENCE = "A sentence for the room."
RACHEL, ADAM = "21m00Tcm4TlvDq8ikWAM", "pNInz6obpgDQGcFmaJgB"
DIALOGUE = [("Hello", RACHEL), ("Good day", ADAM), ("Bye", RACHEL)]
SAMPLES: dict[str, Any] = {"output_format": "pcm_16000", "model_id": "eleven_flash_v2_5"}


def speech(client: ElevenLabs) -> dict[str, Any]:
    settings = VoiceSettings(stability=0.5, similarity_boost=0.75, style=0, speed=1.0)
    given = {"text": SENTENCE, "voice_settings": settings, **SAMPLES}
    tts = client.text_to_speech
    whole = tts.convert_with_timestamps(RACHEL, **given)
    lines = list(tts.stream_with_timestamps(RACHEL, **given))
    mp3 = b"".join(tts.convert(RACHEL, text=SENTENCE))
    return {
        "converted": sum(map(len, tts.convert(RACHEL, **given))) / 32_000,
        "streamed": sum(map(len, tts.stream(RACHEL, **given))) / 32_000,
        "timed": len(base64.b64decode(whole.audio_base_64)) / 32_000,
        "letters": "".join(whole.alignment.characters),
        "lines": sum(len(base64.b64decode(one.audio_base_64)) for one in lines) / 32_000,
        "their letters": "".join(
            letter for one in lines if one.alignment for letter in one.alignment.characters
        ),
        "mp3": len(mp3) * 8 / 128_000,
    }


def realtime_speech(client: ElevenLabs) -> float:
    """The seconds of a text that a generator gives, over a socket with TLS."""
    words = (f"{word} " for word in SENTENCE.split())
    parts = client.text_to_speech.convert_realtime(
        RACHEL, text=words, model_id="eleven_flash_v2_5", output_format="pcm_16000",
        voice_settings=VoiceSettings(stability=0.5, similarity_boost=0.75),
    )  # fmt: skip
    return sum(map(len, parts)) / 32_000


def dictionary(client: ElevenLabs) -> dict[str, Any]:
    dictionaries = client.pronunciation_dictionaries
    rule = Alias(string_to_replace="IP", alias="internet protocol", type="alias")
    made = dictionaries.create_from_rules(rules=[rule], name="Names")
    locator = PronunciationDictionaryVersionLocator(
        pronunciation_dictionary_id=made.id, version_id=made.version_id
    )
    lengths = [
        sum(
            map(
                len,
                client.text_to_speech.convert(
                    RACHEL,
                    text="The IP.",
                    pronunciation_dictionary_locators=locators,
                    **SAMPLES,
                ),
            )
        )
        for locators in ([], [locator])
    ]
    pls = b"".join(dictionaries.download(made.id, made.version_id))
    filed = dictionaries.create_from_file(name="From a file", file=("a.pls", pls, "text/xml"))
    return {
        "longer": (lengths[1] - lengths[0]) / 32_000,
        "rules": [one.string_to_replace for one in dictionaries.get(filed.id).rules],
        "listed": {made.id, filed.id}
        <= {one.id for one in dictionaries.list().pronunciation_dictionaries},
    }


def heard(client: ElevenLabs, data: bytes) -> dict[str, Any]:
    whole = client.speech_to_text.convert(
        model_id="scribe_v1",
        file=("a.wav", data, "audio/wav"),
        diarize=True,
        keyterms=["Antiphon"],
        additional_formats=[{"format": "srt"}],
    )
    return {
        "text": whole.text,
        "speakers": sorted({one.speaker_id for one in whole.words}),
        "kinds": sorted({one.type for one in whole.words}),
        "srt": whole.additional_formats[0].content,
    }


def checked(answer: Any) -> Any:
    """The answer, after all of it was validated as the type that the client declares."""
    type(answer).model_validate(answer.model_dump(by_alias=True))
    return answer


def newer(client: ElevenLabs, data: bytes) -> dict[str, Any]:
    """Dialogues, alignment, voice changing, rules, settings and clones, at their defaults."""
    file = ("a.wav", data, "audio/wav")
    lines = [DialogueInput(text=f"{name}.", voice_id=voice) for name, voice in DIALOGUE]
    dialogue = client.text_to_dialogue
    timed = checked(dialogue.convert_with_timestamps(inputs=lines))
    parts = [checked(part) for part in dialogue.stream_with_timestamps(inputs=lines)]
    aligned = checked(client.forced_alignment.create(file=file, text="The quick brown horse."))
    rules = client.pronunciation_dictionaries.rules
    rule = Rule(string_to_replace="HTTP", alias="hypertext", type="alias")
    dictionary = client.pronunciation_dictionaries.list().pronunciation_dictionaries[0].id
    changed = [
        checked(rules.add(dictionary, rules=[rule])).version_rules_num,
        checked(rules.remove(dictionary, rule_strings=["HTTP"])).version_rules_num,
    ]
    settings = client.voices.settings
    same = checked(settings.get_default()) == checked(settings.get(RACHEL))
    checked(settings.update(RACHEL, request=VoiceSettings(speed=1.2, similarity_boost=0.5)))
    stored = checked(settings.get(RACHEL)).speed
    settings.update(RACHEL, request=VoiceSettings(speed=1.0))
    try:
        client.voices.ivc.create(name="Ann", files=[file])
    except ApiError as error:
        clone = [error.status_code, error.body["detail"][0]["msg"]]
    return {
        "dialogue": [
            len(b"".join(work(inputs=lines))) for work in (dialogue.convert, dialogue.stream)
        ],
        "segments": [part.voice_id for part in timed.voice_segments],
        "streamed segments": [one.voice_id for part in parts for one in part.voice_segments],
        "aligned": [[one.text, one.start <= one.end] for one in aligned.words],
        "changed": sum(map(len, client.speech_to_speech.convert(RACHEL, audio=file))),
        "rules": changed,
        "settings": [same, stored],
        "women": {
            one.labels["gender"] for one in checked(client.voices.search(gender="female")).voices
        }
        == {"female"},
        "clone": clone,
        "subscription": checked(client.user.subscription.get()).has_open_invoices,
    }


def history(client: ElevenLabs, url: str, key: str) -> dict[str, Any]:
    """What is kept of two texts, after the workspace asks for it."""

    def set_days(days: int) -> None:
        body, headers = {"speech_history_days": days}, {"Authorization": f"Bearer {key}"}
        httpx.put(f"{url}/auth/workspace", json=body, headers=headers, trust_env=False)

    set_days(0)
    none = checked(client.history.list()).history
    set_days(1)
    texts = (SENTENCE, "Another one.")
    sent = [b"".join(client.text_to_speech.convert(RACHEL, text=text)) for text in texts]
    list(client.text_to_speech.convert(RACHEL, text="Not kept.", enable_logging=False))
    for _ in range(100):  # it is kept after it was sent
        items = checked(client.history.list()).history
        if len(items) == len(texts):
            break
        time.sleep(0.1)
    ids = [item.history_item_id for item in items]
    audio = [b"".join(client.history.get_audio(item_id)) for item_id in ids]
    archive = b"".join(client.history.download(history_item_ids=ids))
    with zipfile.ZipFile(io.BytesIO(archive)) as unpacked:
        files = [unpacked.read(name) for name in unpacked.namelist()]
    single = b"".join(client.history.download(history_item_ids=ids[:1]))
    page = checked(client.history.list(page_size=1))
    rest = checked(client.history.list(start_after_history_item_id=page.last_history_item_id))
    return {
        "none": none,
        "texts": sorted(checked(client.history.get(item_id)).text for item_id in ids),
        "same": sorted(sent) == sorted(audio) == sorted(files) and single in sent,
        "pages": [page.has_more, [item.history_item_id for item in rest.history] == ids[1:]],
        "found": [item.text for item in client.history.list(search="another").history],
        "deleted": checked(client.history.delete(ids[0])).status,
        "left": len(client.history.list().history),
    }


async def with_token(client: ElevenLabs, url: str) -> list[str]:
    """What a single-use token gives twice."""
    token = checked(client.tokens.single_use.create("realtime_scribe")).token
    options = {"model_id": "scribe_v2_realtime", "audio_format": AudioFormat.PCM_16000,
               "sample_rate": 16_000, "token": token}  # fmt: skip
    browser = AsyncElevenLabs(api_key="unused", base_url=url)
    seen = []
    for _ in range(2):
        try:
            connection = await browser.speech_to_text.realtime.connect(options)
            await connection.close()
            seen.append("opened")
        except Exception as error:
            seen.append(str(error))
    return seen


def refusals(client: ElevenLabs, url: str) -> list[list[Any]]:
    seen = []
    for work in (
        lambda: list(client.text_to_speech.convert("unknown", text=SENTENCE)),
        lambda: list(client.text_to_speech.convert(RACHEL, text="")),
        lambda: ElevenLabs(api_key="sk_wrong", base_url=url).models.list(),
    ):
        try:
            work()
        except ApiError as error:
            detail = error.body["detail"]
            seen.append(
                [error.status_code, detail if isinstance(detail, list) else detail["status"]]
            )
    return seen


async def live(url: str, key: str, path: str) -> list[list[Any]]:
    """The events of a recording that the client commits."""
    client = AsyncElevenLabs(api_key=key, base_url=url)
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    events: list[list[Any]] = []
    done = asyncio.Event()
    connection = await client.speech_to_text.realtime.connect({
        "model_id": "scribe_v2_realtime", "audio_format": AudioFormat.PCM_16000,
        "sample_rate": rate, "commit_strategy": CommitStrategy.MANUAL, "include_timestamps": True,
    })  # fmt: skip

    def note(event: dict[str, Any]) -> None:
        events.append([event["message_type"], event.get("text"), len(event.get("words") or [])])
        if event["message_type"] == "committed_transcript_with_timestamps":
            done.set()

    for kind in RealtimeEvents:
        if kind not in (RealtimeEvents.OPEN, RealtimeEvents.CLOSE):
            connection.on(kind, note)
    for at in range(0, len(data), 3200):
        await connection.send({"audio_base_64": base64.b64encode(data[at : at + 3200]).decode()})
    await connection.commit()
    await asyncio.wait_for(done.wait(), 20)
    await connection.close()
    return events


def see(url: str, safe_url: str, key: str, path: str) -> dict[str, Any]:
    client = ElevenLabs(api_key=key, base_url=url)
    with open(path, "rb") as file:
        data = file.read()
    voices = client.voices.search(page_size=2)
    return {
        **speech(client),
        "token": asyncio.run(with_token(client, url)),
        "realtime": realtime_speech(ElevenLabs(api_key=key, base_url=safe_url)),
        "dictionary": dictionary(client),
        "newer": newer(client, data),
        "history": history(client, url, key),
        "heard": heard(client, data),
        "live": asyncio.run(live(url, key, path)),
        "voices": [len(client.voices.get_all().voices), voices.total_count, len(voices.voices)],
        "rachel": client.voices.get(RACHEL).labels["gender"],
        "models": [one.can_do_text_to_speech for one in client.models.list()],
        "characters": client.user.subscription.get().character_count,
        "user": client.user.get().subscription.character_limit,
        "refused": refusals(client, url),
    }


sys.stdout.write(json.dumps(see(*sys.argv[1:5])) + "\n")
