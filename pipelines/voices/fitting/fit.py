"""Makes one voice, as a driver that decides what to try, while others do the trying.

`ask` gives trials, whoever runs them tells the outcomes, and so on until `ask` gives none. First a
search in generations, then a choice among the best that it found, then whether other formants help
it, then a last judgement of it with sentences and recordings that had no part in the search.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from configs.schema.custom_voices import FitConfig
from models.speaker.base import SpeakerEncoder
from pipelines.voices.fitting.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from pipelines.voices.fitting.features import pitch_marks
from pipelines.voices.fitting.formants import WARPS, better, warped
from pipelines.voices.fitting.prior.knowledge import FittingPrior, load_fitting_prior
from pipelines.voices.fitting.recordings import TargetSpeaker, decode_all, listen
from pipelines.voices.fitting.report import best_so_far, pitch_of, samples_of, spectrum_of
from pipelines.voices.fitting.search.search import Search, Searched, SearchTrial, Sound
from pipelines.voices.fitting.search.style_space import Vectors
from pipelines.voices.fitting.selection import Candidate, SelectionResult, candidates_of, verdict_of
from pipelines.voices.fitting.sentences import FALLBACK_LANGUAGE, sentences_of
from pipelines.voices.fitting.trials import Outcome, Report, Target, Trial, pack_of
from pipelines.voices.report import ReportedRating, StockSimilarity, VoiceReport

logger = logging.getLogger(__name__)

SEARCH_SHARE, CHOICE_SHARE = 0.85, 0.93  # of the progress, when they are over
LOOKED_BACK = 6  # generations that must have been better than as many before them
WORTH = 0.002  # of likeness, else the search is over
OTHER_LANGUAGE = 1000  # added to the numbers of sentences that are not those of the prior
STOCK = "stock "  # before the names of stock voices among those of candidates
TOO_UNLIKE = "similarity_too_low"
TOO_UNCLEAR = "speech_not_understood"
MOST_MORE_ERRORS = 0.2  # of words, than in the speech of a stock voice


@dataclass(frozen=True, slots=True)
class FittedVoice:
    """A voice that is good enough."""

    pack: bytes  # as models.tts.voice_pack writes it
    similarity: float  # of unseen sentences with recordings that were kept out of the fit
    report: Report


@dataclass(frozen=True, slots=True)
class FailedFit:
    """A voice that is not."""

    code: str
    reason: str  # for the caller, with what was reached
    report: Report


@dataclass
class FitProgress:
    """How far a fit has come, beside its search."""

    number: int = 0  # of the next trial
    seconds: float = 0.0  # of all attempts before this one
    evaluations: int = 0
    candidates: list[Candidate] = field(default_factory=list)
    choice: dict[str, SelectionResult] = field(default_factory=dict)  # by name
    warped: Candidate | None = None  # the choice with other formants, when that is worth a hearing
    looked: bool = False  # whether it was looked for
    with_warp: SelectionResult | None = None
    judgement: dict[str, SelectionResult] = field(default_factory=dict)


class Fit:
    """Deterministic for a seed, whatever the order of the outcomes of one `ask`."""

    def __init__(
        self,
        speaker: TargetSpeaker,
        language: str,
        gender: str,
        config: FitConfig,
        seed: int,
        *,
        knowledge: FittingPrior,
        british: bool = False,
        searched: Searched | None = None,
        progress: FitProgress | None = None,
    ) -> None:
        """Goes on from what was searched; blocking, a second. For callers: `begin`, `resume`.

        `british` is how English is said, and changes no other language.
        """
        self._began = time.monotonic()
        self._speaker = speaker
        self._config = config
        self._knowledge = knowledge
        self._language, self._sentences = sentences_of(language)
        self._first = 0 if self._language == FALLBACK_LANGUAGE else OTHER_LANGUAGE
        self._stock = knowledge.stock_for(speaker, language, gender, british=british)
        self._search = Search(
            knowledge.space,
            knowledge.prior,
            speaker,
            config.search,
            config.generation,
            seed,
            searched,
        )
        self._progress = progress or FitProgress()
        self._attempts: list[SearchTrial] = []
        self._names: dict[int, str] = {}  # of the voice that each trial of a judgement speaks with
        self._heard: list[Outcome] = []  # in the last judgement
        self.target = Target(
            speaker.embedding, speaker.held_out, self._language, knowledge.space.rows, british
        )

    @classmethod
    def begin(
        cls,
        recordings: Sequence[bytes],
        language: str,
        gender: str,
        config: FitConfig,
        encoder: SpeakerEncoder,
        seed: int,
        knowledge: FittingPrior | None = None,
    ) -> "Fit":
        """Decodes and listens; blocking, some seconds. Raises InvalidAudio or EngineError."""
        return cls.resume(recordings, language, gender, config, encoder, seed, None, knowledge)

    @classmethod
    def resume(
        cls,
        recordings: Sequence[bytes],
        language: str,
        gender: str,
        config: FitConfig,
        encoder: SpeakerEncoder,
        seed: int,
        state: bytes | None,
        knowledge: FittingPrior | None = None,
        *,
        british: bool = False,
    ) -> "Fit":
        """Goes on where `state` was taken; one that cannot be read begins anew. Else as `begin`."""
        speaker = listen(decode_all(recordings), encoder)
        knowledge = knowledge or load_fitting_prior()
        searched: Searched | None = None
        progress: FitProgress | None = None
        if state is not None:
            try:
                searched, progress = read_checkpoint(state, FitProgress, knowledge.space.size)
            except CheckpointError as error:
                logger.warning("voice_fit_begun_anew", extra={"reason": str(error)})
        return cls(
            speaker,
            language,
            gender,
            config,
            seed,
            knowledge=knowledge,
            british=british,
            searched=searched,
            progress=progress,
        )

    @property
    def progress(self) -> float:
        """0 to 1."""
        state = self._progress
        if state.judgement:
            return 1.0
        if state.choice:
            return CHOICE_SHARE
        if state.candidates:
            return SEARCH_SHARE
        return SEARCH_SHARE * min(1.0, state.evaluations / self._config.evaluations)

    def ask(self) -> list[Trial]:
        """The next trials, in any order and on any worker; none when all is done."""
        state = self._progress
        self._names = {}
        if state.judgement:
            return []
        if state.choice:
            return self._warping() or self._judging()
        if state.candidates:
            return self._choosing()
        left = max(1, self._config.evaluations - state.evaluations)
        self._attempts = self._search.next_generation(
            min(self._config.generation, left),
            range(self._first, self._first + len(self._sentences.search)),
        )
        return [self._tried(one) for one in self._attempts]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """One for each trial that was asked for, in any order; blocking, up to a second."""
        state = self._progress
        ordered = sorted(outcomes, key=lambda one: one.number)
        if state.choice and not state.looked:
            state.warped = warped(self._chosen(), ordered, self.target)
            state.looked = True
        elif state.warped and not state.with_warp:
            state.with_warp = verdict_of(ordered, self.target)
        elif state.choice:
            self._heard = ordered
            state.judgement = self._verdicts(ordered)
        elif state.candidates:
            state.choice = self._verdicts(ordered)
        else:
            self._search.learn(self._attempts, [_sound_of(one) for one in ordered])
            state.evaluations += len(ordered)
            if self._is_searched():
                state.candidates = candidates_of(self._knowledge.space, self._search.searched)

    def state(self) -> bytes:
        """A checkpoint for `resume`, under a megabyte; between `tell` and `ask`."""
        seconds = self._progress.seconds + time.monotonic() - self._began
        # The sound of the last judgement is not kept, so it is made anew.
        progress = replace(self._progress, seconds=seconds, judgement={})
        return write_checkpoint(self._search.searched, progress)

    def result(self) -> FittedVoice | FailedFit:
        """After `ask` gave none."""
        chosen = self._chosen()
        verdict = self._progress.judgement[chosen.name]
        report = self._report(verdict).model_dump(mode="json")
        floor = self._config.min_similarity
        if verdict.held_out < floor:
            reason = (
                f"the voice became only {verdict.held_out:.2f} like its recordings, and "
                f"{floor:g} is needed; longer and cleaner recordings may help"
            )
            return FailedFit(TOO_UNLIKE, reason, report)
        stock = self._progress.judgement[STOCK + self._stock.native]
        if (verdict.error_rate or 0.0) > (stock.error_rate or 0.0) + MOST_MORE_ERRORS:
            reason = (
                f"{verdict.error_rate:.0%} of the words that the voice says are not understood; "
                "cleaner recordings may help"
            )
            return FailedFit(TOO_UNCLEAR, reason, report)
        style = np.array(chosen.style, np.float32)
        rate = self._heard[0].sample_rate
        pack = pack_of(self.target, style, [chosen.bands], rate, chosen.warp)
        return FittedVoice(pack, verdict.held_out, report)

    def final_trial(self) -> Trial:
        """Speaks with the voice as it is in the result; give it another text and number."""
        return self._judged(self._chosen(), self._sentences.judge[0])

    def _is_searched(self) -> bool:
        """All was tried that may be, or trying more has not helped for a while."""
        if self._progress.evaluations >= self._config.evaluations:
            return True
        likeness = [value for _, value in self._search.searched.curve]
        if len(likeness) < 2 * LOOKED_BACK:
            return False
        before, since = likeness[-2 * LOOKED_BACK : -LOOKED_BACK], likeness[-LOOKED_BACK:]
        return float(np.mean(since)) < float(np.mean(before)) + WORTH

    def _tried(self, attempt: SearchTrial) -> Trial:
        return self._trial(
            self._sentences.search[attempt.sentence - self._first],
            self._knowledge.space.style(attempt.point),
            attempt.bands,
        )

    def _choosing(self) -> list[Trial]:
        """Candidates and a stock voice, with sentences of the search."""
        texts = self._sentences.search[: self._config.choice_sentences]
        trials = [self._judged(one, text) for one in self._progress.candidates for text in texts]
        return trials + [self._stock_judged(self._stock.native, text) for text in texts]

    def _warping(self) -> list[Trial]:
        """The choice through all warps, then with the best of them as it would be spoken."""
        state, texts = self._progress, self._sentences.search[: self._config.choice_sentences]
        if not state.looked:
            heard = [self._judged(self._chosen(), text) for text in texts]
            return [replace(one, judge=False, warps=WARPS) for one in heard]
        if state.warped and not state.with_warp:
            return [self._judged(state.warped, text) for text in texts]
        return []

    def _judging(self) -> list[Trial]:
        """The voice and two stock voices, with sentences that were never heard."""
        chosen, texts = self._chosen(), self._sentences.judge[: self._config.judge_sentences]
        trials = [self._judged(chosen, text, keep=text == texts[0]) for text in texts]
        voices = dict.fromkeys((self._stock.nearest, self._stock.native))
        return trials + [self._stock_judged(name, text) for name in voices for text in texts]

    def _trial(self, text: str, style: Vectors, filters: Vectors) -> Trial:
        self._progress.number += 1
        bands = tuple(tuple(one) for one in filters.tolist())
        return Trial(self._progress.number, text, style.astype(np.float32), filters=bands)

    def _judged(self, one: Candidate, text: str, *, keep: bool = False) -> Trial:
        trial = self._trial(text, np.array(one.style), np.array([one.bands]))
        self._names[trial.number] = one.name
        return replace(trial, warp=one.warp, judge=True, keep_sound=keep)

    def _stock_judged(self, voice: str, text: str) -> Trial:
        """By its style: the engine may not offer that voice here, for want of its phonemes."""
        space = self._knowledge.space
        self._progress.number += 1
        self._names[self._progress.number] = STOCK + voice
        style = space.stock[space.names.index(voice)].astype(np.float32)
        return Trial(self._progress.number, text, style, judge=True)

    def _verdicts(self, outcomes: Sequence[Outcome]) -> dict[str, SelectionResult]:
        of_names: dict[str, list[Outcome]] = {}
        for one in outcomes:
            of_names.setdefault(self._names[one.number], []).append(one)
        return {name: verdict_of(some, self.target) for name, some in of_names.items()}

    def _chosen(self) -> Candidate:
        state, plain = self._progress, self._plain()
        if state.warped is None or state.with_warp is None:
            return plain
        stock = state.choice[STOCK + self._stock.native]
        floor = self._config.min_quality
        stays = better(state.with_warp, state.choice[plain.name], stock, floor)
        return state.warped if stays else plain

    def _plain(self) -> Candidate:
        """The choice, with the formants of its style."""
        choice = self._progress.choice
        stock = choice[STOCK + self._stock.native]
        floor = self._config.min_quality
        return max(self._progress.candidates, key=lambda one: choice[one.name].score(stock, floor))

    def _report(self, verdict: SelectionResult) -> VoiceReport:
        state, speaker = self._progress, self._speaker
        stock = state.judgement[STOCK + self._stock.native]
        nearest = state.judgement[STOCK + self._stock.nearest]
        sound = next((one.sound for one in self._heard if one.sound is not None), None)
        samples = None
        if sound is not None:
            clone = np.asarray(sound / 32768, np.float32)
            samples = samples_of(self._sentences.judge[0], speaker.excerpt, clone)
        return VoiceReport(
            evaluations=state.evaluations,
            seconds=round(state.seconds + time.monotonic() - self._began, 1),
            similarity_curve=best_so_far(self._search.searched.curve),
            stock=[
                StockSimilarity(
                    voice=name,
                    name=self._knowledge.titles.get(name),
                    similarity=round(value, 4),
                )
                for name, value in self._stock.similarities
            ],
            pitch=pitch_of(speaker.pitches, np.array(verdict.pitches, np.float32)),
            spectrum=spectrum_of(speaker.spectrum.astype(np.float64), np.array(verdict.spectrum)),
            judged=ReportedRating(
                similarity=verdict.held_out,
                stock_similarity=max(stock.held_out, nearest.held_out),
                wer=verdict.error_rate,
                stock_wer=stock.error_rate,
                dnsmos=verdict.quality,
                stock_dnsmos=stock.quality,
            ),
            formants=self._chosen().warp,
            samples=samples,
        )


def _sound_of(outcome: Outcome) -> Sound:
    return Sound(
        outcome.embeddings, pitch_marks(outcome.pitches), outcome.spectrum, outcome.duration_s > 0
    )
