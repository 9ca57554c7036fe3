"""Whether back-channels and coughs leave an agent speaking, and interruptions stop it.

`python -m benchmarks.stt.back_channels` plays speech of the service's voices in four languages, and
coughs, to a live session with the recogniser of the service, without the agent's echo. It applies
the service's own rule to the session's interim, eager and final texts. Each session begins with a
question of the user, which the agent is answering. Every text is decoded in time, as on an idle
machine. A cough is synthesised as decaying noise. The held-out half has other voices and words than
the tuned half.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from api.openai.realtime.turns import JUDGING_MS
from benchmarks.harness.recognition import bare_engine, live_pipeline, live_session, model_info
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import HALVES, noise, silence, speak, store
from benchmarks.stt.turn_detection import MARKS, load_sentences
from models.audio import Pcm
from models.registry import TURN_DETECTION, load
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.stt.options import RecognitionOptions
from pipelines.agents.interruption import EXPECTED, Heard, interrupts
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns
from pipelines.stt.events import EagerTranscript, LiveEvent, LiveTranscript
from pipelines.stt.session import LiveSession, LiveTranscriptionPipeline
from tests.local_ports import LocalSTTModel

WORDS = Path(__file__).with_name("back_channels.yaml")
KINDS = ("back-channels", "coughs", "interruptions")
COUGHS = 6
NOISE = 0.001  # RMS
STEP = STT_SAMPLE_RATE // 10


class CountingModel(LocalSTTModel):
    """Counts the decodings that run, and lets none of them be late."""

    running = 0

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        self.running += 1
        try:
            return await super().transcribe(replace(request, retry_within_s=None))
        finally:
            self.running -= 1


class Caller:
    """The user of a live session, which gets audio no faster than it is decoded."""

    def __init__(self, model: CountingModel) -> None:
        self.agent_speaks = False
        self._model = model
        self._texts: list[Heard] = []

    def options(self) -> SessionOptions:
        return SessionOptions(
            recognition=RecognitionOptions(words=True),
            interim_ms=JUDGING_MS,
            turns=SemanticTurns(),
            expected_sounds=self._expected,
        )

    def _expected(self, language: str) -> str | None:
        return EXPECTED.get(language) if self.agent_speaks else None

    async def emit(self, event: LiveEvent) -> None:
        if isinstance(event, EagerTranscript | LiveTranscript):
            is_over = isinstance(event, EagerTranscript) or event.final
            self._texts.append(Heard(event.text, event.confidence, event.duration_s, is_over))

    async def say(self, session: LiveSession, pcm: Pcm) -> list[Heard]:
        """All texts of a sound, in the order in which they come."""
        quiet = silence(0.5)
        whole = np.concatenate([quiet, pcm, quiet, quiet])
        whole += noise(len(whole), 0, NOISE)
        self._texts = []
        for start in range(0, len(whole), STEP):
            await session.accept_pcm(whole[start : start + STEP])
            await asyncio.sleep(0.001)
            while self._model.running:
                await asyncio.sleep(0.005)
        await session.finish()
        return self._texts


def cough(seed: int) -> Pcm:
    """Two bursts of noise, each with a sudden onset and a decay of 60 to 120 ms."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(round(0.3 * STT_SAMPLE_RATE)) / STT_SAMPLE_RATE
    bursts = [
        rng.normal(0, 0.2, len(time_s)) * np.exp(-time_s / rng.uniform(0.06, 0.12))
        for _ in range(2)
    ]
    return np.asarray(np.concatenate(bursts), np.float32)


def sounds(half: str, language: str, words: dict[str, Any]) -> Iterator[tuple[str, str, str, Pcm]]:
    """Kind, voice, text and sound of what is said in a language."""
    for voice in words["voices"]:
        for kind in ("back-channels", "interruptions"):
            for text in words[kind]:
                yield kind, voice, text, speak(text, voice, language)
    if language == "en":
        for number in range(COUGHS):
            yield "coughs", words["voices"][0], "", cough(number + COUGHS * (half == "tuned"))


async def texts_of(pipeline: LiveTranscriptionPipeline, question: Pcm, pcm: Pcm) -> list[Heard]:
    """What a session makes of a sound while the agent answers the question."""
    model = pipeline.transcriber
    assert isinstance(model, CountingModel)
    caller = Caller(model)
    async with live_session(pipeline, caller.options(), caller.emit) as session:
        await caller.say(session, question)
        caller.agent_speaks = True
        return await caller.say(session, pcm)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--half", nargs="*", default=HALVES, choices=HALVES)
    arguments = begin(options)
    detector = load(TURN_DETECTION, "turn_detection/smart_turn", store())
    pipeline = live_pipeline(
        CountingModel(bare_engine(), model_info()), turn_detector=lambda: detector
    )
    halves = yaml.safe_load(WORDS.read_text("utf-8"))
    for half in arguments.half:
        stopped: dict[str, dict[str, list[bool]]] = {kind: defaultdict(list) for kind in KINDS}
        for language, words in halves[half].items():
            text = MARKS.sub(" ", load_sentences()[half][language][0])
            questions = {voice: speak(text, voice, language) for voice in words["voices"]}
            for kind, voice, text, pcm in sounds(half, language, words):
                texts = asyncio.run(texts_of(pipeline, questions[voice], pcm))
                stops = any(interrupts(part, "") for part in texts)
                stopped[kind][language].append(stops)
                if stops != (kind == "interruptions"):
                    print(f"  wrong: {text!r} was heard as {[part.text for part in texts]}")
        for kind, counts in stopped.items():
            each = [f"{language} {sum(some)} of {len(some)}" for language, some in counts.items()]
            total = [stops for some in counts.values() for stops in some]
            line = f"{half} {kind}: {sum(total)} of {len(total)} stop the agent"
            print(f"{line} ({', '.join(each)})", flush=True)


if __name__ == "__main__":
    main()
