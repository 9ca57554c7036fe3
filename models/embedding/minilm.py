"""MiniLM sentence encoders in ONNX: BERT with six layers, trained on pairs of like sentences. Wang
et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained
Transformers" (2020); https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2."""

from base64 import b64decode
from collections.abc import Generator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from configs.schema.models.embedding import MiniLMConfig
from models.embedding.base import (
    MOST_TOKEN_BYTES,
    MOST_TOKENS,
    EmbeddingCapabilities,
    EmbeddingEngine,
    EmbeddingInput,
    EmbeddingRequest,
    Embeddings,
)
from models.errors import ContextLengthExceeded, InvalidEngineRequest
from models.runtimes.onnx import open_session
from models.weights.store import WeightStore

BATCH_INPUTS = 32
BATCH_TOKENS = 2048  # more only for a single input: a batch takes under a second of a core
RUN_WINDOWS = 8  # windows of like length, which are padded to the longest


class MiniLMEngine(EmbeddingEngine):
    """A MiniLM encoder. A longer input gets the mean of its windows, weighted by their tokens."""

    def __init__(self, config: MiniLMConfig, weights: WeightStore) -> None:
        graph = weights.converted(config.artefact)["encoder.onnx"]
        tokenizer = weights.folder(config.artefact) / "tokenizer.json"
        self._session = open_session(graph, config.threads)
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._marks: list[int] = self._tokenizer.encode("").ids  # [CLS] and [SEP]
        self._window = config.window_tokens - 2
        self._pieces = _read_pieces(weights.folder(config.vocabulary) / "cl100k_base.tiktoken")
        (output,) = self._session.get_outputs()
        self.capabilities = EmbeddingCapabilities(
            dimensions=output.shape[1], languages=config.languages, max_concurrency=2
        )

    def embed(self, request: EmbeddingRequest) -> Generator[Embeddings, None, None]:
        batch: list[list[int]] = []
        tokens = 0
        for number, item in enumerate(request.inputs):
            text = item if isinstance(item, str) else self._text_of(item)
            # A word of over 100 letters is one token here, so its bytes count, too.
            count = -(-len(text.encode()) // MOST_TOKEN_BYTES)
            if count <= MOST_TOKENS:
                ids = self._tokenizer.encode(text, add_special_tokens=False).ids
                count = max(count, len(ids))
            if count > MOST_TOKENS:
                raise ContextLengthExceeded(
                    f"input {number} takes {count} tokens; the model takes {MOST_TOKENS}"
                )
            is_full = len(batch) == BATCH_INPUTS or sum(map(len, batch), len(ids)) > BATCH_TOKENS
            if batch and is_full:
                yield Embeddings(self._vectors(batch), tokens)
                batch = []
                tokens = 0
            batch.append(ids)
            tokens += count
        if batch:
            yield Embeddings(self._vectors(batch), tokens)

    def _text_of(self, ids: EmbeddingInput) -> str:
        """Decode token ids; a character that they cut is left out. Raises InvalidEngineRequest."""
        try:
            return b"".join([self._pieces[int(token)] for token in ids]).decode(errors="ignore")
        except KeyError as error:
            message = f"input: {error} is not a token id of cl100k_base; send the text instead"
            raise InvalidEngineRequest(message) from None

    def _vectors(self, batch: list[list[int]]) -> NDArray[np.float32]:
        windows = [
            (row, ids[start : start + self._window])
            for row, ids in enumerate(batch)
            for start in range(0, max(1, len(ids)), self._window)
        ]
        windows.sort(key=lambda window: len(window[1]))
        sums = np.zeros((len(batch), self.capabilities.dimensions), np.float32)
        for start in range(0, len(windows), RUN_WINDOWS):
            run = windows[start : start + RUN_WINDOWS]
            tokens = np.zeros((len(run), len(run[-1][1]) + 2), np.int64)
            mask = np.zeros(tokens.shape, np.float32)
            for place, (_, ids) in enumerate(run):
                tokens[place, : len(ids) + 2] = [self._marks[0], *ids, self._marks[1]]
                mask[place, : len(ids) + 2] = 1
            (vectors,) = self._session.run(None, {"tokens": tokens, "mask": mask})
            for (row, ids), vector in zip(run, vectors, strict=True):
                sums[row] += max(1, len(ids)) * vector
        return np.asarray(sums / np.linalg.norm(sums, axis=1, keepdims=True))


def _read_pieces(path: Path) -> dict[int, bytes]:
    """Read the bytes of each token: a line has them in base64, and the token's id."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {int(token): b64decode(piece) for piece, token in lines}
