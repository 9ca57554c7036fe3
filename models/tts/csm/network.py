"""The networks of CSM-1B, one step at a time.

A backbone generates the first of 32 codes of each 80 ms from all frames before, a small decoder the
others from the backbone's state, and the codec Mimi decodes them to audio. `generate` of the
library does the same in one blocking call, takes no stopping criteria for this model and samples
with the generator of the process. Here each request has its own generator, so that its result does
not depend on other requests, and can stop after any frame.
"""

import gc
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import AutoTokenizer, CsmForConditionalGeneration, DynamicCache

from models.audio import Pcm, resample
from models.errors import ContextLengthExceeded, EngineLost
from models.tts.csm.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt

Tensor: TypeAlias = Any  # torch.Tensor; the CPU profile does not install the library

SPEAKER = "[0]"  # the model's tag of a speaker; always the same here
CONVOLUTION_FRAMES = 8  # more than the receptive field of the codec's convolutions
TRANSFORMER_STEPS = 2  # steps of the codec's transformer per frame


class CsmModel:
    """Weights on one device. Calls block; thread-safe."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        """`device` in accelerate's notation; "auto" is the GPU if there is one."""
        self._model: Any = CsmForConditionalGeneration.from_pretrained(
            folder, dtype=getattr(torch, dtype), device_map=device, local_files_only=True
        ).eval()
        self._model.codec_model.float()  # small, and 16-bit types would degrade the audio
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        config = self._model.config
        self.sample_rate: int = config.codec_config.sampling_rate
        self.frame_rate: float = config.codec_config.frame_rate
        self.context: int = config.max_position_embeddings
        self.device: str = self._model.device.type
        self._codebooks: int = config.num_codebooks
        self._end: int = config.codebook_eos_token_id
        self._looks_back = CONVOLUTION_FRAMES + math.ceil(
            config.codec_config.sliding_window / TRANSFORMER_STEPS
        )

    def close(self) -> None:
        """Frees the memory, the GPU's too; later calls raise EngineLost."""
        self._model = None
        gc.collect()  # the library's modules refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def prepare(self, prompt: VoicePrompt) -> Tensor:
        """The backbone's input for a voice, [1, n, hidden]."""
        model = self._loaded()
        pcm = resample(prompt.pcm, PROMPT_SAMPLE_RATE, self.sample_rate)
        with torch.inference_mode():
            sound = torch.from_numpy(pcm).to(model.device).reshape(1, 1, -1)
            codes = model.codec_model.encode(sound, num_quantizers=self._codebooks).audio_codes
            frames = codes.transpose(1, 2)  # int64 [1, frames, codebooks]
            end = torch.full_like(frames[:, :1], self._end)
            heard = model.backbone_model.embed_tokens(torch.cat([frames, end], dim=1))
            return torch.cat([self._text(prompt.transcript), heard], dim=1)

    def speak(
        self,
        prompt: Tensor,
        text: str,
        *,
        most_frames: int,
        temperature: float,
        top_k: int,
        seed: int,
    ) -> Iterator[Tensor]:
        """The codes of each frame of 80 ms, int64 [1, 1, codebooks], until the model ends.

        Raises ContextLengthExceeded before the first frame.
        """
        model = self._loaded()
        draw = _Draw(
            temperature, top_k, model.config.codec_config.codebook_size, seed, model.device
        )
        with torch.inference_mode():
            read = torch.cat([prompt, self._text(text)], dim=1)
        if read.shape[1] + most_frames > self.context:
            raise ContextLengthExceeded("the sentence is too long for the model")
        cache = DynamicCache(config=model.config)
        state = self._read(cache, inputs_embeds=read)
        for _ in range(most_frames):
            frame = self._frame(state, draw)
            # As in the library, the last codebook is ignored.
            if bool((frame[..., :-1] == self._end).all()):
                return
            yield frame
            state = self._read(cache, input_ids=frame)

    def sound(self, frames: list[Tensor], first: int) -> Pcm:
        """The audio of the frames from `first` on.

        The codec is causal with a bounded window, so that decoding in pieces has the same result as
        decoding at once.
        """
        model = self._loaded()
        begin = max(0, first - self._looks_back)
        with torch.inference_mode():
            codes = torch.cat(frames[begin:], dim=1).transpose(1, 2)  # [1, codebooks, frames]
            values = model.codec_model.decode(codes).audio_values[0, 0]
            pcm: Pcm = values.float().cpu().numpy()
        return pcm[(first - begin) * (len(pcm) // codes.shape[2]) :]

    def _loaded(self) -> Any:
        if self._model is None:
            raise EngineLost("the model was unloaded")
        return self._model

    def _text(self, text: str) -> Tensor:
        """[1, n, hidden]"""
        model, tokenizer = self._loaded(), self._tokenizer
        said = tokenizer.encode(  # text that spells a special token is not encoded as one
            f"{SPEAKER}{text}", add_special_tokens=False, split_special_tokens=True
        )
        ids = [tokenizer.bos_token_id, *said, tokenizer.eos_token_id]
        return model.embed_text_tokens(torch.tensor([ids], device=model.device))

    def _read(self, cache: Any, **inputs: Tensor) -> Tensor:
        """The backbone's state after these inputs, [1, hidden]."""
        with torch.inference_mode():
            read = self._loaded().backbone_model(past_key_values=cache, use_cache=True, **inputs)
            return read.last_hidden_state[:, -1]

    def _frame(self, state: Tensor, draw: "_Draw") -> Tensor:
        model = self._loaded()
        decoder = model.depth_decoder
        with torch.inference_mode():
            codes = [draw(model.lm_head(state))]
            cache = DynamicCache(config=decoder.config)
            # The backbone's state replaces the first code, whose value is ignored.
            given = torch.cat([torch.zeros_like(codes[0]), codes[0]], dim=1)
            before: Tensor = state
            while len(codes) < self._codebooks:
                decoded = decoder(
                    input_ids=given,
                    backbone_last_hidden_state=before,
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                codes.append(draw(decoded.logits[:, -1]))
                given, before = codes[-1], None
            return torch.cat(codes, dim=1).unsqueeze(1)


class _Draw:
    """Samples codes, deterministic for a seed."""

    def __init__(self, temperature: float, top_k: int, size: int, seed: int, device: Any) -> None:
        self._temperature = temperature
        self._top_k = min(top_k, size)
        self._size = size  # of the codec's codebooks; the model's are larger
        self._random = torch.Generator(device).manual_seed(seed)

    def __call__(self, logits: Tensor) -> Tensor:
        """[1, n] -> int64 [1, 1]"""
        likely, codes = torch.topk(logits[:, : self._size].float(), self._top_k)
        shares = torch.softmax(likely / self._temperature, dim=-1)
        return codes.gather(1, torch.multinomial(shares, 1, generator=self._random))


def joined(pieces: list[Pcm]) -> Pcm:
    """float32 [n]"""
    return np.concatenate([np.zeros(0, np.float32), *pieces])
