"""Fits one custom voice: decides which trials to run, and learns from their outcomes.

The caller runs the trials of `next_trials`, and passes the outcomes to `observe`, until there are
no more trials. A search in generations comes first, then a selection among its best candidates,
then a rating of the selected voice with sentences and recordings that the search did not use."""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from configs.schema.voices import FitConfig
from models.audio import pcm16_to_float
from models.speaker.base import SpeakerEncoder, mean_embedding
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.voices.fitting.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from pipelines.voices.fitting.features import TargetSpeaker, analyse, decode_all
from pipelines.voices.fitting.prior import FittingPrior, load_fitting_prior
from pipelines.voices.fitting.search.search import Search, SearchState, SearchTrial
from pipelines.voices.fitting.selection import (
    QUALITY_SLACK,
    Candidate,
    SelectionResult,
    candidates_of,
    selection_result,
)
from pipelines.voices.fitting.trials import (
    Outcome,
    Target,
    Trial,
    load_second_encoder,
    pack_of,
    sentences_of,
)
from pipelines.voices.report import (
    FailedFit,
    FittedVoice,
    Judged,
    Preview,
    StockSimilarity,
    VoiceReport,
    best_so_far,
    ogg_opus,
    pitch_of,
    samples_of,
    spectrum_of,
    too_unlike,
)

logger = logging.getLogger(__name__)

SEARCH_SHARE, CHOICE_SHARE = 0.85, 0.93  # progress at the end of the search and of the selection
WINDOW = 6  # generations whose mean is compared with that of the WINDOW before
MIN_GAIN = 0.002  # gain in similarity below which the search ends
OTHER_LANGUAGE = 1000  # added to the numbers of sentences that are not those of the prior
STOCK = "stock "  # prefix of the names of stock voices among those of candidates
REPLACED = "replaced"  # the name of the voice that the new one is to replace
TOO_UNCLEAR = "speech_not_understood"
MAX_EXTRA_ERRORS = 0.2  # word errors above those of a stock voice


@dataclass
class FitProgress:
    """The state of a fit except its search. Checkpoints have these fields as JSON."""

    number: int = 0  # number of the next trial
    seconds: float = 0.0  # duration of all attempts before this one
    evaluations: int = 0
    candidates: list[Candidate] = field(default_factory=list)
    choice: dict[str, SelectionResult] = field(default_factory=dict)  # results by name
    judgement: dict[str, SelectionResult] = field(default_factory=dict)


