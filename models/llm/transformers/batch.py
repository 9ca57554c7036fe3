"""Language model of the transformers library with its continuous batching."""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    ContinuousBatchingConfig,
    GenerationConfig,
)
from transformers.generation.continuous_batching.continuous_api import OutputRouter
from transformers.generation.continuous_batching.requests import RequestStatus

from configs.schema.models.llm import TransformersChatConfig
from models.batch_limit import BatchLimit
from models.device import is_out_of_memory
from models.errors import EngineError, EngineLost
from models.llm.token_engine import Step, TokenBatch, TokenRequest, TokenStream
from models.llm.transformers.sampler import BatchSampler, TokenSampler, to_processor_list
from models.memory import give_back

POLL_S = 2.0  # how often a stream without output checks that the loop is alive
STOP_S = 10.0  # timeout for the loop to end; a step takes less
PADDED_TOKENS = 4096  # for CUDA graphs, the cached tokens of a step are padded to a multiple
SALTED = 3  # first tokens of a prompt that carry the cache salt, 31 bits each
_SALT_MASK = 2**31 - 1


class BatchStream(TokenStream):
    def __init__(self, owner: str, batch: "StreamBatch", sampler: TokenSampler) -> None:
        super().__init__()
        self.owner = owner
        self._batch = batch
        self._sampler = sampler
        self._received = 0  # tokens
        self._ended = False

    def receive(self, output: Any) -> None:
        """Passes on the new tokens of an output, which has all so far; in the library's thread."""
        self._ended = output.error is not None or output.is_finished()
        tokens = tuple(output.generated_tokens[self._received :])
        self._received += len(tokens)
        if output.error is not None:
            self.push(EngineLost(f"the model stopped: {output.error}"))
        elif self._ended and self._sampler.failed is not None:
            failure = f"the answer could not be constrained: {self._sampler.failed}"
            self.push(EngineError(failure))
        else:
            self.push(Step(tokens, self._ended))

    def close(self) -> None:
        self._batch.forget(self, stop=not self._ended)

    async def _next(self) -> Step | EngineError:
        while True:
            try:
                async with asyncio.timeout(POLL_S):
                    return await self._ready.get()
            except TimeoutError:
                if not self._batch.works():
                    return EngineLost("the model stopped")


class StreamBatch(TokenBatch):
    """Model on a device with its batched streams."""

    def __init__(self, folder: Path, config: TransformersChatConfig, tokenizer: Any) -> None:
        """Raises EngineError."""
        self._router = _Router()
        self._starting = threading.Lock()
        self._model: Any = load_model(folder, config)
        network = self._model.config.get_text_config()
        longest = network.max_position_embeddings
        if config.context_tokens > longest:
            raise EngineError(f"the context of {config.id!r} holds {longest} tokens at most")
        self.size = network.vocab_size
        self.device = self._model.device.type
        self.ends = _end_tokens(self._model, tokenizer)
        rows = min(config.parallel, config.batch_tokens)
        samplers = BatchSampler(rows, self.size, self.ends, self._model.device)
        try:
            self._manager = self._begin(config, samplers, rows)
        except (MemoryError, RuntimeError, ValueError) as error:
            raise EngineError(f"no memory for the cache of {config.id!r}: {error}") from error

    def submit(self, request: TokenRequest) -> BatchStream:
        manager = self._running()
        sampler = TokenSampler(request.sampling, request.constraint)
        stream = BatchStream(request.owner, self, sampler)
        self._router.streams[stream.id] = stream
        accepted = manager.add_request(
            list(request.prompt),
            request_id=stream.id,
            max_new_tokens=request.most_tokens,
            streaming=True,
            eos_token_id=list(self.ends),
            sampler=sampler,
        )
        if accepted is None:
            self.forget(stream, stop=False)
            raise EngineLost("the model is stopping")
        return stream

    def forget(self, stream: BatchStream, *, stop: bool) -> None:
        self._router.streams.pop(stream.id, None)
        if stop and self._model is not None:
            self._manager.cancel_request(stream.id)

    def works(self) -> bool:
        return self._model is not None and self._manager.is_running()

    def close(self) -> None:
        with self._starting:
            if self._model is None:
                return
            if self._manager.is_running():
                self._manager.stop(block=True, timeout=STOP_S, hard_stop=True)
            self._model = self._manager = None
        give_back()  # the library's modules refer to each other

    def _begin(self, config: TransformersChatConfig, samplers: BatchSampler, rows: int) -> Any:
        # With a model of 3 B in NF4 on an H100 (benchmarks/gpu.md), 1, 8 and 64 streams get 52, 352
        # and 1,355 tokens/s by CUDA graphs of padded steps, and 23, 81 and 502 without.
        devices = set(getattr(self._model, "hf_device_map", {}).values())
        manager = self._model.init_continuous_batching(
            # Greedy, since the sampler leaves one token likelier than all others.
            generation_config=GenerationConfig(do_sample=False, eos_token_id=list(self.ends)),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=config.page_tokens,
                num_blocks=-(-config.cache_tokens // config.page_tokens),
                max_batch_tokens=config.batch_tokens,
                max_requests_per_batch=rows,
                max_memory_percent=0.95,  # an upper limit only: the cache size is set above
                allow_block_sharing=config.share_prefixes,
                use_async_batching=False,  # a sampler needs the previous token
                use_cuda_graph=self._model.device.type == "cuda" and len(devices) <= 1,
                kv_padding_interval_size=PADDED_TOKENS,
                auto_switch_to_flash=False,  # it would fetch code from the hub
            ),
        )
        manager.logit_processor = to_processor_list(samplers)
        manager.output_router = self._router
        manager.warmup()  # allocates, so that a lack of memory is an error at start
        salt_cache_keys(manager.batch_processor.cache, self._router.owner)
        repeat_without_memory(manager.batch_processor, BatchLimit())
        _start(manager)
        return manager

    def _running(self) -> Any:
        """Returns the manager; restarts it when an error, such as no memory, has ended its loop."""
        with self._starting:
            if self._model is None:
                raise EngineLost("the model was unloaded")
            manager = self._manager
            if manager.background_thread_status.can_accept_new_requests() is not None:
                manager.join(time.perf_counter(), timeout=STOP_S)  # its loop is about to end
            if not manager.is_running():
                _start(manager)
            return manager


