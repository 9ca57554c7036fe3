"""GGUF language models on llama.cpp, with continuous batching, inside this process."""

import asyncio
import json
import secrets
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
    REFUSES,
    ChatCapabilities,
    ChatEngine,
    ChatMessage,
    FinishReason,
    GenerationDelta,
    GenerationRequest,
    TokenUsage,
)
from models.llm.call_review import asking_for, review
from models.llm.chunk_stream import Chunk, ChunkStream, delta_of
from models.llm.control_texts import ControlTexts
from models.llm.gguf import CACHE_BYTES, fitted, read_draft, read_gguf
from models.llm.kept_chats import FOLDER, KeptChats
from models.llm.prompt_queue import LongPrompt, PromptQueue
from models.llm.slots import Slots
from models.llm.structured_output.answer import (
    answer_grammar,
    cached_grammar,
    compile_enforced,
    is_constrained_throughout,
    is_json_or_calls,
    may_call_tools,
)
from models.llm.structured_output.ast import Grammar, SchemaError, SchemaTooLarge, WorkBudget
from models.llm.structured_output.compilation import GrammarCompiler
from models.llm.structured_output.llguidance import TextMatcher, to_llguidance
from models.llm.structured_output.notations import to_gbnf
from models.llm.tool_calls import MARK, named_calls
from models.runtimes.openmp import AdaptiveBarriers
from models.weights.store import WeightStore

# Interval between deliveries of a text that is read, not spoken. Each delivery wakes the event loop
# and the client on cores that the model needs: with four streams on two cores, delivering each
# token left 0.86 of the engine's speed (mean of five runs), this interval 0.95 (mean of three).
DELIVERY_S = 0.05
GGUF = "model.gguf"  # file of an artefact
_SEEDS = 2**32 - 1  # llama.cpp reads the largest 32-bit number as a random seed


