"""Whisper of the transformers library, with the interface of CTranslate2's Whisper. So both share
the engine, the guards and the implementation of word times. `CrossAttention` records the decoder's
attention for word times."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from faster_whisper.tokenizer import _LANGUAGE_CODES
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    StoppingCriteriaList,
    WhisperForConditionalGeneration,
    WhisperTimeStampLogitsProcessor,
)
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.whisper.generation_whisper import _median_filter

from models.audio import Pcm
from models.errors import EngineError
from models.memory import LoadedNetwork, still_loaded
from models.stt.whisper.calls import Aligned, CallAbandoned, Generated
from models.stt.whisper_cuda.log_mel import LogMel

Tensor: TypeAlias = torch.Tensor


class CrossAttention:
    """Recorder, inside `with`, of the attention weights of the heads that align text with speech.
    The library returns weights only with its slowest attention, so they are recomputed from the
    inputs of a layer for the few heads that matter."""

    def __init__(self, decoder: Any, heads: Sequence[Sequence[int]] | None) -> None:
        """`heads` are pairs (layer, head); by default all heads of the upper half."""
        layers = decoder.layers
        if not heads:
            count = layers[0].encoder_attn.num_heads
            upper = range(len(layers) // 2, len(layers))
            heads = [(layer, head) for layer in upper for head in range(count)]
        self._heads = [(int(layer), int(head)) for layer, head in heads]
        self._layers = {layer: layers[layer].encoder_attn for layer, _ in self._heads}
        self._seen: dict[int, Tensor] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> "CrossAttention":
        for layer, module in self._layers.items():
            self._hooks.append(
                module.register_forward_pre_hook(self._remember(layer), with_kwargs=True)
            )
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._seen.clear()

    def taken(self, states: int) -> Tensor:
        """Returns weights over the first `states` states, float32 [heads, tokens, states]."""
        return torch.stack([self._seen[layer][head, :, :states] for layer, head in self._heads])

    def _remember(self, layer: int) -> Any:
        module = self._layers[layer]

        def look(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            encoded = args[1] if len(args) > 1 else kwargs["key_value_states"]
            queries = _by_head(module, module.q_proj(hidden[0]) * module.scaling)
            keys = _by_head(module, module.k_proj(encoded[0]))
            self._seen[layer] = (queries @ keys.transpose(1, 2)).float()

        return look


def align(scores: Tensor, filter_width: int) -> list[tuple[int, int]]:
    """Finds pairs (token, state) on the likeliest path through [heads, tokens, states]."""
    weights = scores.softmax(dim=-1)
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    smooth = _median_filter((weights - mean) / deviation.clamp(min=1e-12), filter_width)
    return likeliest_path(-smooth.mean(dim=0).double().cpu().numpy())


def likeliest_path(costs: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Finds the cheapest path through `costs`, as pairs (row, column): dynamic time warping. Steps
    go to the next row, column or both. It computes whole diagonals, whose cells do not depend on
    each other: 100 tokens in 30 s take 0.02 s, and 0.13 s with the library's function, which goes
    from cell to cell with the same result."""
    rows, columns = costs.shape
    width = columns + 1
    total = np.full((rows + 1) * width, np.inf, np.float32)
    total[0] = 0.0
    steps = np.full((rows + 1) * width, LEFT, np.int8)
    steps[::width] = UP
    given = np.ascontiguousarray(costs).ravel()
    for diagonal in range(2, rows + columns + 1):
        first, count = max(1, diagonal - columns), min(rows, diagonal - 1)
        count -= first - 1
        begin = first * width + diagonal - first

        def cells(back: int, begin: int = begin, count: int = count) -> slice:
            return slice(begin - back, begin - back + (count - 1) * columns + 1, columns)

        both, up, left = total[cells(width + 1)], total[cells(width)], total[cells(1)]
        is_both, is_up = (both < up) & (both < left), (up < both) & (up < left)
        start, apart = (first - 1) * columns + diagonal - first - 1, max(1, columns - 1)
        own = given[start : start + (count - 1) * apart + 1 : apart]
        total[cells(0)] = own + np.where(is_both, both, np.where(is_up, up, left))
        steps[cells(0)] = np.where(is_both, BOTH, np.where(is_up, UP, LEFT))
    way, row, column = [], rows, columns
    while row or column:
        way.append((row - 1, column - 1))
        step = steps[row * width + column]
        row, column = row - (step != LEFT), column - (step != UP)
    return way[::-1]


