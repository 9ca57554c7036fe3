"""When tokens were said, from where the decoder of Whisper looks while it writes them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from transformers.models.whisper.generation_whisper import (
    _dynamic_time_warping,
    _median_filter,
)

Tensor: TypeAlias = Any  # torch.Tensor; the library's types are not there in the CPU profile


class CrossAttention:
    """Inside `with`, remembers what the heads that follow the speech look at.

    The library shows weights only with its slowest attention; from the inputs of a layer they are
    computed again for the few heads that matter.
    """

    def __init__(self, decoder: Any, heads: Sequence[Sequence[int]] | None) -> None:
        """`heads` are pairs of a layer and a head; by default those of the upper half."""
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
        """Weights over the first `states` states, float32 [heads, tokens, states]"""
        return torch.stack([self._seen[layer][head, :, :states] for layer, head in self._heads])

    def _remember(self, layer: int) -> Any:
        module = self._layers[layer]

        def look(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            heard = args[1] if len(args) > 1 else kwargs["key_value_states"]
            queries = _by_head(module, module.q_proj(hidden[0]) * module.scaling)
            keys = _by_head(module, module.k_proj(heard[0]))
            self._seen[layer] = (queries @ keys.transpose(1, 2)).float()

        return look


def align(scores: Tensor, filter_width: int) -> list[tuple[int, int]]:
    """Pairs of a token and a state on the likeliest way through [heads, tokens, states]."""
    weights = scores.softmax(dim=-1)
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    smooth = _median_filter((weights - mean) / deviation.clamp(min=1e-12), filter_width)
    tokens, states = _dynamic_time_warping(-smooth.mean(dim=0).double().cpu().numpy())
    return list(zip(tokens.tolist(), states.tolist(), strict=True))


def _by_head(module: Any, values: Tensor) -> Tensor:
    """[n, width] -> [heads, n, width of a head]"""
    return values.view(len(values), module.num_heads, module.head_dim).transpose(0, 1)
