"""The Ray job that does a job of a workspace: python -m deployments.leased_work.long_job JOB LEASE
CLUSTER

The process runs only on otherwise idle cores, with models of its own: the replicas that serve
requests do none of its work. Only models on a GPU, which has no such priorities, are shared with
the replicas. The exit status is that of `deployments.leased_work.job`.
"""

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

from api.deepgram.recordings import answer_callback
from api.openai.batches.lines import answer_line
from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from configs.settings import load_settings
from deployments.cluster.shared_stores import open_database
from deployments.gateway.services import gateway_services
from deployments.leased_work.evaluators import JOB_SHARE, lower_priority
from deployments.leased_work.job import deployed_models, run, until_stopped
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.model import ModelDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment
from models.base import ModelInfo
from models.memory import give_back
from pipelines.jobs.leases import until_available
from pipelines.jobs.runner import JobRunner
from pipelines.tasks import TaskSet

# Replicas release memory when idle, which a job never is. Measured on ten hours of audio: 1.20 GB
# on average in the fourth hour, 1.24 GB in the tenth; without releases 1.28 GB in the fifth.
GIVE_BACK_S = 30.0


def own_model(info: ModelInfo, base: type[ModelDeployment[Any]]) -> Any:
    """Return a port of a model that is loaded in this process at its first use."""

    class OwnModel(base):  # type: ignore[misc, valid-type]
        async def describe(self) -> ModelInfo:
            return info

        def _current(self) -> Any:
            if getattr(self, "_loaded", None) is None:
                self._loaded: Any = self.load_now(info.config)
            return self._loaded

    return OwnModel()


async def work(job_id: UUID, lease: str) -> int:
    """Run one attempt, if the job still has this lease; return the exit status."""
    lower_priority(JOB_SHARE)  # applies to everything that this thread starts: the whole process
    settings = load_settings(new=False)
    (await until_available(partial(open_database, settings, in_cluster=True))).close()
    directory = await deployed_models()
    replace_models(directory.speakers, TTSDeployment)
    replace_models(directory.transcribers, STTDeployment)
    replace_models(directory.chat_models, ChatDeployment)
    services = gateway_services(settings, directory)
    speech, chat = services.speech, services.chat
    jobs, stt = speech.jobs, speech.transcription.pipeline
    claimed = await until_available(partial(jobs.claimed, job_id, lease))
    if claimed is None:
        return 0
    async with speech.decoder:
        background = TaskSet()
        background.start(_give_back_often())
        config = load_yaml(JobsConfig, "jobs")
        speakers, answer = speech.speakers.known, partial(answer_line, chat)
        runner = JobRunner(jobs, config, stt, speech.synthesis, speakers, answer, answer_callback)
        give_back = partial(jobs.give_back, claimed)
        status = await until_stopped(job_id, runner.run(claimed), give_back)
        await services.platform.billing.wait_for_settlements()  # settlements of interrupted lines
        return status


async def _give_back_often() -> None:
    while True:
        await asyncio.sleep(GIVE_BACK_S)
        await asyncio.to_thread(give_back)


def replace_models(ports: dict[str, Any], base: type[ModelDeployment[Any]]) -> None:
    """Replace the models that compute on the CPU with models of this process."""
    for name, port in ports.items():
        if port.info is not None and port.info.device == "cpu":
            ports[name] = own_model(port.info, base)


if __name__ == "__main__":
    run(work)
