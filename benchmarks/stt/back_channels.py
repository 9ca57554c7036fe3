"""Whether back-channels and coughs leave an agent speaking, and interruptions stop it.

`python -m benchmarks.stt.back_channels` says both with this service's voices, in four languages, to
a live session with the recogniser of the service, without the agent's echo, and applies the
service's own rule to its interim, eager and final texts. In each session the user has asked
something before, as before any answer of an agent; `--language` fixes the language in its place.
Every text is decoded in time, as on an idle machine. A cough is a burst of noise with the decay
of one: not a recording. Voices and words of the held-out half are others than those of the tuned.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from api.openai.realtime.turns import JUDGING_MS
from benchmarks.hardware import hardware
from benchmarks.stt.turn_detection import MARKS, load_sentences
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from configs.settings import weights_dir
from models.audio import Pcm, resample
from models.registry import STT, TTS, TURN_DETECTION, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.tts.base import SynthesisRequest, TTSEngine
from models.weights.store import WeightStore
from pipelines.agents.interruption import EXPECTED, Heard, interrupts
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns
from pipelines.stt.events import (
    EagerTranscript,
    LiveEvent,
    LiveTranscript,
)
from pipelines.stt.session import (
    LiveSession,
    LiveTranscriptionPipeline,
)
from tests.local_ports import LocalSTTModel

VOICES = {
    "tuned": {
        "en": ("af_heart", "am_michael"),
        "es": ("ef_dora",),
        "fr": ("ff_siwis",),
        "de": ("de:ff_siwis",),
    },
    "held_out": {
        "en": ("bf_emma", "am_puck"),
        "es": ("em_alex",),
        "fr": ("fr:im_nicola",),
        "de": ("de:im_nicola",),
    },
}
BACK_CHANNELS = {
    "tuned": {
        "en": ("Mhm.", "Yeah.", "Uh-huh.", "Okay.", "Right.", "Oh, I see."),
        "es": ("Sí.", "Claro.", "Ajá.", "Vale."),
        "fr": ("Oui.", "D'accord.", "Ah bon ?", "Ouais."),
        "de": ("Ja.", "Genau.", "Ach so.", "Okay."),
    },
    "held_out": {
        "en": ("Mm-hmm.", "Yes, yes.", "Sure.", "Got it.", "Ah, okay.", "Really?"),
        "es": ("Sí, sí.", "Ya veo.", "Mhm.", "Entiendo."),
        "fr": ("Oui, oui.", "Je vois.", "Mhm.", "Très bien."),
        "de": ("Ja, ja.", "Verstehe.", "Mhm.", "Alles klar."),
    },
}
INTERRUPTIONS = {
    "tuned": {
        "en": ("Stop.", "Wait a moment.", "No, that is wrong.", "What does that cost?"),
        "es": ("Para.", "Espera un momento.", "No, eso no es.", "¿Cuánto cuesta?"),
        "fr": ("Stop.", "Attendez un instant.", "Non, c'est faux.", "Combien ça coûte ?"),
        "de": ("Stopp.", "Moment mal.", "Nein, das ist falsch.", "Was kostet das?"),
    },
    "held_out": {
        "en": ("Hold on.", "Not that one.", "Can you repeat that?", "I have a question."),
        "es": ("Un momento.", "Eso no.", "¿Puede repetirlo?", "Tengo una pregunta."),
        "fr": ("Attends.", "Pas celui-là.", "Vous pouvez répéter ?", "J'ai une question."),
        "de": ("Warte.", "Nicht das.", "Können Sie das wiederholen?", "Ich habe eine Frage."),
    },
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


def said(voices: TTSEngine, text: str, voice: str, language: str) -> Pcm:
    request = SynthesisRequest(text=text, voice=voice, language=language)
    pcm = np.concatenate([chunk.pcm for chunk in voices.synthesize(request)])
    return resample(pcm, voices.capabilities.sample_rate, STT_SAMPLE_RATE)


class CountingModel(LocalSTTModel):
    """Knows how many decodings run; all of them are in time."""

    running = 0

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        self.running += 1
        try:
            return await super().transcribe(replace(request, retry_within_s=None))
        finally:
            self.running -= 1


class Caller:
    """A live session that hears audio no faster than it is decoded."""

    def __init__(
        self,
        pipeline: LiveTranscriptionPipeline,
        model: CountingModel,
        languages: tuple[str, ...],
    ) -> None:
        self.heard: list[Heard] = []
        self._model = model
        self.agent_speaks = False
        options = SessionOptions(
            recognition=RecognitionOptions(languages=languages, words=True),
            interim_ms=JUDGING_MS,
            turns=SemanticTurns(),
            expected_sounds=self._expected,
        )
        self._live = LiveSession(pipeline, options, self._emit)
        self._running = asyncio.create_task(self._live.run())

    def _expected(self, language: str) -> str | None:
        return EXPECTED.get(language) if self.agent_speaks else None

    async def _emit(self, event: LiveEvent) -> None:
        if isinstance(event, EagerTranscript | LiveTranscript):
            is_over = isinstance(event, EagerTranscript) or event.final
            self.heard.append(Heard(event.text, event.confidence, event.duration_s, is_over))

    async def hear(self, pcm: Pcm) -> list[Heard]:
        """All texts of it, in the order in which they come."""
        quiet = np.zeros(STT_SAMPLE_RATE // 2, np.float32)
        whole = np.concatenate([quiet, pcm, quiet, quiet])
        whole += np.random.default_rng(0).normal(0, NOISE, len(whole)).astype(np.float32)
        self.heard = []
        for at in range(0, len(whole), STEP):
            await self._live.accept_pcm(whole[at : at + STEP])
            await asyncio.sleep(0.001)
            while self._model.running:
                await asyncio.sleep(0.005)
        await self._live.finish()
        return self.heard

    async def close(self) -> None:
        self._running.cancel()
        await self._live.close()


def sounds(half: str, language: str, voices: TTSEngine) -> Iterator[tuple[str, str, str, Pcm]]:
    """Kind, voice, text and sound of what is said in a language."""
    for voice in VOICES[half][language]:
        for kind, texts in (("back-channels", BACK_CHANNELS), ("interruptions", INTERRUPTIONS)):
            for text in texts[half][language]:
                yield kind, voice, text, said(voices, text, voice, language)
    if language == "en":
        voice = VOICES[half][language][0]
        for number in range(COUGHS):
            yield "coughs", voice, "", cough(number + COUGHS * (half == "tuned"))


async def measure(halves: list[str], language: str | None, keep: Path | None) -> None:
    weights = WeightStore(weights_dir())
    voices, _ = load_model(TTS, "tts/kokoro", weights)
    model = CountingModel(*load_model(STT, "stt/whisper_base", weights))
    detector = load(TURN_DETECTION, "turn_detection/smart_turn", weights)
    pipeline = LiveTranscriptionPipeline(
        model,
        load(VAD, "vad/silero", weights),
        load_yaml(ListeningConfig, "listening"),
        lambda: detector,
    )
    for half in halves:
        stopped: dict[tuple[str, str], list[bool]] = {}
        found = []
        for spoken, names in VOICES[half].items():
            question = MARKS.sub(" ", load_sentences()[half][spoken][0])
            questions = {name: said(voices, question, name, spoken) for name in names}
            for kind, voice, text, pcm in sounds(half, spoken, voices):
                caller = Caller(pipeline, model, (spoken,) if language else ())
                if not language:
                    await caller.hear(questions[voice])
                caller.agent_speaks = True
                heard = await caller.hear(pcm)
                await caller.close()
                stops = any(interrupts(one, "") for one in heard)
                stopped.setdefault((kind, spoken), []).append(stops)
                found.append((kind, spoken, voice, text, [asdict(one) for one in heard]))
                if stops != (kind == "interruptions"):
                    print(f"  wrong: {text!r} was heard as {[one.text for one in heard]}")
        if keep is not None:
            (keep / f"{half}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False))
        for kind in ("back-channels", "coughs", "interruptions"):
            each = {lang: found for (one, lang), found in stopped.items() if one == kind}
            few = ", ".join(f"{lang} {sum(found)} of {len(found)}" for lang, found in each.items())
            total = [one for found in each.values() for one in found]
            print(f"{half} {kind}: {sum(total)} of {len(total)} stop the agent ({few})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", nargs="*", default=list(VOICES), choices=list(VOICES))
    parser.add_argument("--language", action="store_true", help="of the session is fixed")
    parser.add_argument("--keep", type=Path, help="folder for what was heard")
    options = parser.parse_args()
    asyncio.run(measure(options.half, options.language, options.keep))
    print(hardware())


if __name__ == "__main__":
    main()
