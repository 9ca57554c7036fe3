"""The plans of a running service."""

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Settings


def load_plans(settings: Settings) -> PlansConfig:
    """Reads `plans.yaml`, and adds the id of the workspace without limits from `settings`."""
    plans = load_yaml(PlansConfig, "plans")
    return plans.model_copy(update={"free_workspace_id": settings.free_workspace_id})
