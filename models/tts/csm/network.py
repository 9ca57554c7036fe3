"""The networks of CSM-1B, one step at a time.

A backbone generates the first of 32 codes of each 80 ms from all earlier frames, a small decoder
generates the others from the backbone's state, and the codec Mimi decodes them to audio. `generate`
of the library does the same in one blocking call, takes no stopping criteria for this model and
samples with the generator of the process. Here each request has its own generator, so that its
result does not depend on other requests, and can stop after any frame. On a GPU a frame is one CUDA
graph.
"""

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
from transformers import AutoTokenizer, CsmForConditionalGeneration, DynamicCache, StaticCache

from models.audio import Pcm, resample
from models.errors import ContextLengthExceeded, EngineLost
from models.memory import give_back
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt

Tensor: TypeAlias = torch.Tensor

SPEAKER = "[0]"  # the model's tag of a speaker; always the same here
CONVOLUTION_FRAMES = 8  # more than the receptive field of the codec's convolutions
TRANSFORMER_STEPS = 2  # steps of the codec's transformer per frame


class CsmModel:
    """Weights on one device. Calls block; thread-safe."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        """Load the networks. `device` is in accelerate's notation; "auto" is the GPU if there is
        one."""
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
        self._graph: _CapturedStep | None = None
        if self.device == "cuda":
            with torch.inference_mode():
                speech = _Speech(self._model.backbone_model, self._text(""), self.context)
                noise = torch.zeros(self._noise_shape(), device=self._model.device)
                self._graph = _CapturedStep(self._step, speech, noise)

    def close(self) -> None:
        """Frees the memory, the GPU's too; later calls raise EngineLost."""
        self._model = self._graph = None
        give_back()  # the library's modules refer to each other

    def prepare(self, prompt: VoicePrompt) -> Tensor:
        """Return the backbone's input for a voice, [1, n, hidden]."""
        model = self._loaded()
        pcm = resample(prompt.pcm, PROMPT_SAMPLE_RATE, self.sample_rate)
        with torch.inference_mode():
            sound = torch.from_numpy(pcm).to(model.device).reshape(1, 1, -1)
            codes = model.codec_model.encode(sound, num_quantizers=self._codebooks).audio_codes
            frames = codes.transpose(1, 2)  # int64 [1, frames, codebooks]
            end = torch.full_like(frames[:, :1], self._end)
            recording = model.backbone_model.embed_tokens(torch.cat([frames, end], dim=1))
            return torch.cat([self._text(prompt.transcript), recording], dim=1)

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
        """Yields the codes of each frame of 80 ms, int64 [1, 1, codebooks], until the model ends.

        Raises ContextLengthExceeded before the first frame.
        """
        model = self._loaded()
        with torch.inference_mode():
            read = torch.cat([prompt, self._text(text)], dim=1)
        if read.shape[1] + most_frames > self.context:
            raise ContextLengthExceeded("the sentence is too long for the model")
        with torch.inference_mode():
            speech = _Speech(model.backbone_model, read, self.context)
        random = torch.Generator(model.device).manual_seed(seed)
        for _ in range(most_frames):
            frame = self._frame(speech, gumbel(self._noise_shape(), temperature, top_k, random))
            # As in the library, the last codebook is ignored.
            if bool((frame[..., :-1] == self._end).all()):
                return
            yield frame

    def sound(self, frames: list[Tensor], first: int) -> Pcm:
        """Decodes the audio of the frames from `first` on.

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
        """Embeds a text for the backbone, [1, n, hidden]."""
        model, tokenizer = self._loaded(), self._tokenizer
        text_ids = tokenizer.encode(  # text cannot spell a special token
            f"{SPEAKER}{text}", add_special_tokens=False, split_special_tokens=True
        )
        ids = [tokenizer.bos_token_id, *text_ids, tokenizer.eos_token_id]
        embedded: Tensor = model.embed_text_tokens(torch.tensor([ids], device=model.device))
        return embedded

    def _noise_shape(self) -> tuple[int, int]:
        """Return the numbers of the codec's codebooks and of codes in each; the model's own are
        larger."""
        return self._codebooks, self._loaded().config.codec_config.codebook_size

    def _frame(self, speech: "_Speech", noise: Tensor) -> Tensor:
        with torch.inference_mode():
            return (self._graph or self._step)(speech, noise)

    def _step(self, speech: "_Speech", noise: Tensor) -> Tensor:
        """Generates the next frame, which the backbone then reads; `noise` comes from `gumbel`.

        Fit for a CUDA graph: no value of a tensor moves to the CPU, and all shapes are constant.
        """
        model = self._loaded()
        # Called without `depth_decoder.forward`, which looks at positions on the CPU.
        depth = model.depth_decoder.model
        heads = model.depth_decoder.codebooks_head.weight
        cache = DynamicCache(config=depth.config)
        codes = [_chosen(model.lm_head(speech.state), noise[0])]
        # The backbone's state stands in place of a code before the first.
        given = torch.cat([speech.state.unsqueeze(1), depth.embed_tokens(codes[0])], dim=1)
        for number, (head, row) in enumerate(zip(heads, noise[1:], strict=True), 1):
            read = depth(inputs_embeds=given, past_key_values=cache, use_cache=True)
            codes.append(_chosen(read.last_hidden_state[:, -1] @ head, row))
            given = depth.embed_tokens(codes[-1] + number * depth.vocab_size)
        frame = torch.cat(codes, dim=1).unsqueeze(1)
        speech.read(model.backbone_model, input_ids=frame)
        return frame


class _Speech:
    """Backbone state of one request, with the same shapes for all requests; steps modify it."""

    def __init__(self, backbone: Any, given: Tensor, context: int) -> None:
        """Create the state. `given` is the prompt and the text, [1, n, hidden]."""
        self._cache = StaticCache(config=backbone.config, max_cache_len=context)
        self.state = torch.zeros_like(given[:, -1])  # state after the last input, [1, hidden]
        self.read(backbone, inputs_embeds=given)
        self.tensors = [self.state]
        layers: list[Any] = self._cache.layers
        for layer in layers:
            self.tensors += [layer.keys, layer.values, layer.cumulative_length]

    def read(self, backbone: Any, **given: Tensor) -> None:
        read = backbone(past_key_values=self._cache, use_cache=True, **given)
        self.state.copy_(read.last_hidden_state[:, -1])


class _CapturedStep:
    """A step as a CUDA graph: launching its thousands of kernels takes longer than running them.

    The graph has tensors of its own; each call copies those of its request into and out of them
    (67 MB for CSM-1B, a tenth of a millisecond on a GPU of 3 TB/s).
    """

    def __init__(
        self, step: Callable[[_Speech, Tensor], Tensor], speech: _Speech, noise: Tensor
    ) -> None:
        self._lock = threading.Lock()
        self._tensors = [*speech.tensors, noise]
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(noise.device)
        stream.wait_stream(torch.cuda.current_stream(noise.device))
        with torch.cuda.stream(stream):
            step(speech, noise)  # loads the kernels, which is impossible in a capture
        # "thread_local": other threads may be using another engine.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._frame = step(speech, noise)

    def __call__(self, speech: _Speech, noise: Tensor) -> Tensor:
        given = [*speech.tensors, noise]
        with self._lock:
            torch._foreach_copy_(self._tensors, given)
            self._graph.replay()
            torch._foreach_copy_(given, self._tensors)
            return self._frame.clone()


def gumbel(shape: tuple[int, int], temperature: float, top_k: int, random: Any) -> Tensor:
    """Draws the noise of the Gumbel-max trick, float32 [rows, codes].

    Added to the logits of a row in falling order, it makes the largest one a sample (Maddison et
    al., "A* Sampling", 2014). The noise is multiplied by the temperature instead of dividing
    logits.
    """
    noise = torch.empty(shape, device=random.device).exponential_(generator=random)
    noise.log_().mul_(-temperature)
    noise[:, top_k:] = -torch.inf
    return noise


def _chosen(logits: Tensor, noise: Tensor) -> Tensor:
    """Samples a code from logits [1, n]; returns int64 [1, 1]."""
    likely, codes = logits[:, : len(noise)].float().sort(descending=True)
    return codes.gather(1, (likely + noise).argmax(1, keepdim=True))
