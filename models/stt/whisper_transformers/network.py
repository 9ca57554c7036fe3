"""Whisper of the transformers library, with the methods of CTranslate2's that the engine calls.

So one engine with one set of guards, and the words of one library, serve both.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from faster_whisper.tokenizer import _LANGUAGE_CODES
from tokenizers import Tokenizer
from transformers import (
    GenerationConfig,
    GenerationMixin,
    WhisperForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from models.audio import Pcm
from models.errors import EngineError, EngineLost
from models.stt.whisper_transformers.alignment import CrossAttention, align
from models.stt.whisper_transformers.features import LogMel

Tensor: TypeAlias = Any  # torch.Tensor; the library's types are not there in the CPU profile

SOT, NO_TIMESTAMPS, END = "<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>"
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")  # as it is called since large-v3, and before


@dataclass(frozen=True, slots=True)
class Generated:
    """One text, as CTranslate2 gives it."""

    sequences_ids: list[list[int]]  # without the prompt and the end
    scores: list[float]  # mean log probability over the tokens, of which the end is none
    no_speech_prob: float


@dataclass(frozen=True, slots=True)
class Aligned:
    text_token_probs: list[float]
    alignments: list[tuple[int, int]]  # of a token and a state of 20 ms


class TorchWhisper:
    """Weights on one device. Calls block, one at a time."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, device: str, dtype: str) -> None:
        """`device` as accelerate names places. Raises EngineError."""
        try:
            self._network: Any = WhisperForConditionalGeneration.from_pretrained(
                folder, dtype=getattr(torch, dtype), device_map=device, local_files_only=True
            ).eval()
        except (OSError, ValueError, RuntimeError) as error:
            raise EngineError(f"the model in {folder.name} cannot be loaded: {error}") from error
        self.device: str = self._network.device.type
        self._features = LogMel(self._network.config.num_mel_bins, self._network.device)
        marks = tokenizer.get_vocab()
        self._sot, self._end = marks[SOT], marks[END]
        self._first_time = marks[NO_TIMESTAMPS] + 1  # the marks of times have the last numbers
        self._no_speech = next(marks[name] for name in NO_SPEECH if name in marks)
        names = (f"<|{code}|>" for code in _LANGUAGE_CODES)
        self._languages: dict[str, int] = {name: marks[name] for name in names if name in marks}
        settings = self._network.generation_config
        self.is_multilingual: bool = getattr(settings, "is_multilingual", len(self._languages) > 1)
        # A text begins with neither.
        self._no_beginnings = [*tokenizer.encode(" ", add_special_tokens=False).ids, self._end]
        heads = getattr(settings, "alignment_heads", None)
        self._attention: Any = CrossAttention(self._network.model.decoder, heads)

    def close(self) -> None:
        """Gives the memory back, the GPU's too; calls that come later raise EngineLost."""
        self._network = self._attention = None
        gc.collect()  # the library's modules refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def encode(self, sounds: Sequence[Pcm]) -> list[Tensor]:
        """float32 [n] of at most 30 s each to [1500, width] each, of the whole window."""
        network = self._opened()
        with torch.inference_mode():
            heard = self._features(sounds).to(network.dtype)
            return list(network.model.encoder(heard).last_hidden_state)

    def detect_language(self, states: Tensor) -> list[list[tuple[str, float]]]:
        """For each of [n, 1500, width]: marks of languages with probabilities, likeliest first."""
        with torch.inference_mode():
            scores = self._next(states, [[self._sot]] * len(states))
            names, tokens = zip(*self._languages.items(), strict=True)
            shares = scores[:, list(tokens)].softmax(dim=-1).tolist()
        return [
            sorted(zip(names, row, strict=True), key=lambda one: one[1], reverse=True)
            for row in shares
        ]

    def generate(
        self,
        states: Tensor,
        prompts: Sequence[Sequence[int]],
        *,
        beam_size: int,
        max_length: int,
        suppress_tokens: Sequence[int],
        sampling_temperature: float = 0.0,
        **_always: object,
    ) -> list[Generated]:
        """Texts of [n, 1500, width] after prompts of one length; `max_length` is of both."""
        network = self._opened()
        given = len(prompts[0])
        sampled = sampling_temperature > 0
        times = range(self._first_time, network.config.vocab_size)
        forbidden = sorted({*suppress_tokens, *times} - {self._end})
        settings = GenerationConfig(
            max_new_tokens=max_length - given,
            num_beams=beam_size,
            do_sample=sampled,
            **({"temperature": sampling_temperature, "top_k": 0} if sampled else {}),
            suppress_tokens=forbidden,
            begin_suppress_tokens=self._no_beginnings,
            eos_token_id=self._end,
            pad_token_id=self._end,
            decoder_start_token_id=prompts[0][0],  # else the library would write it before
        )
        with torch.inference_mode():
            made = GenerationMixin.generate(  # Whisper's own cuts sounds up and decodes them again
                network,
                encoder_outputs=BaseModelOutput(last_hidden_state=states),
                decoder_input_ids=torch.tensor(prompts, device=states.device),
                generation_config=settings,
            )[:, given:].tolist()
            texts = [row[: row.index(self._end)] if self._end in row else row for row in made]
            return self._judged(states, prompts, texts, forbidden, longest=max_length - given)

    def _judged(
        self,
        states: Tensor,
        prompts: Sequence[Sequence[int]],
        texts: Sequence[list[int]],
        forbidden: Sequence[int],
        *,
        longest: int,
    ) -> list[Generated]:
        """How likely the texts are, by one look at each whole.

        While it generates, the library would give that with all scores of all steps, a gigabyte for
        a batch.
        """
        network = self._opened()
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
            said = [*text, self._end] if len(text) < longest else text
            scores = network.proj_out(row[given - 1 : given - 1 + len(said)]).float()
            scores[:, forbidden] = -torch.inf
            scores[0, self._no_beginnings] = -torch.inf
            places = torch.tensor(said, device=states.device)[:, None]
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
        """When the tokens of one text were said, from the decoder's attention."""
        [text] = texts
        before = [*sot_sequence, self._first_time - 1]
        tokens = torch.tensor([[*before, *text, self._end]], device=states.device)
        network = self._opened()
        with torch.inference_mode(), self._attention as weights:
            scores = network(
                encoder_outputs=BaseModelOutput(last_hidden_state=states), decoder_input_ids=tokens
            ).logits[0, len(before) - 1 : -2, : self._end]
            shares = scores.float().softmax(dim=-1).gather(1, tokens[0, len(before) : -1, None])
            # Of the rows those that say when a token begins, and when the last one ends.
            places = align(
                weights.taken(num_frames // 2)[:, len(sot_sequence) : -1], median_filter_width
            )
        return [Aligned(shares[:, 0].tolist(), places)]

    def _next(self, states: Tensor, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Scores of what follows the prompts, float32 [n, tokens]"""
        network = self._opened()
        decoded = network.model.decoder(
            input_ids=torch.tensor(prompts, device=states.device), encoder_hidden_states=states
        )
        return network.proj_out(decoded.last_hidden_state[:, -1]).float()

    def _opened(self) -> Any:
        if self._network is None:
            raise EngineLost("the model was unloaded")
        return self._network
