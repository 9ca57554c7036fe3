"""The networks of CSM-1B, one step at a time.

A backbone generates the first of 32 codes of each 80 ms from all earlier frames, a small decoder
the others from the backbone's state, and the codec Mimi decodes them to audio. The library's
`generate` does the same in one blocking call, without stopping criteria and with the generator of
the process. Here each request has its own generator and can stop after any frame. The next frames
of several requests are one step, always with the same number of rows, so that a result does not
depend on other requests. On a GPU a step is one CUDA graph.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from transformers import AutoTokenizer, CsmForConditionalGeneration, DynamicCache
from transformers.cache_utils import Cache, StaticLayer

from models.audio import Pcm, resample
from models.errors import ContextLengthExceeded
from models.memory import LoadedNetwork, still_loaded
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt

Tensor: TypeAlias = torch.Tensor

SPEAKER = "[0]"  # the model's tag of a speaker; always the same here
CONVOLUTION_FRAMES = 8  # more than the receptive field of the codec's convolutions
TRANSFORMER_STEPS = 2  # steps of the codec's transformer per frame
GATHER_S = 0.005  # most time to wait for the sentences of the last step, which are being decoded


class CsmModel(LoadedNetwork):
    """Weights on one device; thread-safe."""

    def __init__(self, folder: Path, device: str, dtype: str, parallel: int = 4) -> None:
        """Load the networks. `device` is in accelerate's notation; "auto" is the GPU if there is
        one. `parallel` is the number of sentences in a step."""
        self._network = CsmForConditionalGeneration.from_pretrained(
            folder, dtype=getattr(torch, dtype), device_map=device, local_files_only=True
        ).eval()
        self._network.codec_model.float()  # small, and 16-bit types would degrade the audio
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        config = self._network.config
        codec = config.codec_config
        self.sample_rate: int = codec.sampling_rate
        self.frame_rate: float = codec.frame_rate
        self.context: int = config.max_position_embeddings
        self.device: str = self._network.device.type
        self._codebooks: int = config.num_codebooks
        self._end: int = config.codebook_eos_token_id
        self._looks_back = CONVOLUTION_FRAMES + math.ceil(codec.sliding_window / TRANSFORMER_STEPS)
        self._batch: _FrameBatch | None = self._new_batch(parallel)

    def close(self) -> None:
        self._batch = None
        super().close()

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
        Raises ContextLengthExceeded before the first frame."""
        model = self._loaded()
        with torch.inference_mode():
            read = torch.cat([prompt, self._text(text)], dim=1)
        if read.shape[1] + most_frames > self.context:
            raise ContextLengthExceeded("the sentence is too long for the model")
        with torch.inference_mode():
            speech = _Speech(model.backbone_model, 1, self.context)
            speech.read(model.backbone_model, inputs_embeds=read)
        random = torch.Generator(model.device).manual_seed(seed)
        for _ in range(most_frames):
            noise = gumbel(self._noise_shape(), temperature, top_k, random)
            frame = still_loaded(self._batch).frame(speech, noise)
            # As in the library, the last codebook is ignored.
            if bool((frame[..., :-1] == self._end).all()):
                return
            yield frame

    def sound(self, frames: list[Tensor], first: int) -> Pcm:
        """Decodes the audio of the frames from `first` on. The codec is causal with a bounded
        window, so that decoding in pieces has the same result as decoding at once."""
        model = self._loaded()
        begin = max(0, first - self._looks_back)
        with torch.inference_mode():
            codes = torch.cat(frames[begin:], dim=1).transpose(1, 2)  # [1, codebooks, frames]
            values = model.codec_model.decode(codes).audio_values[0, 0]
            pcm: Pcm = values.float().cpu().numpy()
        return pcm[(first - begin) * (len(pcm) // codes.shape[2]) :]

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
        """Return the numbers of the codec's codebooks and codes; the model's own are larger."""
        return self._codebooks, self._loaded().config.codec_config.codebook_size

    def _new_batch(self, rows: int) -> "_FrameBatch":
        model = self._loaded()
        with torch.inference_mode():
            speech = _Speech(model.backbone_model, rows, self.context)
            noise = torch.zeros((rows, *self._noise_shape()), device=model.device)
            return _FrameBatch(self._step, speech, noise)

    def _step(self, speech: "_Speech", noise: Tensor) -> Tensor:
        """Generates the next frame of each row, int64 [rows, 1, codebooks], which the backbone then
        reads; `noise`, [rows, codebooks, codes], comes from `gumbel`. Fit for a CUDA graph: no
        value of a tensor moves to the CPU, and all shapes are constant."""
        model = self._loaded()
        # Called without `depth_decoder.forward`, which looks at positions on the CPU.
        depth = model.depth_decoder.model
        heads = model.depth_decoder.codebooks_head.weight
        cache = DynamicCache(config=depth.config)
        codes = [_chosen(model.lm_head(speech.state), noise[:, 0])]
        # The backbone's state is read before the first code.
        given = torch.cat([speech.state.unsqueeze(1), depth.embed_tokens(codes[0])], dim=1)
        for number, head in enumerate(heads, 1):
            read = depth(inputs_embeds=given, past_key_values=cache, use_cache=True)
            codes.append(_chosen(read.last_hidden_state[:, -1] @ head, noise[:, number]))
            given = depth.embed_tokens(codes[-1] + number * depth.vocab_size)
        frame = torch.cat(codes, dim=1).unsqueeze(1)
        speech.read(model.backbone_model, input_ids=frame)
        return frame


class _Rows(StaticLayer):
    """Keys and values of one layer, for sentences that are each at their own position."""

    keys: Any  # a tensor once the layer is initialised, like `values`
    values: Any
    positions: Tensor  # positions of the inputs being read, int64 [rows, n]

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        rows = torch.arange(len(self.positions), device=self.positions.device)[:, None]
        self.keys[rows, :, self.positions] = key_states.transpose(1, 2)
        self.values[rows, :, self.positions] = value_states.transpose(1, 2)
        return self.keys, self.values


class _Speech:
    """Backbone state of sentences, one a row; steps modify it."""

    def __init__(self, backbone: Any, rows: int, context: int) -> None:
        config = backbone.config
        device = backbone.device
        dtype = backbone.dtype
        self._layers: list[Any] = [_Rows(context) for _ in range(config.num_hidden_layers)]
        self._cache = Cache(layers=self._layers)
        self._cache.early_initialization(
            rows, config.num_key_value_heads, config.head_dim, dtype, device
        )
        # After the last input of each row.
        self.state = torch.zeros((rows, config.hidden_size), dtype=dtype, device=device)
        self.length = torch.zeros(rows, dtype=torch.long, device=device)  # inputs of each row
        keys_and_values = [part for layer in self._layers for part in (layer.keys, layer.values)]
        self._tensors = [self.state, self.length, *keys_and_values]

    def read(self, backbone: Any, **given: Tensor) -> None:
        """Read inputs, [rows, n, …]."""
        [inputs] = given.values()
        count = inputs.shape[1]
        device = inputs.device
        positions = self.length[:, None] + torch.arange(count, device=device)
        for layer in self._layers:
            layer.positions = positions
        places = torch.arange(self._layers[0].max_cache_len, device=device)
        read = backbone(
            past_key_values=self._cache,
            use_cache=True,
            position_ids=positions,
            attention_mask=(places <= positions[..., None])[:, None],
            **given,
        )
        self.state.copy_(read.last_hidden_state[:, -1])
        self.length.add_(count)

    def row(self, number: int) -> list[Tensor]:
        return [part[number : number + 1] for part in self._tensors]


@dataclass(slots=True, eq=False)
class _Turn:
    """The next frame of one sentence."""

    speech: _Speech  # with one row
    noise: Tensor  # [codebooks, codes]
    frame: "Future[Tensor]" = field(default_factory=Future)


class _FrameBatch:
    """Steps of several sentences at once, in tensors of their own; thread-safe. Each step copies
    the states of its sentences into and out of these tensors (67 MB for one of CSM-1B, a tenth of a
    millisecond on a GPU of 3 TB/s). On a GPU a step is a CUDA graph: launching its thousands of
    kernels takes longer than running them."""

    def __init__(
        self, step: Callable[[_Speech, Tensor], Tensor], speech: _Speech, noise: Tensor
    ) -> None:
        self._speech = speech
        self._noise = noise
        self._rows = [speech.row(number) for number in range(len(noise))]
        self._waiting: list[_Turn] = []
        self._changed = threading.Condition()
        self._is_led = False  # whether a thread computes a step
        self._last = 0  # sentences of the last step
        self._run: Callable[[], Tensor] = lambda: step(speech, noise)
        if noise.is_cuda:
            self._run = _captured(self._run, noise.device)

    def frame(self, speech: _Speech, noise: Tensor) -> Tensor:
        """Returns the next frame, int64 [1, 1, codebooks]; one waiting thread computes for all."""
        turn = _Turn(speech, noise)
        with self._changed:
            self._waiting.append(turn)
            self._changed.notify_all()
        while self._leads(turn):
            turns = self._next_turns()
            try:
                for waiting, frame in zip(turns, self._step(turns), strict=True):
                    waiting.frame.set_result(frame)
            except BaseException as error:  # raised in each thread, which waits for its frame
                for waiting in turns:
                    waiting.frame.set_exception(error)
            with self._changed:
                self._is_led = False
                self._changed.notify_all()
        return turn.frame.result()

    def _leads(self, turn: _Turn) -> bool:
        """Waits until the frame is there, or until this thread has to compute the next step."""
        with self._changed:
            self._changed.wait_for(lambda: turn.frame.done() or not self._is_led)
            if turn.frame.done():
                return False
            self._is_led = True
            return True

    def _next_turns(self) -> list[_Turn]:
        """Takes the turns of the next step, the oldest first."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) >= self._last, GATHER_S)
            turns = self._waiting[: len(self._rows)]
            del self._waiting[: len(turns)]
            self._last = len(turns)
        return turns

    def _step(self, turns: list[_Turn]) -> Sequence[Tensor]:
        with torch.inference_mode():
            self._speech.length.zero_()  # rows without a sentence must not reach the end
            rows = self._rows[: len(turns)]
            for row, noise, turn in zip(rows, self._noise, turns, strict=False):
                torch._foreach_copy_([*row, noise], [*turn.speech.row(0), turn.noise])
            frames = self._run()
            for row, turn in zip(rows, turns, strict=True):
                torch._foreach_copy_(turn.speech.row(0), row)
            return list(frames[: len(turns)].clone().split(1))


def _captured(step: Callable[[], Tensor], device: Any) -> Callable[[], Tensor]:
    """Returns the step as a CUDA graph, with the same tensors for each call."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        step()  # loads the kernels, which is impossible in a capture
    # "thread_local": other threads may be using another engine.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        frames = step()

    def replay() -> Tensor:
        graph.replay()
        return frames

    return replay


def gumbel(shape: tuple[int, int], temperature: float, top_k: int, random: Any) -> Tensor:
    """Draws the noise of the Gumbel-max trick, float32 [rows, codes]. Added to the logits of a row,
    sorted in falling order, it makes the largest one a sample (Maddison et al., "A* Sampling",
    2014). The noise is multiplied by the temperature instead of dividing logits."""
    noise = torch.empty(shape, device=random.device).exponential_(generator=random)
    noise.log_().mul_(-temperature)
    noise[:, top_k:] = -torch.inf
    return noise


def _chosen(logits: Tensor, noise: Tensor) -> Tensor:
    """Samples a code from each row of logits [rows, n]; returns int64 [rows, 1]."""
    likely, codes = logits[:, : noise.shape[-1]].float().sort(descending=True)
    return codes.gather(1, (likely + noise).argmax(1, keepdim=True))
