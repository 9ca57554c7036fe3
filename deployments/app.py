"""The Serve application `models`: the whole graph on one screen.

Serve reads the builder's argument type, so annotations here stay real objects. Scaling lives in
`serve_config.yaml`, not here. The other application is built in `deployments/gateway.py`: a replica
of a model need not import the web framework.
"""

from ray import serve
from ray.serve import Application

from configs.serve_schema import ModelsArgs
from deployments.index import ModelIndex
from deployments.llm import ChatDeployment
from deployments.stt import STTDeployment
from deployments.tts import TTSDeployment


def build_models(args: ModelsArgs) -> Application:
    """The application `models`: one deployment a model, none with a route."""
    kinds = ((TTSDeployment, args.tts), (STTDeployment, args.stt), (ChatDeployment, args.chat))
    models = [serve.deployment(name=name)(cls).bind() for cls, names in kinds for name in names]
    return serve.deployment(name="ModelIndex")(ModelIndex).bind(args, *models)
