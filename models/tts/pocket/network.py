"""The networks of Pocket TTS, one frame of 80 ms at a time.

A transformer reads a voice, the text and earlier frames; a one-step flow samples the next latent
from its state, and a codec decodes latents to audio (Rouard et al., "Continuous Audio Language
Models", 2025). The library's `generate` does the same in one blocking call, with the random
generator of the process. Here each request has its own generator, so its result does not depend on
other requests, and it can stop after any frame.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache, PocketTTSFeatureExtractor

from models.audio import Pcm
from models.errors import ContextLengthExceeded, WeightsCorrupt
from models.memory import LoadedNetwork
from models.tts.pocket.checkpoint import Tensor, Voice, read_networks, read_tokenizer, read_voice
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt

# Kyutai's rules for the end of speech, and for the longest speech of a text.
END_LOGIT = -4.0
SURELY_FRAMES = 6
FEW_WORDS = 4
FRAMES_AFTER = 2
FRAMES_AFTER_FEW = 4
TOKENS_PER_S = 3.0
SPARE_S = 2.0
FADE_S = 0.005  # fade at the start, where the codec's empty state would click


class PocketModel(LoadedNetwork):
    """Weights of the speech network and its codec on one device, in float32; thread-safe."""

    def __init__(self, folder: Path, device: str, threads: int) -> None:
        """`device` "auto" is the GPU if there is one; `threads` applies to the whole process."""
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        speech, codec = read_networks(folder / "model.safetensors")
        self._network = speech.to(device), codec.to(device)
        self._tokenizer = read_tokenizer(folder / "tokenizer.model")
        if self._tokenizer.get_vocab_size() != speech.config.audio_prompt_token_id:
            raise WeightsCorrupt("tokenizer.model is of another model than model.safetensors")
        self._features: Any = PocketTTSFeatureExtractor()
        self.sample_rate: int = codec.config.sampling_rate
        self.frame_rate: float = codec.config.frame_rate
        self.device: str = torch.device(device).type
        if self.device == "cpu":
            torch.set_num_threads(threads)

    def prepare(self, prompt: VoicePrompt) -> Voice:
        """Encodes a recording as a voice; its transcript is not needed."""
        speech, codec = self._loaded()
        config = speech.config
        samples = self._features(prompt.pcm, sampling_rate=PROMPT_SAMPLE_RATE)["input_values"]
        with torch.inference_mode():
            latents = codec.encode(samples.to(codec.device)).latents
            frames = [config.audio_prompt_token_id] * latents.shape[1]
            ids = self._ids([config.audio_prompt_bos_token_id, *frames])
            cache = DynamicCache()
            speech.model(ids, audio_prompt_latents=latents, past_key_values=cache, use_cache=True)
        layers: list[Any] = cache.layers
        return tuple((layer.keys, layer.values) for layer in layers)

    def prepared(self, file: Path) -> Voice:
        """Reads one of Kyutai's voices. Raises WeightsCorrupt."""
        layers = read_voice(file)
        return tuple((keys.to(self.device), values.to(self.device)) for keys, values in layers)

    def speak(self, voice: Voice, text: str, *, temperature: float, seed: int) -> Iterator[Tensor]:
        """Yields the latent of each frame, [1, 1, latents], until the model ends. `temperature` is
        the variance of the noise. Raises ContextLengthExceeded before the first frame."""
        speech, _ = self._loaded()
        config = speech.config
        sentence = as_sentence(text)
        tokens = self._tokenizer.encode(f" {sentence}").ids
        most = math.ceil((len(tokens) / TOKENS_PER_S + SPARE_S) * self.frame_rate)
        if voice[0][0].shape[2] + len(tokens) + most > config.max_position_embeddings:
            raise ContextLengthExceeded("the sentence is too long for the model")
        after = FRAMES_AFTER_FEW if len(sentence.split()) <= FEW_WORDS else FRAMES_AFTER
        cache = DynamicCache(voice)  # copied as it grows
        random = torch.Generator(speech.device).manual_seed(seed)
        given: dict[str, Any] = {"input_ids": self._ids([*tokens, config.audio_bos_token_id])}
        next_id, last = self._ids([config.audio_latent_token_id]), most - 1
        for number in range(most):
            speech, _ = self._loaded()
            with torch.inference_mode():
                read = speech(**given, past_key_values=cache, use_cache=True)
                noise = torch.randn(1, config.latent_dim, generator=random, device=speech.device)
                latent = speech.sample_latent(
                    read.last_hidden_state[:, -1], noise * math.sqrt(temperature), 1
                )[:, None]
                frame = speech.denormalize_latents(latent)
            yield frame
            if number >= SURELY_FRAMES and read.logits[0, -1, 0] > END_LOGIT:
                last = min(last, number + after)
            if number == last:
                return
            given = {"input_ids": next_id, "audio_latents": latent}

    def decoder(self) -> "SpeechDecoder":
        return SpeechDecoder(self._loaded()[1])

    def _ids(self, ids: list[int]) -> Tensor:
        return torch.tensor([ids], device=self._loaded()[0].device)


class SpeechDecoder:
    """Decodes the latents of one sentence in pieces, with the same result as decoding them at once.
    The codec is causal. Its transformer has a cache; its convolutions read the last frame again,
    which is longer than the past that they need."""

    def __init__(self, codec: Any) -> None:
        self._codec = codec
        config = codec.config
        self._step: int = config.latent_stride  # steps of the transformer in a frame
        self._samples: int = config.frame_size // config.latent_stride  # per step
        self._cache = DynamicCache(config=codec.decoder.config)
        self._latents = torch.zeros(1, 0, config.latent_dim, device=codec.device)
        self._states = torch.zeros(1, config.hidden_size, 0, device=codec.device)
        self._fade = torch.linspace(0, 1, round(FADE_S * config.sampling_rate))

    def sound(self, frames: list[Tensor], first: int) -> Pcm:
        """Decodes the frames from `first` on, which follow those of the previous call."""
        codec, before = self._codec, self._states.shape[2]
        with torch.inference_mode():
            latents = torch.cat([self._latents, *frames[first:]], dim=1)
            raised = codec.decoder.upsample(codec.latent_proj(latents.transpose(1, 2)))
            raised = raised[..., self._latents.shape[1] * self._step :].transpose(1, 2)
            states = codec.decoder.decoder_transformer(
                raised, past_key_values=self._cache, use_cache=True
            ).last_hidden_state.transpose(1, 2)
            states = torch.cat([self._states, states], dim=2)
            values = codec.decoder.decoder_seanet(states)[0, 0, before * self._samples :]
            values = values.float().cpu()
            if not before:
                values[: len(self._fade)] *= self._fade
        self._latents, self._states = latents[:, -1:], states[..., -self._step :]
        pcm: Pcm = values.numpy()
        return pcm


def as_sentence(text: str) -> str:
    """Adds a capital letter and a final mark, as in the texts that the model was trained on."""
    sentence = " ".join(text.split()).replace("’", "'").replace("‘", "'")
    sentence = sentence[:1].upper() + sentence[1:]
    return f"{sentence}." if sentence[-1:].isalnum() else sentence
