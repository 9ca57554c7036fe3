"""Recognisers in ONNX: NVIDIA's Parakeet and other NeMo models by onnx-asr, and Moonshine. Their
decoders take no prompt, so key terms have no effect. They report no language."""

from collections.abc import Callable, Sequence
from pathlib import Path

from configs.schema.models.stt import OnnxAsrConfig
from models.audio import Pcm
from models.runtimes.onnx import CPU, session_options
from models.stt.base import STTCapabilities, STTEngine, Transcript, TranscriptionRequest, is_audible
from models.stt.moonshine import Moonshine
from models.stt.tokens import RecognisedToken, transcript_of
from models.weights.store import WeightStore


class OnnxAsrEngine(STTEngine):
    """Recogniser in ONNX; decodes requests separately, `workers` of them in parallel."""

    def __init__(self, config: OnnxAsrConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.artefact)
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
        files |= weights.converted(config.artefact)
        is_moonshine = config.architecture == "moonshine"
        self._network: Moonshine | NemoNetwork = (
            Moonshine(files, config.threads, config.max_tokens_per_s)
            if is_moonshine
            else NemoNetwork(config, folder)
        )
        self.capabilities = STTCapabilities(
            languages=config.languages, max_concurrency=config.workers, word_times=not is_moonshine
        )

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        for request in requests:
            self.capabilities.check(request)
        return [
            transcript_of(
                self._network.recognise(request.pcm, request.budget.is_wanted)
                if is_audible(request.pcm) and request.budget.is_wanted()
                else (),
                request,
                self.capabilities.languages,
            )
            for request in requests
        ]


class NemoNetwork:
    """FastConformer of NeMo with a TDT, RNN-T or CTC decoder (Xu et al., "Efficient Sequence
    Transduction by Jointly Predicting Tokens and Durations", 2023)."""

    def __init__(self, config: OnnxAsrConfig, folder: Path) -> None:
        import onnx_asr  # only this architecture needs it

        self._recogniser = onnx_asr.load_model(
            config.architecture,
            folder,
            quantization=config.quantization,
            sess_options=session_options(config.threads),
            providers=CPU,
        ).with_timestamps()

    def recognise(self, pcm: Pcm, is_wanted: Callable[[], bool]) -> list[RecognisedToken]:
        """Decodes greedily, with start times, to the end even if `is_wanted` becomes false."""
        result = self._recogniser.recognize(pcm)
        tokens = zip(
            result.tokens or (), result.logprobs or (), result.timestamps or (), strict=True
        )
        return [
            RecognisedToken(token.encode(), float(logprob), start_s)
            for token, logprob, start_s in tokens
            if not (token.startswith("<") and token.endswith(">"))
        ]
