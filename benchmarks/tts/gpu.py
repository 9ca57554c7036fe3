"""CSM's speed and first chunk, against the library's own `generate`, in one run.

    .venv-gpu/bin/python -m benchmarks.tts.gpu         # the shape of CSM-1B, on a GPU
    .venv-gpu/bin/python -m benchmarks.tts.gpu --tiny  # a shape for a CPU: checks the program

The weights are random, so nothing is downloaded, and speech lasts as long as the engine allows;
the time of a frame of 80 ms does not depend on what it says. "bare" is the library's `generate`
over the same weights with audio at the end.
"""

import math
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import CsmConfig, CsmForConditionalGeneration

from benchmarks.harness.gpu import begin_on_gpu, print_most_memory
from benchmarks.harness.report import parser
from configs.load import load_yaml
from configs.schema.models.tts import CsmConfig as EngineConfig
from models.tts.base import PackRef, SynthesisRequest
from models.tts.csm.engine import LONGEST_PAUSE_S, SLOWEST_S, CsmEngine
from models.tts.voice_pack import pack_digest
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt, write_prompt
from tests.models.tts.csm.tiny_csm import make_tiny_csm, name_as_the_hub_does
from tests.models.weights.one_folder import OneFolder

TEXT = "The quick brown fox jumps over the lazy dog."
PROMPT_S = 10.0
STREAMS = (1, 2, 4)


def write_model(folder: Path, device: str) -> None:
    """Write random weights of the shape of CSM-1B beside the tokenizer of the tests."""
    make_tiny_csm(folder)
    for file in folder.glob("transformers*"):
        file.unlink()
    torch.manual_seed(0)
    with torch.device(device):
        network = CsmForConditionalGeneration(CsmConfig()).to(torch.bfloat16)
    network.save_pretrained(folder, max_shard_size="2GB")
    name_as_the_hub_does(folder)


def speak(engine: CsmEngine, voice: PackRef, number: int) -> tuple[float, float]:
    """Seconds until the first audio, and seconds of frames (silence trimmed or not)."""
    began = time.perf_counter()
    first_s = 0.0
    frames = 0
    request = SynthesisRequest(f"{TEXT} {number}", "custom:1", "en", pack=voice)
    for chunk in engine.synthesize(request):  # one for each frame, some of them empty
        frames += 1
        if len(chunk.pcm) and not first_s:
            first_s = time.perf_counter() - began
    return first_s, frames / engine._model.frame_rate


def main() -> None:
    arguments = begin_on_gpu(parser(__doc__), "torch", "transformers", "accelerate")
    config = load_yaml(EngineConfig, "tts/csm")
    if arguments.tiny:
        config = config.model_copy(update={"device": "cpu", "dtype": "float32"})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_tiny_csm(folder) if arguments.tiny else write_model(folder, "cuda")
        engine = CsmEngine(config, OneFolder(folder))
        compare(engine)
        engine.close()


def compare(engine: CsmEngine) -> None:
    """Print a line for each number of streams, and one of the library."""
    noise = np.random.default_rng(0).standard_normal(round(PROMPT_S * PROMPT_SAMPLE_RATE))
    recording = (0.1 * noise).astype(np.float32)
    data = write_prompt(VoicePrompt(recording, "Hello there, my friend.", "en"))
    voice = PackRef(pack_digest(data), data)
    speak(engine, voice, 0)  # warm-up, and the prompt is encoded once
    print("streams  first audio  real-time factor of all")
    for streams in STREAMS:
        began = time.perf_counter()
        with ThreadPoolExecutor(streams) as pool:
            results = list(pool.map(partial(speak, engine, voice), range(streams)))
        took_s = time.perf_counter() - began
        first_s = max(first_s for first_s, _ in results)
        audio_s = sum(audio_s for _, audio_s in results)
        print(f"{streams:7} {first_s * 1000:9.0f} ms  {took_s / audio_s:6.2f}")
    model = engine._model
    network = model._network
    frames = math.ceil((LONGEST_PAUSE_S + SLOWEST_S * len(TEXT)) * model.frame_rate)
    tokens = torch.tensor([model._tokenizer.encode(TEXT)], device=network.device)
    for length in (2, frames):  # the first is a warm-up
        began = time.perf_counter()
        network.generate(input_ids=tokens, max_new_tokens=length, min_new_tokens=length)
        took_s = time.perf_counter() - began
    print(f"bare    {took_s * model.frame_rate / frames:6.2f}, without a prompt and the codec")
    print_most_memory()


if __name__ == "__main__":
    main()
