"""Whisper by CTranslate2, decoded in batches, guarded against hallucinations.

The model is that of Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision"
(2022); the tokenizer, the features and the alignment are those of faster-whisper.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens
from tokenizers import Tokenizer as Vocabulary

from configs.schema.models.stt import WhisperConfig, WhisperGuards
from models.stt import coverage
from models.stt.base import (
    INTERIM,
    LEAST_PROBABILITY,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    UNSPACED,
    Segment,
    STTCapabilities,
    STTEngine,
    Transcript,
    TranscriptionRequest,
    Word,
    is_audible,
)
from models.stt.coverage import words_of
from models.stt.tokens import compression_ratio
from models.stt.whisper import key_terms, languages, prompts
from models.stt.whisper.alignment import MEL_FRAMES_PER_S, words_from
from models.stt.whisper.calls import CallAbandoned
from models.stt.whisper.encoder_window import (
    STATES_PER_S,
    WINDOW_STATES,
    EncoderWindow,
    States,
)
from models.stt.whisper.hallucination import (
    IMPROBABLE_LOGPROB,
    Decoding,
    HallucinationGuards,
    without_repetitions,
)
from models.stt.whisper.job import CALL_TOKENS, SPARE_TOKENS, DecodingJob, with_budget
from models.stt.whisper.native_script import ScriptTokens, foreign_letters, writer_of
from models.stt.whisper.processes import WhisperProcesses
from models.weights.store import WeightStore

LOOP_TOKENS = 4  # in a row that come once in a text after which a loop is left
MAX_TEXT = 224  # tokens: a half of the decoder's window, which the prompt leaves


class WhisperEngine(STTEngine):
    """Whisper: all 99 languages of its vocabulary, or English for an English model."""

    def __init__(self, config: WhisperConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.artefact)
        processes = WhisperProcesses(
            {
                "model_path": str(folder),
                "device": config.device,
                "compute_type": config.compute_type,
                "intra_threads": config.threads,
            },
            count=config.workers,
        )
        whisper = WhisperVocabulary(folder, processes)
        window = EncoderWindow(
            whisper.model,
            config.padding_s,
            config.min_window_s,
            # Named by the precision and a version of the calibration sounds.
            weights.derived(config.artefact, f"silence-{config.compute_type}-v1.npy"),
        )
        self._shortest_padding_s = config.padding_s
        self._begin(config, whisper, window, max_concurrency=config.workers, device=config.device)

    def _begin(
        self,
        config: WhisperGuards,
        whisper: "WhisperVocabulary",
        window: EncoderWindow,
        *,
        max_concurrency: int,
        device: str,
    ) -> None:
        self._config = config
        self._guards = HallucinationGuards(config.compression_ratio_threshold, config.retry_logprob)
        self._whisper = whisper
        self._model: Any = whisper.model
        self._window = window
        self.capabilities = STTCapabilities(
            languages=tuple(
                code
                for code in whisper.supported_languages
                if whisper.hf_tokenizer.token_to_id(f"<|{code}|>") is not None
                and (not config.languages or code in config.languages)
            ),
            max_concurrency=max_concurrency,
            max_batch_size=config.batch_size,
            translates=config.translates and whisper.model.is_multilingual,
            device=device,
            character_errors=tuple(config.character_errors.items()),
        )
        self._tokenizers: dict[tuple[str, bool], Tokenizer] = {}
        self._scripts = ScriptTokens(whisper.hf_tokenizer)

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        for request in requests:
            self.capabilities.check(request)
        return self._transcribe([with_budget(request) for request in requests])

    def _transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        jobs = list(map(DecodingJob, requests))
        return [
            self._with_missed(job, transcript) if job.request.speech else transcript
            for job, transcript in zip(jobs, self._hear(jobs), strict=True)
        ]

    def _with_missed(self, job: DecodingJob, whole: Transcript) -> Transcript:
        """The transcript, with the speech that it missed: decoded again with time tokens, which
        leave less out, then in two parts where speech is still without words.

        Of 290 sentences, some repeated, and of 319 in overlapping voices, in
        `benchmarks.stt.lost_speech`, parts alone lose 2 and 32, with time tokens 0 and 22,
        faster-whisper with a beam of 5 5 and 27. Time tokens without parts lose repeated ones.
        """
        request = job.request
        if not job.affords() or coverage.cut_at(request, words_of([whole])) is None:
            return whole
        known = replace(request.without_prompt, language=whole.language)
        (timed,) = self._hear([replace(job, request=known, times=True)])
        whole = max(
            whole, replace(whole, segments=timed.segments), key=lambda one: len(words_of([one]))
        )
        words = words_of([whole])
        if (at := coverage.cut_at(request, words)) is None:
            return whole
        if not job.affords(request.seconds):
            return whole
        parts = list(map(DecodingJob, coverage.cut(known, at, whole.language)))
        at_s = at / STT_SAMPLE_RATE
        if words and words[-1].end <= at_s:
            heard = [whole, *self._hear(parts[1:])]
        elif words and words[0].start >= at_s:
            shifted = tuple(one.shifted(-at_s) for one in whole.segments)
            heard = [*self._hear(parts[:1]), replace(whole, segments=shifted)]
        else:
            heard = self._hear(parts)
        if len(words_of(heard)) <= len(words):
            return whole
        return coverage.join(whole, list(map(self._with_missed, parts, heard)), at)

    def _in_parts(self, job: DecodingJob) -> Transcript | None:
        """A text that repeats itself is often that of speech that does: shorter parts do not, and
        take less time than more tries. None for speech without a pause."""
        request = job.request
        if len(request.speech) < 2 or not job.affords(request.seconds):
            return None
        if (at := coverage.cut_at(request, ())) is None:
            return None
        parts = self._transcribe(coverage.cut(request, at, job.language))
        whole = Transcript(job.language, job.probability, scores=job.scores)
        return coverage.join(whole, parts, at)

    def _hear(self, jobs: Sequence[DecodingJob]) -> list[Transcript]:
        transcripts = [  # the result of silence
            Transcript(job.request.language or (job.request.languages or ("en",))[0], 0.0)
            for job in jobs
        ]
        heard = [
            index
            for index, job in enumerate(jobs)
            if is_audible(job.request.pcm) and job.request.budget.is_wanted()
        ]
        begun = [jobs[index] for index in heard if not len(jobs[index].states)]
        for job, states in zip(begun, self._encode([one.request for one in begun]), strict=True):
            job.states = states
            self._choose_language(job)
            job.begin()
        groups: dict[tuple[object, ...], list[tuple[int, DecodingJob]]] = defaultdict(list)
        for index in heard:
            job = jobs[index]
            if job.request.budget.is_wanted():
                script = foreign_letters(job.written_in)
                kind = (job.request.beam_size, job.prompt, job.silence, script)
                groups[kind].append((index, job))
        for group in groups.values():
            for start in range(0, len(group), self._config.batch_size):
                batch = group[start : start + self._config.batch_size]
                try:
                    decodings = self._decode([job for _, job in batch])
                except CallAbandoned:
                    continue
                for (index, job), decoding in zip(batch, decodings, strict=True):
                    with suppress(CallAbandoned):
                        transcripts[index] = self._finish(job, decoding)
        return transcripts

    def _encode(self, requests: Sequence[TranscriptionRequest]) -> list[States]:
        """One by one: a batch takes CTranslate2 as long. Interims get the minimum of silence: they
        may be less accurate."""
        shortest_s = self._shortest_padding_s
        return [
            self._window.encode(one.pcm, shortest_s if one.urgency == INTERIM else None)
            for one in requests
        ]

    def _stack(self, jobs: Sequence[DecodingJob]) -> Any:
        """The input of the decoder, [jobs, n, width]: speech, then silence."""
        length = min(WINDOW_STATES, max(len(job.states) + job.silence for job in jobs))
        return self._view([self._window.fill(job.states, length) for job in jobs])

    def _view(self, states: Sequence[States]) -> Any:
        """The states in the type that `self._model` takes, [n, m, width]."""
        return np.stack(states)

    def _choose_language(self, job: DecodingJob) -> None:
        """Sets the language of a job, from its states without the cached silence if possible."""
        request = job.request
        if len(self.capabilities.languages) == 1:
            job.language = self.capabilities.languages[0]
        elif request.language:
            job.language = request.language
        elif len(request.languages) == 1:
            job.language = request.languages[0]
        elif self._detect(job, job.states) < languages.DOUBTFUL and not job.interim:
            self._detect(job, self._window.fill(job.states))

    def _detect(self, job: DecodingJob, states: States) -> float:
        """Sets the language; returns its probability."""
        ranking = self._model.detect_language(self._view([states]))[0]
        scores: dict[str, float] = {token[2:-2]: float(share) for token, share in ranking}
        allowed = job.request.languages or self.capabilities.languages
        job.language, job.probability = languages.chosen(scores, job.request.prior, allowed)
        job.scores = {
            code: scores[code] for code in allowed if scores.get(code, 0) > LEAST_PROBABILITY
        }
        return job.probability

    def _finish(self, job: DecodingJob, decoding: Decoding) -> Transcript:
        options = job.request.options
        if decoding.complete and not job.prompt:
            decoding = self._once(job, decoding)
        if self._guards.is_suspect(decoding):
            doubtful = decoding.avg_logprob < self._guards.retry_logprob
            silence = decoding.no_speech_prob > options.no_speech_threshold
            if job.prompt or job.interim or (doubtful and silence):
                return self._without_prompt(job)
            if self._guards.is_runaway(decoding):
                parts = self._in_parts(job)
                if parts is not None and parts.segments:
                    return parts
            if job.request.speech:  # missed speech is decoded afterwards
                decoding = self._once(job, decoding)
            if self._guards.is_suspect(decoding) and self._is_decoded_again(job, decoding):
                padding_s = self._config.retry_padding_s
                job.states = self._window.encode(job.request.pcm, padding_s)
                job.begin()
                (decoding,) = self._decode([job], self._config.retry_temperature)
            decoding = self._once(job, decoding)
        if not decoding.text or self._guards.is_hallucination(decoding, options):
            return self._without_prompt(job)
        words: tuple[Word, ...] = ()
        if job.prompt or options.words or job.request.speech:
            words = self._align_words(job, decoding)
        if job.prompt and (
            prompts.is_unsaid(words, job.prompt) or coverage.cut_at(job.request, words) is not None
        ):
            return self._without_prompt(job)
        if options.keyterms and (again := self._with_terms(job, decoding, words)) is not None:
            decoding = again
            words = self._align_words(job, decoding) if words else ()
        segment = Segment(
            text=decoding.text,
            start=words[0].start if words else 0.0,
            end=words[-1].end if words else job.request.seconds,
            avg_logprob=decoding.avg_logprob,
            no_speech_prob=decoding.no_speech_prob,
            words=words,
        )
        return Transcript(job.language, job.probability, (segment,), scores=job.scores)

    def _with_terms(
        self, job: DecodingJob, decoding: Decoding, words: Sequence[Word]
    ) -> Decoding | None:
        """Decoded again before the likely key terms; None if that finds no more of them."""
        options = job.request.options
        text = key_terms.doubtful_part(words) if words else decoding.text
        terms = key_terms.likely_terms(text, options.keyterms)
        if not self._is_said(job, decoding.text, terms):
            return None
        prompt = f"{', '.join(terms)}. {options.prompt}"
        options = replace(options, prompt=prompt)
        # With as little silence as an interim has: in 0.75 of the time.
        request = replace(job.request, options=options, urgency=INTERIM)
        (again,) = self._decode([replace(job, request=request)])
        more = key_terms.count(again.text, terms) > key_terms.count(decoding.text, terms)
        return again if more and not self._guards.is_suspect(again) else None

    def _is_said(self, job: DecodingJob, text: str, terms: Sequence[str]) -> bool:
        """Whether the speech makes one of the terms likely that the text lacks."""
        missing = [term for term in terms if not key_terms.count(text, [term])]
        if not missing or job.language in UNSPACED:
            return bool(missing)
        pieces = key_terms.replaced(text.split(), missing)
        tokens = [self._tokenizer(job).encode(f" {word}") for word, _ in pieces]
        logprobs = iter(self._logprobs(job, [token for piece in tokens for token in piece]))
        means = [fmean(next(logprobs) for _ in piece) for piece in tokens]
        least = math.log(key_terms.SAID)
        return any(mean > least for (_, term), mean in zip(pieces, means, strict=True) if term)

    def _once(self, job: DecodingJob, decoding: Decoding) -> Decoding:
        """The text; if it is repetitive, with each repetition only twice, if the speech makes that
        likely. It stays whole if it ended by itself, as when a word is said twenty times.

        The probabilities of repetitions say nothing: each makes the next more likely.
        """
        tokenizer = self._tokenizer(job)
        said = [token for token in decoding.tokens if token < tokenizer.eot]
        tokens = without_repetitions(said) if self._guards.repeats(decoding) else said
        if len(tokens) == len(said):
            return decoding
        text = decoding.write(tokenizer.decode(tokens)).strip()
        once = replace(
            decoding,
            tokens=tuple(tokens),
            text=text,
            avg_logprob=fmean(self._logprobs(job, tokens)),
            compression_ratio=compression_ratio(text),
            complete=True,
        )
        if self._guards.is_hallucination(once, job.request.options):
            return decoding
        whole = replace(once, tokens=decoding.tokens, text=decoding.text)
        return whole if decoding.complete else self._behind_loop(job, once)

    def _behind_loop(self, job: DecodingJob, once: Decoding) -> Decoding:
        """The text with what is said after its repetition, which the decoder did not leave."""
        budget = job.request.budget
        if budget.tokens < SPARE_TOKENS or not budget.is_wanted():
            return once
        (ended,) = self._decode([replace(job, no_repeat=LOOP_TOKENS)])
        lost = len(ended.text) < len(once.text)
        if lost or self._guards.is_hallucination(ended, job.request.options):
            return once
        return replace(ended, complete=True)

    def _align_words(self, job: DecodingJob, decoding: Decoding) -> tuple[Word, ...]:
        """The time of each word, from the decoder's attention."""
        tokenizer, duration_s = self._tokenizer(job), job.request.seconds
        text = [token for token in decoding.tokens if token < tokenizer.eot]
        if not text:
            return ()
        frames = max(2, int(duration_s * MEL_FRAMES_PER_S))
        states = self._view([job.states])
        alignment = self._whisper.find_alignment(tokenizer, [text], states, frames)[0]
        for timing in alignment:
            timing["word"] = decoding.write(timing["word"])
        return words_from(alignment, duration_s, is_spaced=job.language not in UNSPACED)

    def _logprobs(self, job: DecodingJob, tokens: Sequence[int]) -> list[float]:
        """The log probability of each token of a text, from the speech and the tokens before."""
        frames = max(2, int(job.request.seconds * MEL_FRAMES_PER_S))
        states, before = self._view([job.states]), self._tokenizer(job).sot_sequence
        (aligned,) = self._model.align(states, before, [tokens], frames, median_filter_width=7)
        return [math.log(probability + 1e-6) for probability in aligned.text_token_probs]

    def _is_decoded_again(self, job: DecodingJob, decoding: Decoding) -> bool:
        """Whether a suspect text is decoded again; a speculative one only if it is improbable.

        Measured on 29 doubtful clips: the character error rate is then 71 %, in place of 74 %, and
        a live text comes 0.3 s later. A runaway text is decoded again even after its deadline,
        since it would be dropped.
        """
        if not job.affords(job.request.seconds + self._config.retry_padding_s):
            return False
        if self._guards.is_runaway(decoding):
            return True
        useless = decoding.avg_logprob < IMPROBABLE_LOGPROB
        return job.in_time and (useless or job.request.urgency != SPECULATIVE)

    def _without_prompt(self, job: DecodingJob) -> Transcript:
        """Decodes a text that failed without its prompt, so that no prompt costs more than one try.

        No text if it had none, or for an interim, which would come too late.
        """
        if not job.prompt or job.interim or not job.request.budget.is_wanted():
            return Transcript(job.language, job.probability)
        job.request, job.is_again = job.request.without_prompt, True
        return self._finish(job, self._decode([job])[0])

    def _decode(
        self, jobs: Sequence[DecodingJob], temperature: float | None = None
    ) -> list[Decoding]:
        """Texts of jobs that have the same beam size, initial prompt and scripts.

        Durations bound their lengths, at first by what speech usually has. A text that is longer
        than that, and is no repetition, is decoded again up to the most that speech has.
        """
        decodings = self._generate(jobs, [job.usual_tokens for job in jobs], temperature)
        for index, (job, decoding) in enumerate(zip(jobs, decodings, strict=True)):
            most = min(MAX_TEXT, job.left)
            if (
                not (decoding.complete or job.prompt or job.interim)
                and len(decoding.tokens) < most
                and not self._guards.repeats(decoding)
                and job.request.budget.is_wanted()
            ):
                with suppress(CallAbandoned):  # the others of the batch keep their texts
                    decodings[index] = self._generate([job], [most], temperature)[0]
        return decodings

    def _generate(
        self, jobs: Sequence[DecodingJob], limits: Sequence[int], temperature: float | None
    ) -> list[Decoding]:
        """One call of the decoder, for texts of at most so many tokens."""
        begun = [self._prompt(job) for job in jobs]
        budgets = [id(job.request.budget) for job in jobs]  # parts share one
        shares = [job.left // budgets.count(id(job.request.budget)) for job in jobs]
        limits = [max(SPARE_TOKENS, min(pair)) for pair in zip(limits, shares, strict=True)]
        longest = min(MAX_TEXT, max(limits))
        sampling = {"sampling_topk": 0, "sampling_temperature": temperature}
        results = self._model.generate(
            self._stack(jobs),
            begun,
            is_wanted=lambda: any(job.request.budget.is_wanted() for job in jobs),
            beam_size=1 if temperature else jobs[0].request.beam_size,
            # The text gets the smaller of a half of it, and what the prompt leaves of it.
            max_length=max(2 * longest, len(begun[0]) + longest),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_blank=True,
            no_repeat_ngram_size=jobs[0].no_repeat or (prompts.NO_REPEAT if jobs[0].prompt else 0),
            suppress_tokens=[
                *get_suppressed_tokens(self._tokenizer(jobs[0]), [-1]),
                *self._scripts.forbidden(jobs[0].written_in),
            ],
            **(sampling if temperature else {}),
        )
        decodings = []
        for job, limit, result in zip(jobs, limits, results, strict=True):
            tokens = tuple(result.sequences_ids[0])
            whole = self._tokenizer(job).decode(list(tokens))
            write = writer_of(whole, job.written_in)
            text = write(whole).strip()
            job.request.budget.tokens -= CALL_TOKENS + len(tokens)
            decodings.append(
                Decoding(
                    tokens=tokens,
                    text=text,
                    # The library's mean is over the text; here the end counts as a token too.
                    avg_logprob=result.scores[0] * len(tokens) / (len(tokens) + 1),
                    no_speech_prob=result.no_speech_prob,
                    compression_ratio=compression_ratio(text) if text else 0.0,
                    complete=len(tokens) < min(limit, longest),
                    write=write,
                )
            )
        return decodings

    def _prompt(self, job: DecodingJob) -> list[int]:
        tokenizer = self._tokenizer(job)
        prompt: list[int] = []
        if job.prompt:
            text = tokenizer.encode(" " + job.prompt.strip())
            prompt = [tokenizer.sot_prev, *prompts.reduced(text, tokenizer.eot)]
        plain = () if job.times else (tokenizer.no_timestamps,)
        return [*prompt, *tokenizer.sot_sequence, *plain]

    def _tokenizer(self, job: DecodingJob) -> Tokenizer:
        key = language, translate = job.language, job.request.options.translate
        if key not in self._tokenizers:
            self._tokenizers[key] = Tokenizer(
                self._whisper.hf_tokenizer,
                self._model.is_multilingual,
                task="translate" if translate else "transcribe",
                language=language,
            )
        return self._tokenizers[key]


class WhisperVocabulary(WhisperModel):  # type: ignore[misc]  # it has no types
    """faster-whisper's tokenizer, languages and alignment, with another network."""

    def __init__(self, folder: Path, network: Any) -> None:
        """`network` has the methods of `WhisperProcesses`."""
        self.hf_tokenizer = Vocabulary.from_file(str(folder / "tokenizer.json"))
        self.tokens_per_second = STATES_PER_S
        self.model = network
