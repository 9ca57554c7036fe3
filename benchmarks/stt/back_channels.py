"""Whether back-channels and coughs leave an agent speaking, and interruptions stop it.

`python -m benchmarks.stt.back_channels` says both with this service's voices to a live session with
the recogniser of the service, without the agent's echo, and applies the service's own rule to its
interim, eager and final texts. A cough is a burst of noise with the decay of one: not a recording.
Voices and words of the held-out half are others than those of the tuned half.
"""

import argparse
import asyncio

import numpy as np

from api.openai.realtime.input_listener import INTERIM_MS
from benchmarks.hardware import hardware
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from configs.settings import weights_dir
from models.audio import Pcm, resample
from models.registry import STT, TTS, TURN_DETECTION, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from pipelines.agents.interruption import interrupts
from pipelines.stt.session import (
    EagerTranscript,
    LiveEvent,
    LiveSession,
    LiveTranscript,
    LiveTranscriptionPipeline,
    SessionOptions,
)
from pipelines.stt.turns import SemanticTurns
from tests.local_ports import LocalSTTModel

VOICES = {"tuned": ("af_heart", "am_michael"), "held_out": ("bf_emma", "am_puck")}
BACK_CHANNELS = {
    "tuned": ("Mhm.", "Yeah.", "Uh-huh.", "Okay.", "Right.", "Oh, I see."),
    "held_out": ("Mm-hmm.", "Yes, yes.", "Sure.", "Got it.", "Ah, okay.", "Really?"),
}
INTERRUPTIONS = {
    "tuned": ("Stop.", "Wait a moment.", "No, that is wrong.", "What does that cost?"),
    "held_out": ("Hold on.", "Not that one.", "Can you repeat that?", "I have a question."),
}
COUGHS = 6
NOISE = 0.001  # RMS
STEP = STT_SAMPLE_RATE // 10


def cough(seed: int) -> Pcm:
    """Two bursts of noise, each with a sudden onset and a decay of 60 to 120 ms."""
    drawn = np.random.default_rng(seed)
    time_s = np.arange(round(0.3 * STT_SAMPLE_RATE)) / STT_SAMPLE_RATE
    bursts = [
        drawn.normal(0, 0.2, len(time_s)) * np.exp(-time_s / drawn.uniform(0.06, 0.12))
        for _ in range(2)
    ]
    return np.concatenate(bursts).astype(np.float32)


async def texts_of(
    pipeline: LiveTranscriptionPipeline, pcm: Pcm, languages: tuple[str, ...]
) -> list[str]:
    """All texts of a session that hears it, in the order in which they come."""
    texts = []

    async def emit(event: LiveEvent) -> None:
        if isinstance(event, EagerTranscript | LiveTranscript):
            texts.append(event.text)

    options = SessionOptions(languages, interim_ms=INTERIM_MS, turns=SemanticTurns())
    live = LiveSession(pipeline, options, emit)
    running = asyncio.create_task(live.run())
    quiet = np.zeros(STT_SAMPLE_RATE // 2, np.float32)
    whole = np.concatenate([quiet, pcm, quiet, quiet])
    whole += np.random.default_rng(0).normal(0, NOISE, len(whole)).astype(np.float32)
    for at in range(0, len(whole), STEP):
        await live.accept_pcm(whole[at : at + STEP])
        await asyncio.sleep(STEP / STT_SAMPLE_RATE)
    await live.finish()
    running.cancel()
    await live.close()
    return texts


async def measure(languages: tuple[str, ...]) -> None:
    weights = WeightStore(weights_dir())
    voices, _ = load_model(TTS, "tts/kokoro", weights)
    recogniser, info = load_model(STT, "stt/whisper_base", weights)
    detector = load(TURN_DETECTION, "turn_detection/smart_turn", weights)
    pipeline = LiveTranscriptionPipeline(
        LocalSTTModel(recogniser, info),
        load(VAD, "vad/silero", weights),
        load_yaml(ListeningConfig, "listening"),
        lambda: detector,
    )

    def said(text: str, voice: str) -> Pcm:
        request = SynthesisRequest(text=text, voice=voice, language="en")
        pcm = np.concatenate([chunk.pcm for chunk in voices.synthesize(request)])
        return resample(pcm, voices.capabilities.sample_rate, STT_SAMPLE_RATE)

    for half, names in VOICES.items():
        kinds: dict[str, list[tuple[str, Pcm]]] = {
            "back-channels": [(t, said(t, v)) for t in BACK_CHANNELS[half] for v in names],
            "coughs": [("cough", cough(n + COUGHS * (half == "tuned"))) for n in range(COUGHS)],
            "interruptions": [(t, said(t, v)) for t in INTERRUPTIONS[half] for v in names],
        }
        for kind, sounds in kinds.items():
            stopped = 0
            for text, pcm in sounds:
                heard = await texts_of(pipeline, pcm, languages)
                stops = any(interrupts(one, "") for one in heard)
                stopped += stops
                if stops != (kind == "interruptions"):
                    print(f"  wrong: {text!r} was heard as {heard}")
            print(f"{half} {kind}: {stopped} of {len(sounds)} stop the agent", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", nargs="*", default=[], help="detected without it")
    asyncio.run(measure(tuple(parser.parse_args().language)))
    print(hardware())


if __name__ == "__main__":
    main()
