"""How surely an enrolled speaker is recognised, by the seconds of their speech that were heard.

`python -m benchmarks.stt.known_speakers FOLDER` takes a folder with one folder of recordings a
speaker. Each speaker is enrolled with 10 and with 30 s of the first recordings; stretches of the
others are compared with every voice. It prints the share of a speaker's own stretches that do not
get the speaker's name (false rejection), and the share of other speakers' stretches that do (false
acceptance of one enrolled speaker). `--only` names the speakers that are compared.
"""

import math
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.harness.recognition import voice_activity
from benchmarks.harness.recordings import recordings_by_speaker
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import store
from models.audio import Pcm
from models.registry import SPEAKER, load
from models.speaker.base import SpeakerEncoder
from models.stt.base import STT_SAMPLE_RATE
from pipelines.audio.segments import SpeechSegment, spans_of
from pipelines.stt.diarization import SpeakerVoice, voice_windows

ENROLLED_S = (10.0, 30.0)
STRETCHES_S = (1.5, 2.0, 3.0, 4.0, 8.0)


def voices_of(encoder: SpeakerEncoder, pcm: Pcm, seconds: float, name: str) -> list[SpeakerVoice]:
    """The voice of a stretch, or nothing if no speech is in it."""
    vad = voice_activity()
    segment = SpeechSegment(0, len(pcm))
    spans = spans_of(vad.probabilities(pcm), vad.capabilities.frame_samples, segment)
    windows = voice_windows(spans)
    if not windows:
        return []
    total = encoder.embed_pieces(pcm, windows).sum(axis=0, dtype=np.float64)
    return [SpeakerVoice(total, seconds, name)]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--only", nargs="+", help="names of speakers")
    arguments = begin(options)
    encoder = load(SPEAKER, "speaker/resemblyzer", store())
    enrolled: dict[float, list[SpeakerVoice]] = defaultdict(list)
    stretches: dict[float, list[SpeakerVoice]] = defaultdict(list)
    for name, recordings in recordings_by_speaker(arguments.folder, arguments.only).items():
        first = np.concatenate(recordings[:4])
        rest = np.concatenate(recordings[4:])
        for seconds in ENROLLED_S:
            pcm = first[: round(seconds * STT_SAMPLE_RATE)]
            enrolled[seconds] += voices_of(encoder, pcm, math.inf, name)
        for seconds in STRETCHES_S:
            size = round(seconds * STT_SAMPLE_RATE)
            for start in range(0, len(rest) - size, size):
                pcm = rest[start : start + size]
                stretches[seconds] += voices_of(encoder, pcm, seconds, name)
    for enrolled_s, voices in enrolled.items():
        for seconds, some in stretches.items():
            named: dict[bool, list[bool]] = {True: [], False: []}
            for stretch in some:
                for voice in voices:
                    is_own = stretch.label == voice.label
                    named[is_own].append(stretch.name_of([voice]) is not None)
            print(
                f"enrolled with {enrolled_s:g} s, heard {seconds:g} s: "
                f"rejected {1 - np.mean(named[True]):.1%} of {len(named[True])}, "
                f"accepted {np.mean(named[False]):.1%} of {len(named[False])} others"
            )


if __name__ == "__main__":
    main()
