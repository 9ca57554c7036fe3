"""Samples the next token of each stream of a batch, by the Gumbel-max trick (exponential form).

The library's continuous batching has a temperature, a top-k and a top-p for each request, but a
single random number generator for all. Here one logits processor applies all sampling options and
leaves a single token likelier than the rest, which the library then takes: each request has its own
generator, so that a seeded answer does not depend on the other requests of the batch.
"""

import logging
import secrets
from collections import Counter
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers.generation.continuous_batching.cb_logits_processors import (
    ContinuousBatchingLogitsProcessor,
    ContinuousBatchingLogitsProcessorList,
)
from transformers.generation.logits_process import LogitsProcessorList

from models.llm.base import SamplingOptions
from models.llm.structured_output.constrained import ConstrainedAnswer
from models.llm.token_engine import SEEDS

logger = logging.getLogger(__name__)

Tensor: TypeAlias = torch.Tensor

SMALLEST_NOISE = 1e-20  # a noise of 0 would select the unlikeliest token


class TokenSampler:
    """Sampling options and state of one stream. Used by the library's thread alone."""

    def __init__(self, sampling: SamplingOptions, answer: ConstrainedAnswer | None) -> None:
        self.sampling = sampling
        self.failed: str | None = None  # the error that ends the stream
        self._seed = secrets.randbelow(SEEDS) if sampling.seed is None else sampling.seed
        self._matcher = None if answer is None else answer.matcher
        self._random: Any = None
        self._drawn: tuple[int, Any] = -1, None  # last token drawn, and the state before it
        self._seen = 0  # tokens that `_counts` and `_matcher` have consumed
        self._counts: Counter[int] = Counter()

    def __deepcopy__(self, memo: dict[int, Any]) -> "TokenSampler":
        """Returns itself: the library copies its arguments when it restarts a stream."""
        return self

    def random(self, device: Any, token: int) -> Any:
        """Returns the generator to draw token number `token`; a repeated step draws the same."""
        if self._random is None:
            self._random = torch.Generator(device).manual_seed(self._seed)
        if self._drawn[0] == token:
            self._random.set_state(self._drawn[1])
        self._drawn = token, self._random.get_state()
        return self._random

    def follow(self, generated: list[int]) -> None:
        """Consumes the tokens that were generated since the last call."""
        new = generated[self._seen :]
        self._seen = len(generated)
        self._counts.update(new)
        if self._matcher is not None and new and not self._matcher.consume_tokens(new):
            self.failed = self._matcher.get_error() or "the answer left its grammar"

    def penalties(self) -> dict[int, float]:
        """Amounts to subtract from the logits of tokens that were generated before."""
        presence = self.sampling.presence_penalty
        frequency = self.sampling.frequency_penalty
        if not (presence or frequency):
            return {}
        return {token: presence + frequency * count for token, count in self._counts.items()}

    def allowed(self, size: int) -> Any | None:
        """Mask of the tokens that are allowed next, bool [size]; None when all are."""
        if self._matcher is None:
            return None
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            self.failed = self._matcher.get_error()
        allowed = np.zeros(size, bool)
        mask = np.unpackbits(bits, bitorder="little")[:size]
        allowed[: len(mask)] = mask
        return allowed


class BatchSampler(ContinuousBatchingLogitsProcessor):
    """Logits processor that chooses the next token of each stream by its own TokenSampler."""

    supported_kwargs = {"sampler": TokenSampler}
    ignored_kwargs = ()

    def __init__(self, rows: int, size: int, ends: tuple[int, ...], device: Any) -> None:
        """Allocates rows for `rows` streams and `size` tokens, of which `ends` end an answer."""
        self._ends = list(ends)
        # A CUDA graph reads tensors at fixed addresses. temperature, top-k, top-p, min-p:
        self._settings = torch.ones(rows, 4, device=device)
        self._bias = torch.zeros(rows, size, device=device)
        self._biased = [False] * rows
        self._samplers: list[TokenSampler | None] = [None] * rows
        self._noise = torch.ones(rows, size, device=device)

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Fills the rows before each step. An exception here would end every stream."""
        for row, request in enumerate(requests_with_new_token):
            sampler = request.state.logit_processor_kwargs.get("sampler")
            if sampler is not None:  # None while the library warms up
                self._fill(row, sampler, _generated(request.state))
        return torch.zeros(len(requests_with_new_token), dtype=torch.int32)

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """Samples from scores, float32 [n, size]; returns 1 at the sampled tokens, 0 elsewhere."""
        rows = len(scores)
        temperature, top_k, top_p, min_p = self._settings[:rows].unsqueeze(2).unbind(1)
        likely, tokens = ((scores + self._bias[:rows]) / temperature).sort(dim=-1, descending=True)
        rank = torch.arange(likely.shape[1], device=likely.device)
        shares = likely.masked_fill(rank >= top_k, -torch.inf).softmax(dim=-1)
        before = shares.cumsum(dim=-1) - shares
        kept = (before < top_p) & (shares >= min_p * shares[:, :1]) | (rank == 0)
        noise = self._noise[:rows].gather(1, tokens)
        drawn = torch.where(kept, shares / noise, -1.0).argmax(dim=-1, keepdim=True)
        return torch.zeros_like(scores).scatter_(1, tokens.gather(1, drawn), 1.0)

    def _fill(self, row: int, sampler: TokenSampler, tokens: list[int]) -> None:
        if self._biased[row]:
            self._bias[row].zero_()
            self._biased[row] = False
        try:
            sampler.follow(tokens)
            self._mask(row, sampler)
        except Exception as error:  # an error must end only this stream
            logger.exception("sampling_failed")
            sampler.failed = f"{type(error).__name__}: {error}"
        if sampler.failed is not None:
            self._force_end(row)
        if self._samplers[row] is not sampler:
            self._set(row, sampler.sampling)
            self._samplers[row] = sampler
        if sampler.sampling.temperature:
            random = sampler.random(self._noise.device, len(tokens))
            noise = self._noise[row].exponential_(generator=random)
            noise.clamp_(min=SMALLEST_NOISE)

    def _set(self, row: int, sampling: SamplingOptions) -> None:
        greedy = not sampling.temperature
        every = self._noise.shape[1]
        self._settings[row] = torch.tensor(
            [
                1.0 if greedy else sampling.temperature,
                1 if greedy else sampling.top_k or every,
                sampling.top_p,
                sampling.min_p,
            ]
        )

    def _mask(self, row: int, sampler: TokenSampler) -> None:
        bias = self._bias[row]
        if penalties := sampler.penalties():
            self._biased[row] = True
            tokens = torch.tensor(list(penalties), device=bias.device)
            bias[tokens] -= torch.tensor(list(penalties.values()), device=bias.device)
        allowed = sampler.allowed(len(bias))
        if allowed is not None:
            self._biased[row] = True
            bias.masked_fill_(~torch.from_numpy(allowed).to(bias.device), -torch.inf)

    def _force_end(self, row: int) -> None:
        self._biased[row] = True
        self._bias[row].fill_(-torch.inf)
        self._bias[row, self._ends] = 0.0


def to_processor_list(processor: BatchSampler) -> Any:
    """Wraps the sampler in the library's own type of list."""
    processors = ContinuousBatchingLogitsProcessorList(LogitsProcessorList([processor]))
    processors.tensors_required = 1
    return processors


def _generated(state: Any) -> list[int]:
    """Tokens of the answer; after a restart the library has some of them in the prompt."""
    tokens: list[int] = state.generated_tokens
    if state._true_initial_tokens:
        return [*state.initial_tokens[state._true_initial_tokens :], *tokens]
    return tokens
