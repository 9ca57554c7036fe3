"""The routes of OpenAI's model list, in which models also have OpenAI's names."""

from typing import Literal

from pydantic import BaseModel, Field

from api.http.routing import SpeechDep, make_router
from api.native.models import Model, shown_model
from api.openai.names import aliases_of, unknown_model

router = make_router("models", scope="any", visitors=True)


class OpenAIModel(Model):
    max_model_len: int | None = Field(description="Same as `context_tokens`.")


class OpenAIModelListing(BaseModel):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


@router.get("/openai/v1/models", summary="List models, for OpenAI's clients")
async def list_models(speech: SpeechDep) -> OpenAIModelListing:
    """Returns the models of `GET /models`. `aliases` also has OpenAI's names, such as `tts-1`."""
    deployed = await speech.openai.models.models()
    aliases = aliases_of(speech.openai.config, [model.info for model in deployed])
    models = [shown_model(model, *aliases.get(model.info.id, ())) for model in deployed]
    return OpenAIModelListing(
        data=[OpenAIModel(**dict(model), max_model_len=model.context_tokens) for model in models]
    )


@router.get("/openai/v1/models/{model_id:path}", summary="Get a model, for OpenAI's clients")
async def get_model(model_id: str, speech: SpeechDep) -> OpenAIModel:
    """Accepts an id or an alias. The `id` in the response is that of the request."""
    for model in (await list_models(speech)).data:
        if model_id == model.id or model_id in model.aliases:
            return model.model_copy(update={"id": model_id})
    raise unknown_model()