class Fit:
    """A fit, which is deterministic for a seed, whatever the order of a step's outcomes."""

    def __init__(
        self,
        speaker: TargetSpeaker,
        language: str,
        gender: str,
        config: FitConfig,
        prior: FittingPrior,
        british: bool = False,
        searched: SearchState | None = None,
        progress: FitProgress | None = None,
    ) -> None:
        """Continue from `searched`; blocking, a second. Callers use `begin`. `british` is the
        accent of English."""
        self.preview: Preview | None = None
        self.replaced: bytes | None = None  # the pack of an earlier voice, rated beside the new one
        self._began = time.monotonic()
        self._speaker = speaker
        self._config = config
        self._prior = prior
        self._language, self._sentences = sentences_of(language)
        self._first = 0 if self._language == FALLBACK_LANGUAGE else OTHER_LANGUAGE
        self._stock, self._native = prior.stock_for(speaker, language, gender, british=british)
        floor = max(config.min_quality, prior.quality_of(self._native) - QUALITY_SLACK)
        wanted = config.model_copy(update={"min_quality": floor})
        self._search = Search(prior, speaker, wanted, searched)
        self._progress = progress or FitProgress()
        self._attempts: list[SearchTrial] = []
        self._names: dict[int, str] = {}  # names of voices by rated trial
        self._rated: list[Outcome] = []  # outcomes of the final trials
        rows = prior.space.rows
        self.target = Target(
            speaker.embedding, speaker.held_out, speaker.second[1], self._language, rows, british
        )

    @classmethod
    def begin(
        cls,
        recordings: Sequence[bytes],
        language: str,
        gender: str,
        config: FitConfig,
        encoder: SpeakerEncoder,
        *,
        checkpoint: bytes | None = None,
        prior: FittingPrior | None = None,
        british: bool = False,
    ) -> "Fit":
        """Continue from a `checkpoint`, if it is given and readable. Decodes and measures;
        blocking, some seconds. Raises InvalidAudio or EngineError."""
        speaker = analyse(decode_all(recordings), encoder, load_second_encoder())
        prior = prior or load_fitting_prior()
        search: SearchState | None = None
        progress: FitProgress | None = None
        if checkpoint:
            try:
                search, progress = read_checkpoint(checkpoint, FitProgress, prior.space.size)
            except CheckpointError as error:
                logger.warning("voice_fit_restarted", extra={"reason": str(error)})
        return cls(speaker, language, gender, config, prior, british, search, progress)

    @property
    def progress(self) -> float:
        """Return the progress, 0 to 1."""
        state = self._progress
        if state.judgement:
            return 1.0
        if state.choice:
            return CHOICE_SHARE
        if state.candidates:
            return SEARCH_SHARE
        return SEARCH_SHARE * min(1.0, state.evaluations / self._config.evaluations)

    def next_trials(self) -> list[Trial]:
        """Return independent trials; none when the fit is finished."""
        state = self._progress
        self._names = {}
        if state.judgement:
            return []
        if state.choice:
            return self._final_trials()
        if state.candidates:
            return self._selection_trials()
        left = max(1, self._config.evaluations - state.evaluations)
        self._attempts = self._search.next_generation(
            min(self._config.generation, left),
            range(self._first, self._first + len(self._sentences.search)),
        )
        return [
            self._trial(
                self._sentences.search[attempt.sentence - self._first],
                self._prior.space.style(attempt.point),
                attempt.bands.tolist(),
                keep=attempt is self._attempts[0],  # the best so far, for the preview
            )
            for attempt in self._attempts
        ]

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Take an outcome for each of the last trials, in any order; blocking, up to a second."""
        state = self._progress
        ordered = sorted(outcomes, key=lambda outcome: outcome.number)
        if state.choice:
            self._rated = ordered
            state.judgement = self._results(ordered)
        elif state.candidates:
            state.choice = self._results(ordered)
        else:
            self._search.observe(self._attempts, ordered)
            state.evaluations += len(ordered)
            if (sound := ordered[0].sound) is not None:
                spoken = [outcome.embeddings[0] for outcome in ordered if outcome.duration_s > 0]
                similarity = float(mean_embedding(np.stack(spoken)) @ self.target.held_out)
                self.preview = ogg_opus(pcm16_to_float(sound.tobytes())), similarity
            if self._is_searched():
                state.candidates = candidates_of(self._prior.space, self._search.state)

    def checkpoint(self) -> bytes:
        """Return the state for `begin`, under a megabyte; call it after `observe`."""
        seconds = self._progress.seconds + time.monotonic() - self._began
        # The audio of the final rating is not kept, so its trials are run again.
        progress = replace(self._progress, seconds=seconds, judgement={})
        return write_checkpoint(self._search.state, progress)

    def result(self) -> FittedVoice | FailedFit:
        """Return the voice or the failure, when there are no more trials."""
        chosen = self._chosen()
        rating = self._progress.judgement[chosen.name]
        report = self._report(rating)
        if rating.held_out < self._config.min_similarity:
            return too_unlike(rating.held_out, self._config.min_similarity, report)
        stock = self._progress.judgement[STOCK + self._native]
        if (rating.error_rate or 0.0) > (stock.error_rate or 0.0) + MAX_EXTRA_ERRORS:
            reason = (
                f"{rating.error_rate:.0%} of the words that the voice says are not understood; "
                "cleaner recordings may help"
            )
            return FailedFit(TOO_UNCLEAR, reason, report)
        style = np.array(chosen.style, np.float32)
        pack = pack_of(self.target, style, [chosen.bands], self._rated[0].sample_rate)
        return FittedVoice(pack, rating.held_out, report)

    def _is_searched(self) -> bool:
        """Whether the evaluations are used up, or the last generations were no better."""
        if self._progress.evaluations >= self._config.evaluations:
            return True
        curve = [value for _, value in self._search.state.curve]
        if len(curve) < 2 * WINDOW:
            return False
        before, since = curve[-2 * WINDOW : -WINDOW], curve[-WINDOW:]
        return float(np.mean(since)) < float(np.mean(before)) + MIN_GAIN

    def _selection_trials(self) -> list[Trial]:
        """Return trials of candidates and a stock voice, with sentences of the search."""
        texts = self._sentences.search[: self._config.choice_sentences]
        trials = [
            self._rated_trial(candidate, text)
            for candidate in self._progress.candidates
            for text in texts
        ]
        return trials + [self._stock_trial(self._native, text) for text in texts]

    def _final_trials(self) -> list[Trial]:
        """Return trials of the voice and two stock voices, with new sentences."""
        chosen, texts = self._chosen(), self._sentences.judge[: self._config.judge_sentences]
        trials = [self._rated_trial(chosen, text, keep=text == texts[0]) for text in texts]
        voices = dict.fromkeys((self._stock[0][0], self._native))
        if self.replaced is not None:
            spoken = [self._trial(text, (), name=REPLACED) for text in texts]
            trials += [replace(trial, style=None, pack=self.replaced) for trial in spoken]
        return trials + [self._stock_trial(name, text) for name in voices for text in texts]

    def _trial(
        self,
        text: str,
        style: ArrayLike,
        filters: Iterable[Iterable[float]] = (),
        *,
        name: str | None = None,
        keep: bool = False,
    ) -> Trial:
        """Makes a trial, whose speech is rated when it has the `name` of a voice."""
        self._progress.number += 1
        number, rate = self._progress.number, name is not None
        if name is not None:
            self._names[number] = name
        bands = tuple(tuple(levels) for levels in filters)
        values = np.asarray(style, np.float32)
        return Trial(number, text, values, filters=bands, rate=rate, keep_sound=keep)

    def _rated_trial(self, one: Candidate, text: str, *, keep: bool = False) -> Trial:
        return self._trial(text, one.style, [one.bands], name=one.name, keep=keep)

    def _stock_trial(self, voice: str, text: str) -> Trial:
        """Return a trial of a stock voice by its style, as the engine may not offer the voice."""
        space = self._prior.space
        return self._trial(text, space.stock[space.names.index(voice)], name=STOCK + voice)

    def _results(self, outcomes: Sequence[Outcome]) -> dict[str, SelectionResult]:
        of_names: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            of_names.setdefault(self._names[outcome.number], []).append(outcome)
        return {name: selection_result(some, self.target) for name, some in of_names.items()}

    def _chosen(self) -> Candidate:
        choice = self._progress.choice
        stock = choice[STOCK + self._native]
        floor = self._config.min_quality
        return max(self._progress.candidates, key=lambda one: choice[one.name].score(stock, floor))

    def _report(self, rating: SelectionResult) -> VoiceReport:
        state, speaker, titles = self._progress, self._speaker, self._prior.titles
        stock = state.judgement[STOCK + self._native]
        nearest = state.judgement[STOCK + self._stock[0][0]]
        replaced = state.judgement.get(REPLACED)
        sound = next((rated.sound for rated in self._rated if rated.sound is not None), None)
        return VoiceReport(
            evaluations=state.evaluations,
            seconds=round(state.seconds + time.monotonic() - self._began, 1),
            similarity_curve=best_so_far(self._search.state.curve),
            stock=[
                StockSimilarity(voice=key, name=titles.get(key), similarity=round(value, 4))
                for key, value in self._stock
            ],
            pitch=pitch_of(speaker.pitches, np.array(rating.pitches, np.float32)),
            spectrum=spectrum_of(speaker.spectrum.astype(np.float64), np.array(rating.spectrum)),
            judged=Judged(
                similarity=rating.held_out,
                stock_similarity=max(stock.held_out, nearest.held_out),
                replaced_similarity=None if replaced is None else replaced.held_out,
                recordings_similarity=float(speaker.embedding @ speaker.held_out),
                second_similarity=rating.second,
                stock_second_similarity=max(
                    (rated.second for rated in (stock, nearest) if rated.second is not None),
                    default=None,
                ),
                recordings_second_similarity=float(speaker.second[0] @ speaker.second[1]),
                wer=rating.error_rate,
                stock_wer=stock.error_rate,
                dnsmos=rating.quality,
                stock_dnsmos=stock.quality,
            ),
            samples=samples_of(self._sentences.judge[0], speaker.excerpt, sound),
        )
