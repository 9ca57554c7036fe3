"""LiveKit's plugin for ElevenLabs, pointed at this service. Arguments: URL, key, a recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import sys
from typing import Any

import aiohttp
from livekit.plugins import elevenlabs

from tests.clients.livekit_harness import ONCE, SENTENCES, audio, failure, frames, listen, report


async def speak(tts: Any) -> dict[str, Any]:
    """The length of a text that is pushed in pieces, and its words as they are timed."""
    words: list[Any] = []
    samples, rate = 0, 0
    async with tts.stream(conn_options=ONCE) as stream:
        for start in range(0, len(SENTENCES), 5):
            stream.push_text(SENTENCES[start : start + 5])
        stream.end_input()
        async for event in stream:
            samples += event.frame.samples_per_channel
            rate = event.frame.sample_rate
            words += event.frame.userdata.get("lk.timed_transcripts", ())
    times = [one.start_time for one in words]
    return {"seconds": samples / rate, "rate": rate, "words": "".join(words), "times": times}


async def see(url: str, key: str, path: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with aiohttp.ClientSession() as session:
        given: dict[str, Any] = {"api_key": key, "http_session": session, "base_url": f"{url}/v1"}
        tts = elevenlabs.TTS(**given)
        seen["spoken"] = await speak(tts)
        seen["again"] = await speak(tts)
        async with tts.synthesize(SENTENCES, conn_options=ONCE) as whole:
            seen["whole"] = await audio(whole)
        seen["voices"] = len(await tts.list_voices())
        tts.update_options(voice_id="unknown")
        seen["unknown voice"] = await failure(speak(tts))
        await tts.aclose()
        chosen = elevenlabs.TTS(
            encoding="pcm_24000",
            voice_settings=elevenlabs.VoiceSettings(stability=0.4, similarity_boost=0.7, speed=1.0),
            chunk_length_schedule=[50, 80],
            **given,
        )
        seen["chosen"] = await speak(chosen)
        await chosen.aclose()
        dialogue = elevenlabs.TTS(model="eleven_v3", **given)
        seen["dialogue"] = await speak(dialogue)
        seen["dialogue again"] = await speak(dialogue)
        async with dialogue.synthesize(SENTENCES, conn_options=ONCE) as whole:
            seen["whole dialogue"] = await audio(whole)
        dialogue.update_options(voice_id="unknown")
        seen["unknown voice of a dialogue"] = await failure(speak(dialogue))
        await dialogue.aclose()
        stt = elevenlabs.STT(**given)
        recognised = await stt.recognize(frames(path), conn_options=ONCE)
        best = recognised.alternatives[0]
        seen["recognised"] = [best.text, best.language, len(best.words or ())]
        live = elevenlabs.STT(
            model="scribe_v2_realtime", server_vad={"vad_silence_threshold_secs": 0.5}, **given
        )
        seen["live"] = await listen(live, path, "end_of_speech")
        wrong = elevenlabs.TTS(**{**given, "api_key": "sk_wrong"})
        seen["wrong key"] = await failure(speak(wrong))
        await wrong.aclose()
    return seen


report(see(*sys.argv[1:4]))