def load_model(folder: Path, config: TransformersChatConfig) -> Any:
    """Loads the network on the devices that accelerate chooses. Raises EngineError."""
    dtype = getattr(torch, config.dtype)
    quantization = None
    if config.quantization == "nf4":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            device_map=config.device,
            quantization_config=quantization,
            attn_implementation=config.attention,
            local_files_only=True,
            gguf_file=config.gguf_file,
        ).eval()
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise EngineError(f"the model of {config.id!r} cannot be loaded: {error}") from error


class _Router(OutputRouter):
    """Router of outputs to streams; the library's own keeps outputs without a consumer."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, BatchStream] = {}

    def owner(self, request_id: str) -> str:
        """Returns the owner of a stream; a cancelled stream is its own owner."""
        stream = self.streams.get(request_id)
        return request_id if stream is None else stream.owner

    def deliver(self, output: Any) -> None:
        if stream := self.streams.get(output.request_id):
            stream.receive(output)

    def deliver_batch(self, outputs: list[Any]) -> None:
        for output in outputs:
            self.deliver(output)


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Tokens that end an answer, by the settings of the model and of the tokenizer."""
    named = model.generation_config.eos_token_id
    ends = {tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])}
    return tuple(sorted(token for token in ends if token is not None))


def _start(manager: Any) -> None:
    """Starts the loop from a daemon thread, whose daemon flag the loop's thread inherits."""
    starter = threading.Thread(target=manager.start, name="generate", daemon=True)
    starter.start()
    starter.join()


def repeat_without_memory(processor: Any, limit: BatchLimit) -> None:
    """Repeats a step that runs out of memory, with half of its tokens. The library would fail all
    requests. Here a request fails only if a single token of it runs out of memory. `limit` bounds
    the tokens of a step."""
    step = processor._generation_step
    most = processor.max_batch_tokens

    def step_within_memory(model: Any) -> None:
        processor.max_batch_tokens = limit.of(most)
        try:
            step(model)
            return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failure = RuntimeError(str(error))  # without the frames, which hold tensors
        give_back()
        batch = processor.inputs_and_outputs
        tokens = sum(request.query_length for request in batch.requests_in_batch)
        if tokens == 1:
            processor.handle_batch_error(failure)
            limit.lift()
        else:
            limit.shrink(tokens)
            for request in batch.requests_in_batch:
                _undo_step(request)
        processor.max_batch_tokens = limit.of(most)
        batch.requests_in_batch = []  # the library updates none of them

    processor._generation_step = step_within_memory


def _undo_step(request: Any) -> None:
    """Makes a request of a failed step read the tokens of that step again."""
    state = request.state
    state.position_offset -= request.query_length
    tokens = [*state.initial_tokens, *state.generated_tokens]
    state.remaining_prefill_tokens = tokens[state.position_offset :]
    state.status = RequestStatus.PREFILLING  # of one token, for a request that is generating


def salt_cache_keys(cache: Any, owner_of: Callable[[str], str]) -> None:
    """Salts the prefix cache: its pages are reused only for requests of the same owner.

    The library's key of a page is a hash of its tokens and of the page before it, so a client could
    find out by the time to the first token whether another tenant has sent the same prompt (a
    timing side channel; vLLM has `cache_salt` against it). Here the first hashed tokens, and thus
    the keys of all pages, include a hash of the owner, which `owner_of` finds by the id of a
    request.
    """
    search = cache.search_prefix_match

    def search_salted(request_id: str, prompt_ids: list[int]) -> int:
        length: int = search(request_id, salted(prompt_ids, owner_of(request_id)))
        return length

    cache.search_prefix_match = search_salted
    for allocator in cache.cache_allocators.values():
        allocator.mark_complete_blocks = _salting(allocator.mark_complete_blocks, owner_of)


def salted(tokens: list[int], owner: str) -> list[int]:
    """Returns tokens with the owner's salt, as they are hashed."""
    digest = hashlib.sha256(owner.encode()).digest()
    salts = [int.from_bytes(digest[4 * at : 4 * at + 4]) & _SALT_MASK for at in range(SALTED)]
    return [*(token ^ salt for token, salt in zip(tokens, salts, strict=False)), *tokens[SALTED:]]


def _salting(
    mark: Callable[[str, list[int], int], None], owner_of: Callable[[str], str]
) -> Callable[[str, list[int], int], None]:
    def mark_salted(request_id: str, token_ids: list[int], new_new_blocks: int) -> None:
        mark(request_id, salted(token_ids, owner_of(request_id)), new_new_blocks)

    return mark_salted