class LlamaCppEngine(ChatEngine):
    """llama.cpp in this process: one server object with `config.parallel` slots. Each stream has a
    thread, which waits in llama.cpp without the GIL; more streams wait for a thread."""

    def __init__(self, config: LlamaCppConfig, weights: WeightStore) -> None:
        import xllamacpp

        library = xllamacpp.xllamacpp.__file__
        path = file_of(config, weights)
        model = read_gguf(library, path)
        template = own_template(config) or model.template or ""
        if not template:
            raise EngineError(f"{path} has no chat template; name a file in chat_template")
        draft = file_of(config.draft, weights) if config.draft else None
        config = fitted(config, model, read_draft(library, path, draft) if draft else None)
        self.capabilities = ChatCapabilities(
            context_tokens=config.context_tokens,
            languages=config.languages,
            # AnswerReader parses this notation of tool calls.
            tools=config.chat_template is not None or ("tools" in template and MARK in template),
            max_concurrency=config.parallel,
            pausable=not config.gpu_layers,
            device="cuda" if config.gpu_layers else "cpu",
        )
        self.clears_memory = not config.gpu_layers  # it zeroes the slots' cache
        self._config = config
        self._control_texts = ControlTexts(model.control_texts, model.undivided_texts, template)
        self._is_strict = REFUSES in template
        self._library: str = library
        key = secrets.token_urlsafe(32)
        self._server = start_server(config, path, draft, key)
        self._kept = KeptChats(
            address=self._server.listening_address,
            key=key,
            token_bytes=CACHE_BYTES[config.cache_type] * model.cache_values,
            # The cache of a draft is not saved. If a model's cache is restored without its draft's,
            # llama.cpp fails in all slots ("failed to process speculative batch").
            most_bytes=0 if draft else config.kept_chats_mb * 2**20,
        )
        self._barriers = AdaptiveBarriers(config.threads or cores())
        self._threads = ThreadPoolExecutor(config.parallel, thread_name_prefix="llama")
        self._slots = Slots(config.parallel)
        self._grammars = GrammarCompiler()
        self._prompts = PromptQueue()

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        if request.tools and not self.capabilities.tools:
            raise UnsupportedFeature("this model does not support tools")
        config = self._config
        sampling = request.sampling.with_defaults(config.temperature, config.top_p)
        request = replace(request, sampling=sampling)
        request = request.alternating() if self._is_strict else request
        if config.reviews_calls and may_call_tools(request) and request.tool_choice == "auto":
            return self._reviewed(request)
        return self._answer(request)

    async def _reviewed(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """Generates an answer, and holds its calls back until `review` has judged them. If no call
        is left, the answer goes on in words. Tokens of dropped calls do not count."""
        text = ""
        text_tokens = 0  # tokens up to the end of `text`
        with_calls: list[GenerationDelta] = []
        async with aclosing(self._answer(request)) as deltas:
            async for delta in deltas:
                text += delta.text
                if with_calls or delta.tool_calls:
                    with_calls.append(replace(delta, text=""))
                    if delta.text:
                        yield GenerationDelta(delta.text)
                    continue
                text_tokens = delta.usage.completion_tokens if delta.usage else text_tokens
                yield delta
        if not with_calls:
            return
        answer = GenerationDelta.joined(with_calls)
        reviewed = review(request, answer.calls())
        if reviewed.kept or answer.usage is None:
            yield replace(answer, tool_calls=reviewed.kept)
            return
        rest = request.after(text, text_tokens)
        if reviewed.missing:
            rest = replace(rest, messages=asking_for(reviewed.missing, rest.messages))
        words = self._answer(replace(rest, tools=(), tool_choice="none"))
        used = replace(answer.usage, completion_tokens=text_tokens)
        async with aclosing(_used_after(used, words)) as deltas:
            async for delta in deltas:
                yield delta

    def _answer(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        if is_json_or_calls(request):
            return self._calls_or_json(request)
        return self._generated(request)

    async def _generated(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        config = self._config
        grammar = None
        if request.tools or request.response_format:
            grammar = await self._grammar(request)
        reader = AnswerReader.of(
            request,
            grammar,
            config.context_tokens,
            stop=() if is_constrained_throughout(request) else request.sampling.stop,
            thinking=None,
            ends_loops=config.ends_loops,
            finds_unmarked=True,
        )
        finish: FinishReason | None = None
        text = ""
        text_tokens = 0  # tokens up to the end of `text`
        body = _to_body(request, grammar, config.context_tokens, self._control_texts)
        async with aclosing(self._chunks(request, body)) as lists:
            async for chunks in lists:
                delta, ended = _read(chunks, reader)
                if delta.text and delta.usage is not None and request.tools:
                    text += delta.text
                    text_tokens = delta.usage.completion_tokens
                if (name := reader.unmarked_call) is not None and delta.usage is not None:
                    await lists.aclose()
                    used = replace(delta.usage, completion_tokens=text_tokens)
                    if delta.text:
                        yield replace(delta, usage=used)
                    async for other in self._instead_of(name, request, text, used):
                        yield other
                    return
                finish = delta.finish_reason or finish  # may come a batch before the end
                if reader.stopped and delta.usage is not None:
                    await lists.aclose()
                    ended = True
                    finish = "stop"
                if ended:
                    delta += reader.finish(finish)
                    async for _ in lists:  # drains it, so that the chat's next turn reuses the slot
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
        """Generates calls where the model begins with one, else JSON. Under a grammar of both,
        models that write calls without the marker chose JSON and invented the tool's result."""
        calls = False
        in_json = replace(request, tool_choice="none")
        await self._grammar(in_json)  # an invalid schema is an error even if a call comes first
        free = replace(request, response_format=None)
        async with aclosing(self._answer(free)) as deltas:
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

    def _instead_of(
        self, name: str, request: GenerationRequest, text: str, used: TokenUsage
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Replaces an unmarked call of `name` after `text`; its tokens do not count. Generates
        calls under their grammar. Where there is no such function, generates words without the
        tools, since a model that sees them would call it again."""
        rest = request.after(text, used.completion_tokens)
        words = replace(rest, tools=(), tool_choice="none")
        calls = replace(rest, tool_choice="required", first_tool=name or None)
        if name and name not in (tool["function"]["name"] for tool in request.tools):
            others = self.generate(words)
        elif name in (called for called, _ in request.answered_calls()):
            others = self._calls_or_words(calls, words)
        else:
            others = self.generate(calls)
        return _used_after(used, others)

    async def _calls_or_words(
        self, calls: GenerationRequest, words: GenerationRequest
    ) -> AsyncGenerator[GenerationDelta, None]:
        """Generates calls; words if all have results already: small models repeat such calls."""
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
        """Returns the grammar of the answer, if any. Raises SchemaError."""
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
        """Yields llama.cpp's chunks across the pauses of a long prompt; closing it stops the work.
        A paused prompt continues in its slot, whose cache has its first batches."""
        cached: int | None = None  # tokens cached by an earlier turn
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
                    if not work.cancel():  # it has already started
                        # Otherwise the next request would wait behind abandoned prompts.
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
            self._barriers.look()  # the first batch of a long prompt takes longer than LOOK_S
            if request.is_raw:
                answer = self._server.handle_completions
            else:
                answer = self._server.handle_chat_completions
            try:
                answer(body, push_or_pause)
            except (RuntimeError, ValueError) as error:
                # An error of its JSON parser or of the template, before the first chunk.
                reason = str(error).rpartition("Jinja Exception: ")[2]
                raise InvalidEngineRequest(f"the model refuses the messages: {reason}") from error
            finally:
                slot.chat.tokens = _cached_tokens(last) or slot.chat.tokens
                # The cache of a sliding window or a recurrent state has parts that are not saved.
                if is_restored and first.get("prompt_progress", {}).get("cache") == 0:
                    self._kept.stop("llama.cpp does not use the restored cache of this model")


async def _used_after(
    used: TokenUsage, deltas: AsyncGenerator[GenerationDelta, None]
) -> AsyncGenerator[GenerationDelta, None]:
    """Yields the rest of an answer, whose usage is `used` so far and then its own tokens."""
    async with aclosing(deltas):
        async for delta in deltas:
            if delta.usage is None:
                yield delta
            else:
                tokens = used.completion_tokens + delta.usage.completion_tokens
                yield replace(delta, usage=replace(used, completion_tokens=tokens))


def _cached_tokens(chunk: Chunk) -> int:
    """Tokens in the cache of a slot after `chunk`; 0 if the chunk does not tell."""
    if progress := chunk.get("prompt_progress"):
        return int(progress["processed"])
    timings = chunk.get("timings", {})
    return sum(timings.get(name, 0) for name in ("cache_n", "prompt_n", "predicted_n"))


def _compile(
    request: GenerationRequest, library: str, budget: WorkBudget
) -> Grammar | TextMatcher | None:
    """Compiles the grammar of the answer; blocking. Raises SchemaError."""
    return compile_enforced(request, partial(_compile_whole, library=library, budget=budget))


def _compile_whole(
    request: GenerationRequest, library: str, budget: WorkBudget
) -> Grammar | TextMatcher | None:
    try:
        if grammar := answer_grammar(request, budget=budget):
            to_gbnf(grammar)  # up to 50 ms; cached for `_to_body`
        return grammar
    except SchemaTooLarge:
        raise
    except SchemaError:
        with suppress(SchemaError):
            return TextMatcher(library, to_llguidance(request))
        raise  # its message names the keyword


def file_of(config: GgufConfig, weights: WeightStore) -> str:
    """Path of the model. Raises WeightsMissing or WeightsCorrupt."""
    return config.weights if config.unverified else str(weights.folder(config.weights) / GGUF)


def own_template(config: LlamaCppConfig) -> str | None:
    """Reads the template that replaces the model's own, if any."""
    name = config.chat_template
    return None if name is None else (CONFIGS_DIR / "llm" / name).read_text()


def start_server(
    config: LlamaCppConfig, path: str, draft: str | None = None, key: str | None = None
) -> Any:
    """Starts llama.cpp's server object with the model at `path`. Raises EngineError. `draft` is the
    path of the model of `config.draft`; `key` protects llama.cpp's own port."""
    import xllamacpp

    devices = xllamacpp.get_device_info()
    if config.gpu_layers and not any("GPU" in device["type"].name for device in devices):
        raise EngineError("gpu_layers: the installed llama.cpp (xllamacpp) finds no GPU")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_gpu_layers = config.gpu_layers
    if not config.gpu_layers:
        # Most tensors are copied into the processor's layout. A mapped file would stay in memory
        # beside the copies: 2.27 GB instead of 1.67 with 1.5 billion parameters.
        params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.n_parallel = config.parallel
    params.n_ctx = config.parallel * config.context_tokens
    params.n_batch = config.batch_tokens
    threads = config.threads or cores()
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    cache_type = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{config.cache_type.upper()}")
    params.cache_type_k = params.cache_type_v = cache_type
    if config.draft is not None:
        kinds = xllamacpp.common_speculative_type
        speculation = params.speculative
        speculation.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        drafts = speculation.draft
        drafts.mparams.path = draft
        drafts.n_gpu_layers = config.gpu_layers
        drafts.n_max = config.draft.most_tokens
        drafts.p_min = config.draft.least_probability
        drafts.cache_type_k = drafts.cache_type_v = cache_type
        drafts.cpuparams.n_threads = drafts.cpuparams_batch.n_threads = threads
    params.ctx_shift = False  # a full context ends the answer; messages are never dropped
    if template := own_template(config):
        params.chat_template = template
    params.prefill_assistant = False  # an assistant's last message is history, not a draft
    params.cache_ram_mib = 0  # it would be shared by all owners
    params.fit_params = False
    params.verbosity = 0  # its log could show users' text
    # llama.cpp always opens an HTTP port of its own; only `KeptChats` has its key.
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


def _to_message(message: ChatMessage) -> dict[str, Any]:
    """Writes arguments of calls without escapes, in which control texts would not be found. Raises
    InvalidEngineRequest."""
    fields = {"role": message.role, "content": message.content, **message.extra}
    if calls := message.extra.get("tool_calls"):
        functions = [call["function"] for call in calls]
        try:
            values = [json.loads(function["arguments"]) for function in functions]
        except ValueError as error:
            raise InvalidEngineRequest(f"the model refuses the messages: {error}") from error
        fields["tool_calls"] = [
            {**call, "function": {**function, "arguments": json.dumps(value, ensure_ascii=False)}}
            for call, function, value in zip(calls, functions, values, strict=True)
        ]
    return fields


def _to_body(
    request: GenerationRequest,
    grammar: Grammar | TextMatcher | None,
    context_tokens: int,
    control_texts: ControlTexts,
) -> dict[str, Any]:
    constrained = is_constrained_throughout(request)
    sampling = request.sampling
    penalised = bool(sampling.presence_penalty or sampling.frequency_penalty)
    messages = [_to_message(message) for message in request.messages]
    if request.begun:
        messages.append({"role": "assistant", "content": request.begun})
    body: dict[str, Any] = {
        "messages": control_texts.broken(messages),
        "continue_final_message": bool(request.begun),
        # A prompt that is only read ahead may grow: tokens that begin an answer would be wasted.
        "add_generation_prompt": not (request.begun or request.reads_only),
        "stream": True,
        "stream_options": {"include_usage": True},
        "timings_per_token": True,  # has the token counts so far
        "return_progress": True,  # sends a chunk per prompt batch, where a stream can be closed
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "max_tokens": -1 if sampling.max_tokens is None else sampling.max_tokens,
        # `AnswerReader` reads the stop texts: llama.cpp would find them in reasoning and in calls,
        # and drops the beginning of one at `max_tokens`.
        "stop": [],
        "seed": -1 if sampling.seed is None else sampling.seed % _SEEDS,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        # Covers the whole context, and no more: llama.cpp allocates 4 bytes per token.
        "repeat_last_n": context_tokens if penalised else 0,
        "chat_template_kwargs": {
            **request.template_kwargs,
            "enable_thinking": request.enable_thinking and not constrained,
            # Only the template gets them: llama.cpp's own parser of tool calls has no limits.
            "tools": control_texts.broken(request.described_tools()) or None,
        },
    }
    if request.is_raw:
        body["prompt"] = request.messages[0].content + request.begun
    if grammar is not None:
        text = to_gbnf(grammar) if isinstance(grammar, Grammar) else grammar.grammar
        body["grammar"] = text
    return body


def _read(chunks: list[Chunk], reader: AnswerReader) -> tuple[GenerationDelta, bool]:
    """Reads chunks: their delta with the usage, and whether the answer ends. Raises EngineError."""
    pieces: list[GenerationDelta] = []
    usage: TokenUsage | None = None
    ended = False
    for chunk in chunks:
        if "error" in chunk:
            raise _to_error(chunk["error"])
        timings = chunk.get("timings", {})
        if "usage" in chunk:
            used = chunk["usage"]
            ended = True
            cached = timings.get("cache_n", 0)
            usage = TokenUsage(
                prompt_tokens=used["prompt_tokens"],
                completion_tokens=used["completion_tokens"],
                cached_tokens=cached,
            )
        elif timings:
            cached, read = timings["cache_n"], timings["prompt_n"]
            usage = TokenUsage(
                prompt_tokens=cached + read,
                completion_tokens=timings["predicted_n"],
                cached_tokens=cached,
            )
        for choice in chunk["choices"]:
            choice_delta = delta_of(choice)
            pieces.append(reader.feed(choice_delta.get("content") or "", usage))
            reasoning = choice_delta.get("reasoning_content") or ""
            finish = choice["finish_reason"]
            if reasoning or finish:
                pieces.append(GenerationDelta(finish_reason=finish, reasoning=reasoning))
        if reader.stopped:
            break
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
