"""What the configuration of every model has, of whatever kind."""

from configs.schema.strict import StrictModel


class ModelConfig(StrictModel):
    """The head of each YAML under `configs/tts`, `configs/stt` and `configs/llm`."""

    id: str  # what clients name, such as "svc/slm-135m-q4"
    aliases: tuple[str, ...] = ()
    owned_by: str  # who made the weights
    created: int  # Unix seconds of the weights' publication
