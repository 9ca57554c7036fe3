"""Embeddings for OpenAI's clients."""

import asyncio
from typing import Annotated, ClassVar, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Discriminator, Field, Tag

from api.http.bodies import WHOLE, RequestModel
from api.http.routing import ChatDep, OperationDep, PrincipalDep, make_router
from models.base import ModelInfo
from models.embedding.base import MOST_TOKENS, EmbeddingInput, Embeddings
from pipelines.embedding.pipeline import MOST_REQUEST_TOKENS

router = make_router("embeddings", scope="chat", visitors=True)

MOST_INPUTS = 2048

Text = Annotated[str, Field(min_length=1)]
Token = Annotated[int, Field(ge=0)]
Tokens = Annotated[list[Token], Field(min_length=1, max_length=MOST_TOKENS, fail_fast=True)]


def _form(value: object) -> str:
    """Returns the form of an input by its first item, so that only one form is validated."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(value, list) and isinstance(first, int):
        return "tokens"
    if isinstance(first, list) and first is not value:
        return "lists of tokens"
    return "texts" if isinstance(value, list) else "text"


EmbeddingsInput = Annotated[
    Annotated[Text, Tag("text")]
    | Annotated[
        list[Text], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True), Tag("texts")
    ]
    | Annotated[Tokens, Tag("tokens")]
    | Annotated[
        list[Tokens],
        Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True),
        Tag("lists of tokens"),
    ],
    Discriminator(_form),
]


class EmbeddingsBody(RequestModel):
    """Texts to embed."""

    most_bytes: ClassVar[int] = 4 << 20  # LangChain sends up to 300,000 token ids
    most_values: ClassVar[int] = MOST_REQUEST_TOKENS + MOST_INPUTS

    input: EmbeddingsInput = Field(
        description="A text or list of texts, or token ids of OpenAI's encoding cl100k_base."
    )
    model: str | None = Field(
        default=None, max_length=200, description="`text-embedding-3-small` or a model id."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default="float", description="`base64` sends little-endian float32 numbers."
    )
    dimensions: Annotated[int, Field(ge=1), WHOLE] | None = Field(
        default=None, description="Keeps only the first numbers, scaled to length 1."
    )
    user: str | None = Field(default=None, description="Has no effect.")

    def inputs(self) -> tuple[EmbeddingInput, ...]:
        """Returns the inputs; a single text or list of tokens counts as one input."""
        if isinstance(self.input, str):
            return (self.input,)
        if _form(self.input) == "tokens":
            return (tuple(self.input),)  # type: ignore[arg-type]  # a list of numbers
        return tuple(item if isinstance(item, str) else tuple(item) for item in self.input)  # type: ignore[arg-type]  # texts or lists


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str = Field(description="Numbers, or base64 of float32 numbers.")


class EmbeddingUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The embeddings of all inputs, in their order."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


@router.post(
    "/openai/v1/embeddings",
    summary="Create embeddings, for OpenAI's clients",
    response_model=EmbeddingList,
)
async def embed(
    body: EmbeddingsBody, principal: PrincipalDep, chat: ChatDep, operation: OperationDep
) -> JSONResponse:
    """Embeddings have length 1, so their dot product is their cosine similarity. An input that is
    longer than the model's window is cut into pieces, whose embeddings are averaged."""
    embeddings, info = await chat.embeddings.embed(
        body.inputs(), body.model, principal.workspace_id, operation, body.dimensions
    )
    return await asyncio.to_thread(_answer, body, embeddings, info)


def _answer(body: EmbeddingsBody, embeddings: Embeddings, info: ModelInfo) -> JSONResponse:
    """Makes the answer; blocking: 2,048 embeddings are 8 MB of numbers."""
    is_encoded = body.encoding_format == "base64"
    vectors = embeddings.to_base64() if is_encoded else embeddings.to_numbers()
    items = [
        {"object": "embedding", "index": index, "embedding": embedding}
        for index, embedding in enumerate(vectors)
    ]
    usage = {"prompt_tokens": embeddings.tokens, "total_tokens": embeddings.tokens}
    return JSONResponse({"object": "list", "data": items, "model": info.id, "usage": usage})
