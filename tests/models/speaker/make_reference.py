"""Writes `reference.json`: mel spectra and embeddings of the buzzes by Resemblyzer 0.1.4.

Run it with Resemblyzer, librosa and torch, which the service does not need:
`python -m tests.models.speaker.make_reference`.
"""

import json
from importlib import import_module
from pathlib import Path

from tests.models.speaker.buzzes import BUZZES, buzz

REFERENCE = Path(__file__).with_name("reference.json")
MEL_FRAMES = (0, 7, 80)  # a few; the first contains the edge of the signal


def main() -> None:
    audio = import_module("resemblyzer.audio")
    encoder = import_module("resemblyzer").VoiceEncoder("cpu", verbose=False)
    reference = {}
    for name, (duration_s, hz, level) in BUZZES.items():
        pcm = audio.normalize_volume(buzz(duration_s, hz, level), -30, increase_only=True)
        mels = audio.wav_to_mel_spectrogram(pcm)
        embedding, partials, _ = encoder.embed_utterance(pcm, return_partials=True)
        reference[name] = {
            "mels": [[float(f"{value:.7g}") for value in mels[frame]] for frame in MEL_FRAMES],
            "partials": len(partials),
            "embedding": [round(float(value), 6) for value in embedding],
        }
    REFERENCE.write_text(json.dumps(reference) + "\n")


if __name__ == "__main__":
    main()
