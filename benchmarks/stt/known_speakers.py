"""How surely an enrolled speaker is recognised, by the seconds of their speech that were heard.

`python -m benchmarks.stt.known_speakers FOLDER` takes a folder with one folder of recordings a
speaker. Each speaker is enrolled with 10 and with 30 s of the first recordings; stretches of the
others are compared with every voice. It prints the share of a speaker's own stretches that are not
told by name (false rejection), and that of other speakers' that are (false acceptance of one
enrolled speaker). `--only` names the speakers that are compared.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from benchmarks.hardware import hardware
from benchmarks.stt.diarization import SUFFIXES, read_pcm, trimmed
from configs.settings import weights_dir
from models.audio import Pcm
from models.registry import SPEAKER, VAD, load
from models.stt.base import STT_SAMPLE_RATE
from models.weights.store import WeightStore
from pipelines.audio.segments import SpeechSegment, spans_of
from pipelines.stt.diarization import SpeakerVoice, voice_windows

ENROLLED_S = (10.0, 30.0)
HEARD_S = (1.5, 2.0, 3.0, 4.0, 8.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", help="names of speakers")
    arguments = parser.parse_args()
    weights = WeightStore(weights_dir())
    encoder, vad = load(SPEAKER, "speaker/resemblyzer", weights), load(VAD, "vad/silero", weights)

    def voice_of(pcm: Pcm, seconds: float, label: str = "") -> SpeakerVoice | None:
        segment, frame = SpeechSegment(0, len(pcm)), vad.capabilities.frame_samples
        windows = voice_windows(spans_of(vad.probabilities(pcm), frame, segment))
        if not windows:
            return None
        total = encoder.embed_pieces(pcm, windows).sum(axis=0, dtype=np.float64)
        return SpeakerVoice(total, seconds, label)

    print(hardware())
    known: dict[float, list[SpeakerVoice]] = {seconds: [] for seconds in ENROLLED_S}
    heard: dict[float, list[SpeakerVoice]] = {seconds: [] for seconds in HEARD_S}
    for folder in sorted(arguments.folder.iterdir()):
        if not folder.is_dir() or folder.name not in (arguments.only or folder.name):
            continue
        recordings = [
            trimmed(read_pcm(p)) for p in sorted(folder.iterdir()) if p.suffix in SUFFIXES
        ]
        first = np.concatenate(recordings[:4])
        rest = np.concatenate(recordings[4:])
        for seconds in ENROLLED_S:
            enrolled = first[: round(seconds * STT_SAMPLE_RATE)]
            known[seconds] += filter(None, [voice_of(enrolled, math.inf, folder.name)])
        for seconds in HEARD_S:
            size = round(seconds * STT_SAMPLE_RATE)
            for at in range(0, len(rest) - size, size):
                heard[seconds] += filter(
                    None, [voice_of(rest[at : at + size], seconds, folder.name)]
                )
    for enrolled_s, voices in known.items():
        for seconds, stretches in heard.items():
            named = [
                (one.label == voice.label, one.name_of([voice]) is not None)
                for one in stretches
                for voice in voices
            ]
            own = [is_named for is_own, is_named in named if is_own]
            others = [is_named for is_own, is_named in named if not is_own]
            print(
                f"enrolled with {enrolled_s:g} s, heard {seconds:g} s: "
                f"rejected {1 - np.mean(own):.1%} of {len(own)}, "
                f"accepted {np.mean(others):.1%} of {len(others)} others"
            )


if __name__ == "__main__":
    main()
