"""GGUF language models on llama.cpp, with continuous batching, inside this process."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from configs.environment import cores
from configs.load import CONFIGS_DIR
from configs.schema.models.llm import GgufConfig, LlamaCppConfig
from models.errors import (
    ContextLengthExceeded,
    EngineError,
    EngineLost,
    EngineOverloaded,
    InvalidEngineRequest,
    UnsupportedFeature,
)
from models.llm.answer_reader import AnswerReader
from models.llm.base import (
    ChatCapabilities,
    ChatEngine,
    FinishReason,
    GenerationDelta,
    GenerationRequest,
    TokenUsage,
)
from models.llm.gguf import CACHE_BYTES, fitted, read_draft, read_gguf
from models.llm.kept_chats import FOLDER, KeptChats
from models.llm.prompt_queue import LongPrompt, PromptQueue
from models.llm.slots import Slots
from models.llm.structured_output.answer import (
    answer_grammar,
    cached_grammar,
    is_constrained_throughout,
    is_json_or_calls,
)
from models.llm.structured_output.ast import Grammar, SchemaError, SchemaTooLarge, WorkBudget
from models.llm.structured_output.compilation import GrammarCompiler
from models.llm.structured_output.llguidance import TextMatcher, to_llguidance
from models.llm.structured_output.notations import to_gbnf
from models.llm.tool_calls import MARK, named_calls
from models.memory import give_back_cleared
from models.runtimes.openmp import AdaptiveBarriers
from models.weights.store import WeightStore

# Between two deliveries of a text that is read, which may be two tokens then. Each wakes the event
# loop and the client on cores that the model needs: with four streams on two cores, deliveries of
# each token left 0.86 of the engine's speed (the mean of five runs), and these 0.95 (of three).
DELIVERY_S = 0.05
GGUF = "model.gguf"  # of an artefact
_SEEDS = 2**32 - 1  # llama.cpp reads the largest 32-bit number as a random seed

Chunk = dict[str, Any]


class LlamaCppEngine(ChatEngine):
    """One llama.cpp server object with `config.parallel` slots.

    Each stream has a thread, which waits in llama.cpp without the GIL; streams beyond the number of
    slots wait for a thread.
    """

    def __init__(self, config: LlamaCppConfig, weights: WeightStore) -> None:
        import xllamacpp

        library = xllamacpp.xllamacpp.__file__
        path = file_of(config, weights)
        model = read_gguf(library, path)
        template = model.template or ""
        if not (template or config.chat_template):
            raise EngineError(f"{path} has no chat template; name a file in chat_template")
        draft = file_of(config.draft, weights) if config.draft else None
        config = fitted(config, model, read_draft(library, path, draft) if draft else None)
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            # In this notation the calls of an answer are read.
            tools=config.chat_template is not None or ("tools" in template and MARK in template),
            max_concurrency=config.parallel,
            pausable=not config.gpu_layers,
        )
        self._config = config
        self._library: str = library
        key = secrets.token_urlsafe(32)
        self._server = start_server(config, path, draft, key)
        self._kept = KeptChats(
            address=self._server.listening_address,
            key=key,
            token_bytes=CACHE_BYTES[config.cache_type] * model.cache_values,
            # The cache of a draft is not saved, and after a restored one without it llama.cpp
            # fails in all slots ("failed to process speculative batch").
            most_bytes=0 if draft else config.kept_chats_mb * 2**20,
        )
        give_back_cleared()  # the cache of the slots
        self._barriers = AdaptiveBarriers(config.threads or cores())
        self._threads = ThreadPoolExecutor(config.parallel, thread_name_prefix="llama")
        self._slots = Slots(config.parallel)
        self._grammars = GrammarCompiler()
        self._prompts = PromptQueue()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        if request.tools and not self.capabilities.tools:
            raise UnsupportedFeature("this model does not support tools")
        config = self._config
        sampling = request.sampling.over(config.temperature, config.top_p)
        request = replace(request, sampling=sampling)
        if is_json_or_calls(request):
            async with aclosing(self._calls_or_json(request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        grammar = None
        if request.tools or request.response_format:
            grammar = await self._grammar(request)
        reader = AnswerReader.of(
            request,
            grammar,
            config.context_tokens,
            thinking=None,
            ends_loops=config.ends_loops,
            finds_unmarked=True,
        )
        finish: FinishReason | None = None
        text = ""
        written = 0  # tokens up to the end of `text`
        async with aclosing(
            self._chunks(request, _to_body(request, grammar, config.context_tokens))
        ) as lists:
            async for chunks in lists:
                delta, ended = _read(chunks, reader)
                if delta.text and delta.usage is not None and request.tools:
                    text += delta.text
                    written = delta.usage.completion_tokens
                if (name := reader.unmarked_call) is not None and delta.usage is not None:
                    await lists.aclose()
                    used = replace(delta.usage, completion_tokens=written)
                    if delta.text:
                        yield replace(delta, usage=used)
                    async for other in self._instead_of(name, request, text, used):
                        yield other
                    return
                finish = delta.finish_reason or finish  # may be a batch before the end
                if ended:
                    delta += reader.finish(finish)
                    async for _ in lists:  # to its end: the next turn of the chat reuses the slot
                        pass
                    yield delta
                    return
                if delta.has_content:
                    yield replace(delta, finish_reason=None)
                if (repeats := reader.repeats_itself) and delta.usage is not None:
                    await lists.aclose()
                    yield GenerationDelta(finish_reason=repeats, usage=delta.usage)
                    return
        raise EngineLost("llama.cpp ended without a finish reason")

    async def _calls_or_json(
        self, request: GenerationRequest
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Calls where the model begins with one, else JSON: under a grammar of both, models that
        write calls without the marker always chose JSON, and made up what a tool would tell."""
        calls = False
        in_json = replace(request, tool_choice="none")
        await self._grammar(in_json)  # a refused schema is an error even if a call comes first
        free = replace(request, response_format=None)
        async with aclosing(self.generate(free)) as deltas:
            async for delta in deltas:
                calls = calls or bool(delta.tool_calls)
                if calls:
                    yield delta
                elif delta.text or delta.finish_reason:
                    break
        if not calls:
            async with aclosing(self.generate(in_json)) as deltas:
                async for delta in deltas:
                    yield delta

    async def _instead_of(
        self, name: str, request: GenerationRequest, text: str, used: TokenUsage
    ) -> AsyncGenerator[GenerationDelta, None]:
        """What follows `text` in place of an unmarked call of `name`, whose tokens do not count.

        Calls that obey their grammar; words where there is no such function, without the tools,
        since a model that sees them would call it again.
        """
        rest = request.after(text, used.completion_tokens)
        words = replace(rest, tools=(), tool_choice="none")
        calls = replace(rest, tool_choice="required", first_tool=name or None)
        if name and name not in (tool["function"]["name"] for tool in request.tools):
            others = self.generate(words)
        elif name in (called for called, _ in request.answered_calls()):
            others = self._calls_or_words(calls, words)
        else:
            others = self.generate(calls)
        async with aclosing(others) as deltas:
            async for delta in deltas:
                if delta.usage is None:
                    yield delta
                else:
                    tokens = used.completion_tokens + delta.usage.completion_tokens
                    yield replace(delta, usage=replace(used, completion_tokens=tokens))

    async def _calls_or_words(
        self, calls: GenerationRequest, words: GenerationRequest
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Calls, or words where each call has its result already: small models repeat it until the
        client gives up."""
        async with aclosing(self.generate(calls)) as deltas:
            pieces = [delta async for delta in deltas]
        answered = calls.answered_calls()
        called = named_calls({"tool_calls": GenerationDelta.joined(pieces).calls()})
        if all(call in answered for call in called):
            async with aclosing(self.generate(words)) as deltas:
                async for delta in deltas:
                    yield delta
        else:
            for delta in pieces:
                yield delta

    async def _grammar(self, request: GenerationRequest) -> Grammar | TextMatcher | None:
        """Raises SchemaError."""
        try:
            if (grammar := cached_grammar(request)) is not None:
                return grammar
        except SchemaTooLarge:
            raise
        except SchemaError:
            pass  # llguidance compiles it again
        compile_ = partial(_compile, request, self._library)
        return await self._grammars.run(request.owner, compile_)

    async def _chunks(
        self, request: GenerationRequest, body: Chunk
    ) -> AsyncGenerator[list[Chunk], None]:
        """What llama.cpp answers, over the pauses of a long prompt; closing it stops the work.

        A prompt that was stopped continues in its slot, whose cache has its first batches.
        """
        cached: int | None = None  # tokens of an earlier turn
        async with self._prompts.stream(request) as prompt:
            while True:
                every_s = 0.0 if request.is_spoken else DELIVERY_S
                stream = ChunkStream(asyncio.get_running_loop(), every_s)
                run = partial(self._work_in_slot, request, prompt)
                work = self._threads.submit(stream.run, run, body)
                try:
                    while chunks := await stream.take():
                        last = chunks[-1]
                        if "prompt_progress" not in last:
                            await prompt.finish()
                        elif cached is None:
                            cached = last["prompt_progress"]["cache"]
                        if cached is not None and (timings := last.get("timings")):
                            timings["prompt_n"] += timings["cache_n"] - cached
                            timings["cache_n"] = cached
                        yield chunks
                    if not prompt.is_paused:
                        return
                finally:
                    stream.close()  # the thread sees it at the next chunk
                    if not work.cancel():  # it does not wait for a thread any more
                        # Else the next request would wait behind prompts that nothing reads.
                        await asyncio.wrap_future(work)
                await prompt.pause()

    def _work_in_slot(
        self,
        request: GenerationRequest,
        prompt: LongPrompt,
        body: Chunk,
        push: Callable[[Chunk], bool],
    ) -> None:
        first: Chunk = {}
        last: Chunk = {}

        def push_or_pause(chunk: Chunk) -> bool:
            nonlocal first, last
            first = first or chunk
            last = chunk
            self._barriers.look()
            return push(chunk) or ("prompt_progress" in chunk and prompt.pauses())

        with self._slots.take(request) as slot:
            is_restored = self._kept.exchange(slot)
            remembers = is_restored or slot.previous.owner == request.owner
            body = {**body, "id_slot": slot.index, "cache_prompt": remembers}
            self._barriers.look()  # the first batch of a long prompt takes longer than a look
            try:
                self._server.handle_chat_completions(body, push_or_pause)
            except RuntimeError as error:  # of its JSON or template, before the first chunk
                message = f"the model refuses the messages: {error}"
                raise InvalidEngineRequest(message) from error
            finally:
                slot.chat.tokens = _cached_tokens(last) or slot.chat.tokens
                # Of models with a sliding window or a recurrent state, whose cache has more parts.
                if is_restored and first.get("prompt_progress", {}).get("cache") == 0:
                    self._kept.stop("llama.cpp does not use the restored cache of this model")


def _cached_tokens(chunk: Chunk) -> int:
    """The tokens in the cache of a slot after `chunk`; 0 for one that does not say it."""
    if progress := chunk.get("prompt_progress"):
        return int(progress["processed"])
    timings = chunk.get("timings", {})
    return sum(timings.get(name, 0) for name in ("cache_n", "prompt_n", "predicted_n"))


def _compile(
    request: GenerationRequest, library: str, budget: WorkBudget
) -> Grammar | TextMatcher | None:
    """Raises SchemaError."""
    try:
        if grammar := answer_grammar(request, budget=budget):
            to_gbnf(grammar)  # up to 50 ms; cached for `_to_body`
        return grammar
    except SchemaTooLarge:
        raise
    except SchemaError as error:
        with suppress(SchemaError):
            return TextMatcher(library, to_llguidance(request))
        raise error  # which names the keyword


def file_of(config: GgufConfig, weights: WeightStore) -> str:
    """The path of the model. Raises WeightsMissing or WeightsCorrupt for one of the catalogue."""
    return config.weights if config.unverified else str(weights.folder(config.weights) / GGUF)


def start_server(
    config: LlamaCppConfig, path: str, draft: str | None = None, key: str | None = None
) -> Any:
    """llama.cpp's server object with the model at `path`, and the model `draft` of
    `config.draft`; `key` is for its own port. Raises EngineError."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_gpu_layers = config.gpu_layers
    if not config.gpu_layers:
        # Most tensors are copied into another layout for the processor. A mapped file would stay
        # in memory beside the copies: 2.27 GB with 1.5 billion parameters, not 1.67.
        params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.n_parallel = config.parallel
    params.n_ctx = config.parallel * config.context_tokens
    params.n_batch = config.batch_tokens
    threads = config.threads or cores()
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    cache_type = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{config.cache_type.upper()}")
    params.cache_type_k = params.cache_type_v = cache_type
    if config.draft is not None:
        kinds, speculation = xllamacpp.common_speculative_type, params.speculative
        speculation.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        drafts = speculation.draft
        drafts.mparams.path, drafts.n_gpu_layers = draft, config.gpu_layers
        drafts.n_max, drafts.p_min = config.draft.most_tokens, config.draft.least_probability
        drafts.cache_type_k = drafts.cache_type_v = cache_type
        drafts.cpuparams.n_threads = drafts.cpuparams_batch.n_threads = threads
    params.ctx_shift = False  # a full context ends the answer; messages are never dropped
    if config.chat_template is not None:
        params.chat_template = (CONFIGS_DIR / "llm" / config.chat_template).read_text()
    params.prefill_assistant = False  # an assistant's last message is history, not a draft
    params.cache_ram_mib = 0  # it would find the prompts of all owners
    params.fit_params = False
    params.verbosity = 0  # its log could show users' text
    # llama.cpp always opens an HTTP port of its own, of which only `KeptChats` knows the key.
    params.hostnames = ["127.0.0.1"]
    params.api_keys = [key or secrets.token_urlsafe(32)]
    params.slot_save_path = FOLDER
    params.ui = False
    params.endpoint_slots = False
    params.n_threads_http = 1
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise EngineError(f"llama.cpp cannot load the model of {config.id!r}: {error}") from None


def _to_body(
    request: GenerationRequest, grammar: Grammar | TextMatcher | None, context_tokens: int
) -> dict[str, Any]:
    """The body of the request for llama.cpp's chat route."""
    constrained = is_constrained_throughout(request)
    sampling = request.sampling
    penalised = bool(sampling.presence_penalty or sampling.frequency_penalty)
    messages = [{"role": m.role, "content": m.content, **m.extra} for m in request.messages]
    if request.begun:
        messages.append({"role": "assistant", "content": request.begun})
    body: dict[str, Any] = {
        "messages": messages,
        "continue_final_message": bool(request.begun),
        # The text that is read may go on: the head of an answer would be read for nothing.
        "add_generation_prompt": not (request.begun or request.reads_only),
        "stream": True,
        "stream_options": {"include_usage": True},
        "timings_per_token": True,  # token counts so far
        "return_progress": True,  # a chunk for each prompt batch, at which a stream can be closed
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "max_tokens": -1 if sampling.max_tokens is None else sampling.max_tokens,
        "stop": [] if constrained else list(sampling.stop),
        "seed": -1 if sampling.seed is None else sampling.seed % _SEEDS,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        # All of the answer, and no more: llama.cpp allocates 4 bytes for each.
        "repeat_last_n": context_tokens if penalised else 0,
        "chat_template_kwargs": {
            **request.template_kwargs,
            "enable_thinking": request.enable_thinking and not constrained,
            # For the template only: llama.cpp's own parser of tool calls has no limits.
            "tools": list(request.tools) or None,
        },
    }
    if grammar is None:
        return body
    text = to_gbnf(grammar) if isinstance(grammar, Grammar) else grammar.grammar
    return {**body, "grammar": text}


def _read(chunks: list[Chunk], reader: AnswerReader) -> tuple[GenerationDelta, bool]:
    """The delta of some of llama.cpp's chunks, with the usage so far, and whether the answer ends
    in them. Raises EngineError when one of them is an error."""
    pieces: list[GenerationDelta] = []
    usage: TokenUsage | None = None
    ended = False
    for chunk in chunks:
        if "error" in chunk:
            raise _to_error(chunk["error"])
        timings = chunk.get("timings", {})
        if "usage" in chunk:
            used, ended = chunk["usage"], True
            cached = timings.get("cache_n", 0)
            usage = TokenUsage(used["prompt_tokens"], used["completion_tokens"], cached)
        elif timings:
            cached, read = timings["cache_n"], timings["prompt_n"]
            usage = TokenUsage(cached + read, timings["predicted_n"], cached)
        for choice in chunk["choices"]:
            said = choice["delta"]
            pieces.append(reader.feed(said.get("content") or "", usage))
            reasoning = said.get("reasoning_content") or ""
            finish = choice["finish_reason"]
            if reasoning or finish:
                pieces.append(GenerationDelta(finish_reason=finish, reasoning=reasoning))
    pieces.append(GenerationDelta(usage=usage))
    return GenerationDelta.joined(pieces), ended


def _to_error(error: dict[str, Any]) -> EngineError:
    kind = error.get("type")
    if kind == "exceed_context_size_error":
        return ContextLengthExceeded(
            f"the messages take {error['n_prompt_tokens']} tokens; "
            f"the context holds {error['n_ctx']}"
        )
    if kind == "invalid_request_error":
        return InvalidEngineRequest(f"the model refuses the request: {error.get('message')}")
    if kind == "unavailable_error":
        return EngineOverloaded("the model is not ready")
    return EngineError(f"llama.cpp failed: {error.get('message')}")


class ChunkStream:
    """A queue of the chunks of one answer, from a thread with callbacks to an event loop.

    The thread never waits for the loop; a slow loop takes more chunks at once. After the first text
    it is woken by text at most every `delivery_s`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, delivery_s: float = 0.0) -> None:
        self._loop = loop
        self._delivery_s = delivery_s
        self._has_text = False
        self._woken_at = 0.0
        self._ready = asyncio.Event()
        self._signalled = False  # a wake-up of the loop is scheduled: one serves many chunks
        self._chunks: deque[Chunk] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False

    def run(self, generate: Callable[[Chunk, Callable[[Chunk], bool]], None], body: Chunk) -> None:
        """In the thread: runs `generate(body, callback)` until it ends or the stream is closed."""
        try:
            if not self._closed:
                generate(body, self._push)
        except Exception as error:  # any error: `take` raises it in the loop
            self._error = error
        finally:
            self._ended = True
            self._wake()

    def close(self) -> None:
        """In the loop: the next callback stops the thread."""
        self._closed = True

    async def take(self) -> list[Chunk]:
        """In the loop: waits for chunks and takes all that are ready; none at the end.

        Raises what `run` caught.
        """
        while True:
            await self._ready.wait()
            self._ready.clear()
            # In this order: a chunk pushed after the next line wakes the loop again.
            self._signalled = False
            ended = self._ended
            if chunks := [self._chunks.popleft() for _ in range(len(self._chunks))]:
                if ended:
                    self._ready.set()  # for the call that returns the end
                return chunks
            if self._error is not None:
                raise self._error
            if ended:
                return []

    def _push(self, chunk: Chunk) -> bool:
        """In the thread. True stops the generation."""
        self._chunks.append(chunk)
        has_text = any(choice["delta"].get("content") for choice in chunk.get("choices", ()))
        is_due = time.monotonic() - self._woken_at >= self._delivery_s
        if is_due or not (has_text and self._has_text):
            self._wake()
        self._has_text |= has_text
        return self._closed

    def _wake(self) -> None:
        if self._signalled:
            return
        self._signalled = True
        self._woken_at = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the loop is closed: there is no consumer
            self._closed = True
