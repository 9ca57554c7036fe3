"""How late the words of live speech are committed, and how many word errors commitments cause.

`python -m benchmarks.stt.committed [FOLDER]` plays the held-out sentences of `passages.yaml`, by
voices of the service, and the recordings of FOLDER (a folder for each speaker, also held out) in
real time to a live session, with interims every INTERIM_MS. The lag of a word is the time from its
end to the message that commits it. It prints the word errors of the finals, and those that the same
finals would have without commitments.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.harness.recognition import LIVE_ENGLISH, live_pipeline, live_session, play
from benchmarks.harness.recordings import recorded_sentences, word_error_rate
from benchmarks.harness.report import begin, p50_p95, parser
from benchmarks.harness.speech import Sentence, silence
from benchmarks.stt.lost_speech import passages
from pipelines.stt.committed import CommittedText
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import LiveEvent, LiveTranscript

INTERIM_MS = 500
STEP_S = 0.06
PAUSE_S = 0.8  # after each sentence, so that it is an utterance


class Listener:
    """What a client of one session gets."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.lags_s: list[float] = []
        self.finals: list[str] = []
        self._commits: list[tuple[int, float]] = []  # words, and when they were committed

    async def emit(self, event: LiveEvent) -> None:
        if not isinstance(event, LiveTranscript):
            return
        now_s = time.monotonic() - self.began
        if not event.final:
            self._commits.append((len(event.committed.split()), now_s))
            return
        self.finals.append(event.text)
        for number, word in enumerate(event.words, 1):
            at_s = next((at_s for count, at_s in self._commits if count >= number), now_s)
            self.lags_s.append(at_s - word.end)
        self._commits.clear()


async def listen(sentences: Sequence[Sentence]) -> Listener:
    options = SessionOptions(LIVE_ENGLISH, interim_ms=INTERIM_MS)
    pause = silence(PAUSE_S)
    pcm = np.concatenate([part for sentence in sentences for part in (sentence.pcm, pause)])
    listener = Listener()
    async with live_session(live_pipeline(), options, listener.emit) as session:
        listener.began = time.monotonic()
        await play(session, pcm, step_s=STEP_S, in_real_time=True)
    return listener


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--sentences", type=int, default=20, help="of each source")
    arguments = begin(options)
    sources = {"voices of the service": passages("held_out")}
    if arguments.folder:
        sources["recordings"] = recorded_sentences(arguments.folder, "held_out")
    revise = CommittedText.revise
    uncommitted: list[str] = []  # the finals as they would be without commitments

    def revise_and_note(self: CommittedText, transcript: LiveTranscript) -> LiveTranscript:
        if transcript.final:
            uncommitted.append(transcript.text)
        return revise(self, replace(transcript))

    for name, sentences in sources.items():
        uncommitted.clear()
        sentences = sentences[: arguments.sentences]
        with patch.object(CommittedText, "revise", revise_and_note):
            listener = asyncio.run(listen(sentences))
        text = " ".join(sentence.text for sentence in sentences)
        errors, errors_without = (
            word_error_rate([text], [" ".join(finals)]) for finals in (listener.finals, uncommitted)
        )
        pairs = zip(listener.finals, uncommitted, strict=True)
        changed = sum(final != other for final, other in pairs)
        early = np.mean([lag_s < 0 for lag_s in listener.lags_s])
        print(
            f"{name}: {len(listener.lags_s)} words committed {p50_p95(listener.lags_s)} after "
            f"their end ({early:.1%} before it), word errors {errors:.1%} "
            f"({errors_without:.1%} without), {changed} of {len(uncommitted)} finals differ"
        )


if __name__ == "__main__":
    main()
