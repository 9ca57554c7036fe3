"""The models, with the names of OpenAI's that they answer to."""

from api.http.errors import ApiError
from api.http.routing import SpeechDep, make_router
from api.native.models import Model, ModelListing, shown_model
from api.openai.names import aliases_of, unknown_model

router = make_router("models", scope="any", visitors=True)


@router.get("/openai/v1/models", summary="List models, for OpenAI's clients")
async def list_models(speech: SpeechDep) -> ModelListing:
    """Returns the models of `GET /models`. `aliases` also has OpenAI's names, such as `tts-1`."""
    listed = await speech.openai.models.models()
    more = aliases_of(speech.openai.config, [one.info for one in listed])
    return ModelListing(data=[shown_model(one, *more.get(one.info.id, ())) for one in listed])


@router.get("/openai/v1/models/{model_id:path}", summary="Get a model, for OpenAI's clients")
async def get_model(model_id: str, speech: SpeechDep) -> Model:
    """Accepts an id or an alias. The response has the model's own `id`."""
    for model in (await list_models(speech)).data:
        if model_id == model.id or model_id in model.aliases:
            return model
    raise unknown_model()


@router.post("/openai/v1/embeddings", include_in_schema=False)
async def embed() -> None:
    """Raises ApiError(model_not_found): there is no kind of model that embeds texts."""
    message = "no embedding model is deployed; GET /openai/v1/models lists all models"
    raise ApiError("model_not_found", message, param="model")
