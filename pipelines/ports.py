"""The ports by which pipelines call deployments or engines, and the list of models behind them."""

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, Protocol

from configs.schema.base import StrictModel
from models.audio import AudioChunk
from models.base import ModelInfo
from models.embedding.base import EmbeddingRequest, Embeddings
from models.errors import EngineError
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from pipelines.errors import ModelNotFound

ModelStatus = Literal["ready", "asleep", "unavailable"]

_DATE = re.compile(r"-\d{4}(-\d{2}-\d{2})?$")


class Port(Protocol):
    """The common part of all ports."""

    async def describe(self) -> ModelInfo:
        """Describes the model, loaded or asleep. Raises EngineLost when no replica is up."""
        ...


async def describe_all(ports: Iterable[Port]) -> list[ModelInfo | None]:
    """Describes the models of several ports concurrently; None for one that is down."""
    return list(await asyncio.gather(*map(_describe, ports)))


async def _describe(port: Port) -> ModelInfo | None:
    try:
        return await port.describe()
    except EngineError:
        return None


class TTSModel(Port, Protocol):
    """Port of a text-to-speech model."""

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        """Speak a sentence; closing the generator stops the work. Raises EngineError."""
        ...

    async def phonemes(self, request: SynthesisRequest) -> str:
        """Returns the symbols spoken for a sentence; "" if there are none. Raises EngineError."""
        return ""

    async def forget_voice(self, digest: str) -> None:
        """Drops a voice pack from the caches of all replicas. Raises EngineError."""
        del digest  # the default of models without voice packs


class STTModel(Port, Protocol):
    """Port of a speech-to-text model."""

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        """Transcribes one stretch of speech. Raises EngineError."""
        ...


class ChatModel(Port, Protocol):
    """Port of a language model."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """Yields the answer in pieces; closing the generator stops it. Raises EngineError."""
        ...


class EmbeddingModel(Port, Protocol):
    """Port of an embedding model."""

    def embed(self, request: EmbeddingRequest) -> AsyncGenerator[Embeddings, None]:
        """Yields embeddings in batches; closing the generator stops it. Raises EngineError."""
        ...


class Arrival(StrictModel):
    """A model whose weights are being downloaded. It then replaces the current model."""

    model: str  # its id
    got_bytes: int
    size_bytes: int
    problem: str | None = None  # why its download pauses


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model, and whether a replica of it answers."""

    info: ModelInfo
    status: ModelStatus
    problem: str | None = None  # why it, or the model that should replace it, was not loaded
    coming: Arrival | None = None  # model that will replace it


def _names(info: ModelInfo) -> tuple[str, ...]:
    return (info.id, *info.aliases)


def undated(name: str) -> str:
    """Returns the name of a model without the date of its version: `gpt-4o` for
    `gpt-4o-2024-08-06`, `gpt-4` for `gpt-4-0613`."""
    return _DATE.sub("", name)


def named(name: str, models: Sequence[ModelInfo]) -> ModelInfo | None:
    """Finds the model with that id, else the first with that alias, else with the undated name."""
    matches = [info for info in models if name in _names(info)]
    if not matches and (plain := undated(name)) != name:
        return named(plain, models)
    return min(matches, key=lambda info: info.id != name, default=None)


class ModelList:
    """Follows the ports of all kinds; the mappings may change while it lives."""

    def __init__(
        self,
        *ports: Mapping[str, Port],
        problems: Mapping[str, str] | None = None,
        infos: Mapping[str, ModelInfo] | None = None,
        arrivals: Mapping[str, Arrival] | None = None,
        chats: Mapping[str, Port] | None = None,
        usual_names: Collection[str] = (),
    ) -> None:
        """Create a list of models. `problems` are failed swaps: by port, why its model was not
        replaced. `infos` has the models of ports that are down, as far as other processes know
        them. `usual_names` that no model has are aliases of the first of `chats`."""
        self._ports = ports
        self._arrivals = {} if arrivals is None else arrivals
        self._chats = {} if chats is None else chats
        self._usual_names = usual_names
        self._infos = {} if infos is None else infos
        self.problems = {} if problems is None else problems
        self._seen: dict[str, ModelInfo] = {}  # by port name; outlives a lost replica

    async def models(self) -> list[ListedModel]:
        """List every model that is or was up, in the order of the ports."""
        return [entry for entry in (await self.by_port()).values() if entry is not None]

    async def by_port(self) -> dict[str, ListedModel | None]:
        """Lists the model of each port; None for a port that was never up."""
        answers = await self._ask()
        listed: dict[str, ListedModel | None] = dict.fromkeys(answers)
        for name, answer in answers.items():
            coming = self._arrivals.get(name)
            if answer is not None:
                self._seen[name] = answer
                status: ModelStatus = "asleep" if answer.is_asleep else "ready"
                if coming is not None and coming.model == answer.id:  # it has just come
                    coming = None
                listed[name] = ListedModel(answer, status, self.problems.get(name), coming)
            elif (last_seen := self._seen.get(name) or self._infos.get(name)) is not None:
                listed[name] = ListedModel(last_seen, "unavailable", last_seen.problem, coming)
        taken = {name for model in listed.values() if model for name in _names(model.info)}
        first = next(iter(self._chats), "")  # even while it is down, it keeps the usual names
        if (chat := listed.get(first)) is not None:
            more = tuple(name for name in self._usual_names if name not in taken)
            info = replace(chat.info, aliases=chat.info.aliases + more)
            listed[first] = replace(chat, info=info)
        return listed

    async def first_chat(self) -> ListedModel | None:
        """Finds the chat model with the usual names."""
        return (await self.by_port()).get(next(iter(self._chats), ""))

    async def find(self, model: str) -> ListedModel:
        """Finds the model with that id or alias. Raises ModelNotFound."""
        models = await self.models()
        match = named(model, [entry.info for entry in models])
        for entry in models:
            if entry.info is match:
                return entry
        raise ModelNotFound("no model has that id; GET /models lists them")

    async def missing(self, wanted: Collection[str] = ()) -> list[str]:
        """Return the names of ports that do not answer, of all ports or of those wanted; `models`
        if there are no ports. Raises ModelNotFound if there is no port of a wanted name."""
        answers = await self._ask()
        if not answers:
            return ["models"]
        if unknown := set(wanted) - answers.keys():
            raise ModelNotFound(f"no model is deployed as {', '.join(sorted(unknown))}")
        answering = {name for name, answer in answers.items() if answer}
        answering |= {name for name, info in self._infos.items() if info.is_awaited}
        return [name for name in wanted or answers if name not in answering]

    async def _ask(self) -> dict[str, ModelInfo | None]:
        ports = dict(chain.from_iterable(kind.items() for kind in self._ports))
        return dict(zip(ports, await describe_all(ports.values()), strict=True))