def _by_head(module: Any, values: Tensor) -> Tensor:
    """Reshapes [n, width] to [heads, n, width of a head]."""
    return values.view(len(values), module.num_heads, module.head_dim).transpose(0, 1)


BOTH, UP, LEFT = 0, 1, 2  # direction from which the cheapest path reaches a cell
SOT, NO_TIMESTAMPS, END = "<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>"
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")  # the names since large-v3, and before


class TorchWhisper(LoadedNetwork):
    """Whisper network on one device; its calls run one at a time."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, device: str, dtype: str) -> None:
        """`device` in accelerate's notation. Raises EngineError."""
        try:
            self._network = WhisperForConditionalGeneration.from_pretrained(
                folder, dtype=getattr(torch, dtype), device_map=device, local_files_only=True
            ).eval()
        except (OSError, ValueError, RuntimeError) as error:
            raise EngineError(f"the model in {folder.name} cannot be loaded: {error}") from error
        self.device: str = self._network.device.type
        # cuDNN's attention prepares each new length, and each token makes one. On an H100 with
        # Whisper base the first four windows take 1.5 s without it and 8.0 s with it; a text longer
        # than any before takes 1.0 s and 3.7 s.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self._features = LogMel(self._network.config.num_mel_bins, self._network.device)
        marks = tokenizer.get_vocab()
        self._sot, self._end = marks[SOT], marks[END]
        self._first_time = marks[NO_TIMESTAMPS] + 1  # timestamp tokens have the last ids
        self._no_speech = next(marks[name] for name in NO_SPEECH if name in marks)
        names = (f"<|{code}|>" for code in _LANGUAGE_CODES)
        self._languages: dict[str, int] = {name: marks[name] for name in names if name in marks}
        settings = self._network.generation_config
        self.is_multilingual: bool = getattr(settings, "is_multilingual", len(self._languages) > 1)
        # Tokens that cannot begin a text: a space and the end.
        self._no_beginnings = [*tokenizer.encode(" ", add_special_tokens=False).ids, self._end]
        heads = getattr(settings, "alignment_heads", None)
        self._attention: Any = CrossAttention(self._network.model.decoder, heads)

    def close(self) -> None:
        self._attention = None
        super().close()

    def encode(self, sounds: Sequence[Pcm]) -> list[Tensor]:
        """Encodes signals, float32 [n] of at most 30 s, to [1500, width] each."""
        network = self._loaded()
        with torch.inference_mode():
            features = self._features(sounds).to(network.dtype)
            return list(network.model.encoder(features).last_hidden_state)

    def stack(self, states: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(states))

    def detect_language(self, states: Tensor) -> list[list[tuple[str, float]]]:
        """Detects languages of [n, 1500, width]: tokens with probabilities, likeliest first."""
        with torch.inference_mode():
            network = self._loaded()
            start = torch.tensor([[self._sot]] * len(states), device=states.device)
            decoded = network.model.decoder(input_ids=start, encoder_hidden_states=states)
            scores = network.proj_out(decoded.last_hidden_state[:, -1]).float()
            names, tokens = zip(*self._languages.items(), strict=True)
            shares = scores[:, list(tokens)].softmax(dim=-1).tolist()
        return [
            sorted(zip(names, row, strict=True), key=lambda pair: pair[1], reverse=True)
            for row in shares
        ]

    def generate(
        self,
        states: Tensor,
        prompts: Sequence[Sequence[int]],
        *,
        is_wanted: Callable[[], bool],
        beam_size: int,
        max_length: int,
        suppress_tokens: Sequence[int],
        sampling_temperature: float = 0.0,
        **_always: object,
    ) -> list[Generated]:
        """Generates texts of [n, 1500, width] after prompts of the same length. `max_length`
        includes the prompt; a text has at most half of it, as with CTranslate2. Raises
        CallAbandoned at the first token after `is_wanted` is false."""
        network = self._loaded()
        given = len(prompts[0])
        longest = min(max_length // 2, max_length - given)
        sampled = sampling_temperature > 0
        plain = self._first_time - 1 in prompts[0]
        times = range(self._first_time, network.config.vocab_size) if plain else ()
        forbidden = sorted({*suppress_tokens, *times} - {self._end})
        settings = GenerationConfig(
            max_new_tokens=longest,
            num_beams=beam_size,
            do_sample=sampled,
            **({"temperature": sampling_temperature, "top_k": 0} if sampled else {}),
            suppress_tokens=forbidden,
            begin_suppress_tokens=self._no_beginnings,
            eos_token_id=self._end,
            pad_token_id=self._end,
            decoder_start_token_id=prompts[0][0],  # keeps the library from prepending its own
            no_timestamps_token_id=self._first_time - 1,
        )

        def stop_abandoned(tokens: Tensor, _scores: Tensor, **_arguments: object) -> Tensor:
            if not is_wanted():
                raise CallAbandoned
            return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)

        rules = [] if plain else [WhisperTimeStampLogitsProcessor(settings, begin_index=given)]
        with torch.inference_mode():
            generated = GenerationMixin.generate(  # Whisper's own method splits audio
                network,
                encoder_outputs=BaseModelOutput(last_hidden_state=states),
                decoder_input_ids=torch.tensor(prompts, device=states.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList(rules),
                stopping_criteria=StoppingCriteriaList([stop_abandoned]),
            )[:, given:].tolist()
            texts = [row[: row.index(self._end)] if self._end in row else row for row in generated]
            return self._scored(states, prompts, texts, forbidden, longest=longest)

    def _scored(
        self,
        states: Tensor,
        prompts: Sequence[Sequence[int]],
        texts: Sequence[list[int]],
        forbidden: Sequence[int],
        *,
        longest: int,
    ) -> list[Generated]:
        """Computes the probabilities of texts in one pass of the decoder. During generation the
        library returns them only with all logits of all steps, a gigabyte per batch."""
        network = self._loaded()
        size = max(map(len, texts)) + 1
        rows = [
            [*prompt, *text, *[self._end] * (size - len(text))]
            for prompt, text in zip(prompts, texts, strict=True)
        ]
        hidden = network.model.decoder(
            input_ids=torch.tensor(rows, device=states.device), encoder_hidden_states=states
        ).last_hidden_state
        given, begin = len(prompts[0]), list(prompts[0]).index(self._sot)
        judged = []
        for row, text in zip(hidden, texts, strict=True):
            scored = [*text, self._end] if len(text) < longest else text
            scores = network.proj_out(row[given - 1 : given - 1 + len(scored)]).float()
            scores[:, forbidden] = -torch.inf
            scores[0, self._no_beginnings] = -torch.inf
            places = torch.tensor(scored, device=states.device)[:, None]
            total = float(scores.log_softmax(dim=-1).gather(1, places).sum())
            silent = network.proj_out(row[begin]).float().softmax(dim=-1)[self._no_speech]
            judged.append(Generated([text], [total / max(1, len(text))], float(silent)))
        return judged

    def align(
        self,
        states: Tensor,
        sot_sequence: Sequence[int],
        texts: Sequence[Sequence[int]],
        num_frames: int,
        *,
        median_filter_width: int,
    ) -> list[Aligned]:
        """Finds the times of the tokens of a text from the decoder's attention."""
        [text] = texts
        before = [*sot_sequence, self._first_time - 1]
        tokens = torch.tensor([[*before, *text, self._end]], device=states.device)
        network = self._loaded()
        with torch.inference_mode(), still_loaded(self._attention) as weights:
            scores = network(
                encoder_outputs=BaseModelOutput(last_hidden_state=states), decoder_input_ids=tokens
            ).logits[0, len(before) - 1 : -2, : self._end]
            shares = scores.float().softmax(dim=-1).gather(1, tokens[0, len(before) : -1, None])
            # These rows give the beginning of each token and the end of the last one.
            rows = weights.taken(num_frames // 2)[:, len(sot_sequence) : -1]
            return [Aligned(shares[:, 0].tolist(), align(rows, median_filter_width))]
