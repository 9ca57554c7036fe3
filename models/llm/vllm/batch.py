"""vLLM's engine with its streams. Its core computes in a process of its own."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from configs.schema.models.llm import VllmChatConfig
from models.errors import DeviceFailed, EngineError, EngineLost
from models.llm.token_engine import Step, TokenBatch, TokenRequest, TokenStream
from models.llm.vllm.tether import Tether
from models.memory import give_back

# Variables that vLLM reads when it is imported, and its processes when they start.
for _name, _value in {
    "VLLM_NO_USAGE_STATS": "1",  # it would send the model's name and the hardware to its makers
    "VLLM_CONFIGURE_LOGGING": "0",  # the replica's logs are configured already
    "VLLM_HOST_IP": "127.0.0.1",  # its processes trust their peers
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}.items():
    os.environ.setdefault(_name, _value)

from vllm import SamplingParams, TokensPrompt  # noqa: E402 it reads the variables above
from vllm.config import StructuredOutputsConfig  # noqa: E402
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402
from vllm.v1.engine.exceptions import EngineDeadError  # noqa: E402

SOCKETS = "VLLM_RPC_BASE_PATH"  # read when vLLM starts
STOP_S = 10.0  # timeout for the core's process to end, which is then killed
ANSWER_S = 4.0  # timeout of the core's answer; a step of a GPU takes less than a second
LATER = 1  # priority of speculative requests, which give way to those of 0


class VllmStream(TokenStream):
    work: Future[None] | None = None

    def close(self) -> None:
        if self.work is not None:
            self.work.cancel()


class VllmBatch(TokenBatch):
    """Model in vLLM's processes with its streams. vLLM's client checks grammars and converts
    outputs on one event loop, which runs in a thread of its own."""

    def __init__(self, folder: Path, config: VllmChatConfig) -> None:
        """Raises EngineError."""
        self._stopping = threading.Lock()
        self._llm: Any = None
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=asyncio.run,
            args=(self._serve(to_arguments(folder, config), started),),
            name="vllm",
            daemon=True,
        )
        self._thread.start()
        try:
            started.result()
        except Exception as error:  # any library may raise
            raise EngineError(
                f"vLLM cannot load the model of {config.id!r}: {error}. If its process did not"
                " start, the log above has the cause, such as too little memory of the GPU"
            ) from error
        try:
            self.size, self.ends = self._vocabulary()
            self.device = self.check().vllm_config.device_config.device_type
        except BaseException:
            self.close()
            raise

    def submit(self, request: TokenRequest) -> VllmStream:
        llm = self.check()
        stream = VllmStream()
        prompt = TokensPrompt(
            prompt_token_ids=list(request.prompt),
            cache_salt=hashlib.sha256(request.owner.encode()).hexdigest(),
        )
        outputs = llm.generate(
            prompt,
            self._parameters(request),
            stream.id,
            priority=LATER if request.is_speculative else 0,
        )
        work = _pass_on(outputs, stream)
        try:
            stream.work = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise EngineLost("the model was unloaded") from None
        return stream

    def check(self) -> Any:
        """Returns vLLM's client. Raises EngineLost after `stop`, or if a process of vLLM died."""
        llm = self._llm
        if llm is None:
            raise EngineLost("the model was unloaded")
        if llm.errored:
            raise EngineLost("the model stopped: a process of vLLM died")
        return llm

    def check_device(self) -> None:
        """Waits for an answer of the core, which takes requests between two steps. Raises
        EngineLost, or DeviceFailed if there is none."""
        asked = self.check().is_paused()
        try:
            answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        except RuntimeError:
            asked.close()
            raise EngineLost("the model was unloaded") from None
        try:
            answer.result(ANSWER_S)
        except TimeoutError:
            answer.cancel()
            self.check()
            raise DeviceFailed(f"vLLM's core gave no answer for {ANSWER_S:.0f} s") from None
        except CancelledError:
            raise EngineLost("the model was unloaded") from None

    def stop(self) -> None:
        """Ends vLLM's processes soon, which frees the memory; running streams raise EngineLost."""
        with self._stopping:
            if self._llm is None:
                return
            self._llm = None
        self._loop.call_soon_threadsafe(self._ending.set)

    def close(self) -> None:
        """Ends vLLM's processes and waits for their end."""
        self.stop()
        self._thread.join(2 * STOP_S)
        give_back()

    async def _serve(self, arguments: AsyncEngineArgs, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        # A core that is killed leaves its sockets there.
        base = os.environ.get(SOCKETS)
        with TemporaryDirectory(prefix="vllm-", dir=base, ignore_cleanup_errors=True) as sockets:
            os.environ[SOCKETS] = sockets
            try:
                llm = self._llm = AsyncLLM.from_engine_args(arguments)
            except BaseException as error:  # raised by `__init__`
                started.set_exception(error)
                return
            finally:  # the next model has a folder of its own
                os.environ.pop(SOCKETS)
                os.environ.update({SOCKETS: base} if base else {})
            started.set_result(None)
            await self._ending.wait()
            llm.shutdown(timeout=STOP_S)

    def _vocabulary(self) -> tuple[int, tuple[int, ...]]:
        """Return the number of logits, and the tokens that end an answer."""
        llm = self.check()
        ends = (llm.model_config.try_get_generation_config() or {}).get("eos_token_id")
        named = {*(ends if isinstance(ends, list) else [ends]), llm.get_tokenizer().eos_token_id}
        size: int = llm.model_config.get_vocab_size()
        return size, tuple(sorted(token for token in named if token is not None))

    def _parameters(self, request: TokenRequest) -> SamplingParams:
        sampling = request.sampling
        grammar = request.constraint and StructuredOutputsParams(grammar=request.constraint.lark)
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=sampling.seed,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            max_tokens=request.most_tokens,
            stop_token_ids=list(self.ends),
            structured_outputs=grammar,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )


def to_arguments(folder: Path, config: VllmChatConfig) -> AsyncEngineArgs:
    is_alone = config.tensor_parallel_size == 1
    return AsyncEngineArgs(
        model=str(folder),
        served_model_name=config.id,
        dtype=config.dtype,
        quantization=config.quantization,
        max_model_len=config.context_tokens,
        max_num_seqs=config.parallel,
        gpu_memory_utilization=config.gpu_memory_utilization,
        tensor_parallel_size=config.tensor_parallel_size,
        distributed_executor_backend="uni" if is_alone else "mp",  # not Ray, whose GPUs these are
        enforce_eager=config.enforce_eager,
        enable_prefix_caching=True,
        scheduling_policy="priority",
        structured_outputs_config=StructuredOutputsConfig(backend="guidance"),
        additional_config=Tether(),
        disable_log_stats=True,  # its metrics would be registered twice during a swap
    )


async def _pass_on(outputs: AsyncGenerator[Any, None], stream: VllmStream) -> None:
    """Passes vLLM's outputs on to a stream, in vLLM's thread."""
    try:
        async for output in outputs:
            answer = output.outputs[0]
            if answer.finish_reason in ("abort", "error"):
                raise EngineError(f"vLLM ended the answer: {answer.finish_reason}")
            cached = output.num_cached_tokens or 0
            stream.push(Step(tuple(answer.token_ids), output.finished, cached))
    except EngineDeadError:
        stream.push(EngineLost("the model stopped: a process of vLLM died"))
    except asyncio.CancelledError:
        stream.push(EngineLost("the model was unloaded"))
        raise
    except EngineError as error:
        stream.push(error)
    except Exception as error:  # any library may raise
        cause = error.__cause__ or error
        stream.push(EngineError(f"vLLM failed: {type(cause).__name__}: {cause}"))
