"""Lists of the available models, in a format that OpenAI's clients read, too."""

from typing import Literal

from pydantic import BaseModel, Field

from api.http.routing import InfrastructureDep, make_router
from models.base import ModelInfo, ModelKind, RunningCanary
from pipelines.ports import Arrival, ListedModel, ModelStatus

router = make_router("models", scope="any", visitors=True)


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    kind: ModelKind
    engine: str
    languages: list[str]
    aliases: list[str]  # other ids that this model answers to
    description: str | None = Field(default=None, description="Notes for users of the model.")
    context_tokens: int | None = Field(
        default=None,
        description="Limit in tokens: prompt and answer together for a chat model, one text for "
        "an embedding model.",
    )
    dimensions: int | None = Field(default=None, description="Number of values in an embedding.")
    fallback: str | None = Field(
        default=None, description="Model that answers while this one is down or overloaded."
    )
    status: ModelStatus = Field(description="`asleep`: the next request waits until it is loaded.")
    problem: str | None = Field(
        default=None, description="Why the model or its intended replacement could not be loaded."
    )
    coming: Arrival | None = Field(
        default=None, description="Model that takes over once its weights are downloaded."
    )
    canary: RunningCanary | None = Field(
        default=None,
        description="New model that gets a `share` of the requests, 0 to 1. Each replica has its "
        "own canary; the one shown is of the replica that reported last.",
    )


class ModelListing(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/models", summary="List models")
async def list_models(infrastructure: InfrastructureDep) -> ModelListing:
    return ModelListing(data=[*map(shown_model, await infrastructure.models.models())])


@router.get("/models/{model_id:path}", summary="Get a model")
async def get_model(model_id: str, infrastructure: InfrastructureDep) -> Model:
    return shown_model(await infrastructure.models.find(model_id))


def shown_model(listed: ListedModel, *other_aliases: str) -> Model:
    """Converts a listed model to its public form; `other_aliases` are added to its own."""
    names = Model.model_fields.keys() & ModelInfo.__match_args__
    fields = {name: getattr(listed.info, name) for name in names}
    fields |= {
        "aliases": [*listed.info.aliases, *other_aliases],
        "status": listed.status,
        "problem": listed.problem,
        "coming": listed.coming,
    }
    return Model(**fields)
