"""The root of the application `models`: says which deployments there are, and of what kind."""

from typing import Any

from ray.serve.handle import DeploymentHandle

from configs.serve_schema import ModelsArgs


class ModelIndex:
    """The gateway asks it every few seconds, so a model added to the YAML needs no restart."""

    def __init__(self, args: ModelsArgs, *deployments: DeploymentHandle[Any]) -> None:
        self._args = args
        self._deployments = deployments  # holds them in this application's graph

    def deployed(self) -> ModelsArgs:
        return self._args
