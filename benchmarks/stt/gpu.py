"""Whisper in batches on transformers and on CTranslate2, against plain `generate`, in one run.

    .venv-gpu/bin/python -m benchmarks.stt.gpu         # the shape of large-v3-turbo, on a GPU
    .venv-gpu/bin/python -m benchmarks.stt.gpu --tiny  # a shape for a CPU: checks the program

The weights are random, so nothing is downloaded; the time does not depend on the text, whose length
is set: TOKENS for a window of 30 s, about what fluent speech has. "bare" is `generate` of
transformers with the same weights, the library's own features, and the same windows as one batch.
CTranslate2 needs the package nvidia-cublas-cu12 on a GPU. Compare times only between equal numbers
of words per window; with the tiny shape there are hardly any words.
"""

import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ctranslate2.converters.transformers import WhisperLoader
from transformers import (
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from benchmarks.harness.gpu import begin_on_gpu, best_s, made_up_words, print_most_memory
from benchmarks.harness.report import parser
from configs.load import load_yaml
from configs.schema.models.stt import CudaWhisperConfig, TransformersWhisperConfig
from models.errors import EngineError
from models.stt.base import STT_SAMPLE_RATE, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.stt.whisper_cuda.engine import CudaWhisperEngine
from models.stt.whisper_transformers.engine import TransformersWhisperEngine
from models.stt.whole_window import WholeWindowEngine
from tests.models.stt.whisper_transformers.tiny_whisper import MARKS, make_tiny_whisper
from tests.models.weights.one_folder import OneFolder

WINDOW_S, TOKENS = 30, 100
PROMPT = 4  # tokens before a text: start, language, task, no times
BYTES_AND_MARKS = 256 + len(MARKS)
SHARPNESS = 6.0  # of the attention of `speak_steadily`
BATCHES = (1, 4, 16)
OPTIONS = RecognitionOptions()
TURBO: dict[str, Any] = {
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_layers": 4,
    "decoder_attention_heads": 20,
    "decoder_ffn_dim": 5120,
    "vocab_size": 51866,
    "init_std": 0.02,
}


def write_model(folder: Path, device: str, shape: dict[str, Any] = TURBO) -> None:
    """Write random weights of the shape, of large-v3-turbo, beside the tokenizer of the tests."""
    words = made_up_words(shape["vocab_size"] - BYTES_AND_MARKS)
    tiny = make_tiny_whisper(folder, words).config.to_dict()
    with torch.device(device):
        network = WhisperForConditionalGeneration(WhisperConfig(**(tiny | shape)))
    last = shape["decoder_layers"] - 1
    heads = [[layer, head] for layer in (last - 1, last) for head in range(3)]  # turbo has six
    network.generation_config.alignment_heads = heads
    speak_steadily(network)
    network.half().save_pretrained(folder)


def speak_steadily(network: Any) -> None:
    """Change random weights so that a window has TOKENS words of one token at steady times, then
    ends, whatever the audio. Such a text is handled like that of speech; other texts are decoded
    again, as hallucinations or for missed speech. All kernels run as before.
    """
    model = network.model
    layers = [*model.encoder.layers, *model.decoder.layers]
    # The blocks add nothing, so that a state depends only on its position.
    for part in [*(layer.fc2 for layer in layers), *(layer.self_attn.out_proj for layer in layers)]:
        torch.nn.init.zeros_(part.weight)
        torch.nn.init.zeros_(part.bias)
    places = model.encoder.embed_positions.weight.detach()  # [1500, width]
    spoken = torch.linspace(0, len(places) - 1, TOKENS + 1, device=places.device).long()
    rows = spoken[(torch.arange(network.config.max_target_positions) - PROMPT + 1).clip(0, TOKENS)]
    with torch.no_grad():
        model.decoder.embed_positions.weight.copy_(places[rows])
        # Each position is followed by a word of its own, and the last one by the end.
        said = torch.tensor([*range(256, 256 + TOKENS), network.config.eos_token_id])
        model.decoder.embed_tokens.weight[said] = 0.1 * places[spoken]
        for layer in model.decoder.layers:  # each position attends to the same place in the audio
            torch.nn.init.zeros_(layer.encoder_attn.out_proj.weight)
            torch.nn.init.zeros_(layer.encoder_attn.out_proj.bias)
            torch.nn.init.zeros_(layer.encoder_attn.q_proj.bias)
            layer.encoder_attn.k_proj.weight.copy_(SHARPNESS * layer.encoder_attn.q_proj.weight)


def write_for_ctranslate2(network: Any, source: Path, folder: Path) -> None:
    """Write the network in CTranslate2's format, beside the tokenizer of `source`."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(source / "tokenizer.json"))
    loader = WhisperLoader()
    with torch.no_grad():
        spec = loader.get_model_spec(network.float().cpu())
    spec.register_vocabulary(sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get))
    loader.set_config(spec.config, network, tokenizer)
    spec.validate()
    spec.optimize(quantization="float16")
    folder.mkdir()
    spec.save(str(folder))
    shutil.copy(source / "tokenizer.json", folder)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3, help="the best of these rounds counts")
    packages = ("torch", "torchaudio", "transformers", "accelerate", "ctranslate2")
    arguments = begin_on_gpu(options, *packages)
    device, dtype = ("cpu", "float32") if arguments.tiny else ("cuda", "float16")
    changed: dict[str, Any] = {
        "retry_logprob": -99.0,
        "compression_ratio_threshold": 99.0,
        "device": device,
    }
    torch_config = load_yaml(TransformersWhisperConfig, "stt/whisper_turbo")
    cuda_config = load_yaml(CudaWhisperConfig, "stt/whisper_turbo_cuda")
    random = np.random.default_rng(0)
    batches = BATCHES[:1] if arguments.tiny else BATCHES
    windows = 0.1 * random.standard_normal((max(batches), WINDOW_S * STT_SAMPLE_RATE))
    windows = windows.astype(np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder, converted = Path(name, "transformers"), Path(name, "ctranslate2")
        folder.mkdir()
        make_tiny_whisper(folder) if arguments.tiny else write_model(folder, device)
        print("engine        windows  audio s/s  word times  encoder  words")
        config = torch_config.model_copy(update=changed | {"dtype": dtype})
        engine = TransformersWhisperEngine(config, OneFolder(folder))
        measure("transformers", engine, windows, arguments.rounds)
        network = engine._model._network
        fill_in_generation_config(network, engine._whisper.hf_tokenizer.get_vocab())
        measure_bare(network, windows, arguments.rounds)
        print_most_memory()
        write_for_ctranslate2(network, folder, converted)
        engine.close()
        try:
            other = CudaWhisperEngine(
                cuda_config.model_copy(update=changed | {"compute_type": dtype}),
                OneFolder(converted),
            )
        except EngineError as error:
            print(f"ctranslate2   {error}")
            return
        measure("ctranslate2", other, windows, arguments.rounds)
        other.close()


def measure(name: str, engine: WholeWindowEngine, windows: Any, rounds: int) -> None:
    """Print a line for each size of a batch."""
    generate = engine._model.generate

    def limited(states: Any, prompts: list[list[int]], **options: Any) -> Any:
        """Ends each text, since random weights never do, and a text without an end is decoded
        again."""
        return generate(states, prompts, **options | {"max_length": len(prompts[0]) + TOKENS})

    engine._model.generate = limited
    for batch in batches_of(windows):
        requests = {
            words: [
                TranscriptionRequest(pcm, "en", options=replace(OPTIONS, words=words))
                for pcm in windows[:batch]
            ]
            for words in (False, True)
        }
        plain, timed = (
            best_s(partial(engine.transcribe, asked), rounds) for asked in requests.values()
        )
        encoded = best_s(partial(engine._encode, requests[False]), rounds)
        transcripts = engine.transcribe(requests[True])
        words = sum(len(part.words) for heard in transcripts for part in heard.segments)
        seconds = batch * WINDOW_S
        print(
            f"{name:13} {batch:7} {seconds / plain:10.0f} {seconds / timed:11.0f}"
            f" {encoded / batch * 1000:5.1f} ms {words / batch:6.0f}"
        )


def batches_of(windows: Any) -> list[int]:
    return [batch for batch in BATCHES if batch <= len(windows)]


def fill_in_generation_config(network: Any, marks: dict[str, int]) -> None:
    """Set what the hub's files have and the tests' lack."""
    names = (f"<|{name}|>" for name in ("en", "de", "es", "hi"))
    settings = network.generation_config
    settings.is_multilingual = True
    settings.no_timestamps_token_id = marks["<|notimestamps|>"]
    settings.lang_to_id = {name: marks[name] for name in names}
    settings.task_to_id = {"transcribe": marks["<|transcribe|>"]}
    settings.decoder_start_token_id = marks["<|startoftranscript|>"]


def measure_bare(network: Any, windows: Any, rounds: int) -> None:
    """Print a line of the library's own `generate` for each size of a batch."""
    features = WhisperFeatureExtractor(feature_size=network.config.num_mel_bins)

    def bare(batch: int) -> None:
        heard = features(windows[:batch], sampling_rate=STT_SAMPLE_RATE, return_tensors="pt")
        network.generate(
            heard.input_features.to(network.device, network.dtype),
            language="en",
            min_new_tokens=TOKENS,
            max_new_tokens=TOKENS,
        )

    for batch in batches_of(windows):
        took_s = best_s(partial(bare, batch), rounds)
        print(f"bare          {batch:7} {batch * WINDOW_S / took_s:10.0f}")


if __name__ == "__main__":
    main()
