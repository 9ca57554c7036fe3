"""Whisper by CTranslate2, decoded in batches, guarded against hallucinations.

The model is that of Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision"
(2022); the tokenizer, the features and the alignment are those of faster-whisper.
"""

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import (
    get_compression_ratio,
    get_suppressed_tokens,
    merge_punctuations,
)

from configs.schema.models.stt import WhisperConfig, WhisperGuards
from models.stt import coverage
from models.stt.base import (
    INTERIM,
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
from models.stt.whisper import key_terms, prompts
from models.stt.whisper.encoder_window import WINDOW_S, WINDOW_STATES, EncoderWindow, States
from models.stt.whisper.hallucination import IMPROBABLE_LOGPROB, Decoding, HallucinationGuards
from models.stt.whisper.job import SPARE_TOKENS, DecodingJob, most_tokens, with_budget
from models.weights.store import WeightStore

MAX_TEXT = 224  # tokens: a half of the decoder's window, which the prompt leaves
# Below this probability the filled window is used, five times slower. Measured on 88 clips of 1 to
# 4 s in nine languages: of 17 below it 6 are right at first and 9 then, as with all 30 s encoded.
DOUBTFUL_LANGUAGE = 0.5
# The weight of the language of the last utterances, for each utterance in a row in it. Measured on
# 40 pieces of up to 6 s in nine languages: of changes to another language 1 % are missed after one
# utterance, 2 % after four. In live sessions of 33 English recordings no piece of 51 gets another
# language, in place of 3 with a weight of one, and the word error rate is 17.9 % in place of
# 19.5 %.
EXPECTED_WEIGHT = 5.0
MAX_EXPECTED_WEIGHT = 20.0
CERTAIN_LANGUAGE = 0.95  # the expected language has no weight from here on
MEL_FRAMES_PER_S = 100
PREPENDED = "\"'“¿([{-"  # marks that belong to the word after them
APPENDED = "\"'.。,，!！?？:：”)]}、"


class WhisperEngine(STTEngine):
    """Whisper: all 99 languages of its vocabulary, or English for an English model."""

    def __init__(self, config: WhisperConfig, weights: WeightStore) -> None:
        whisper = WhisperModel(
            str(weights.folder(config.artefact)),
            device=config.device,
            compute_type=config.compute_type,
            cpu_threads=config.threads,
            num_workers=config.workers,
            local_files_only=True,
        )
        window = EncoderWindow(
            whisper.model,
            config.padding_s,
            config.min_window_s,
            # Named by the precision and a version of the calibration sounds.
            weights.derived(config.artefact, f"silence-{config.compute_type}-v1.npy"),
        )
        self._full_window = config.window == "full"
        self._shortest_padding_s = config.padding_s
        self._begin(config, whisper, window, max_concurrency=config.workers, device=config.device)

    def _begin(
        self,
        config: WhisperGuards,
        whisper: WhisperModel,
        window: EncoderWindow,
        *,
        max_concurrency: int,
        device: str,
    ) -> None:
        """`whisper.model` is CTranslate2's, or has the same methods."""
        self._config = config
        self._guards = HallucinationGuards(config.compression_ratio_threshold)
        self._whisper = whisper
        self._model: ctranslate2.models.Whisper = whisper.model
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
        )
        self._tokenizers: dict[tuple[str, bool], Tokenizer] = {}

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        for request in requests:
            self.capabilities.check(request)
        a_second = self._config.max_tokens_per_s
        return self._transcribe_covered([with_budget(request, a_second) for request in requests])

    def _transcribe_covered(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        transcripts = self._transcribe(requests)
        for index, request in enumerate(requests):
            if request.speech:
                transcripts[index] = self._with_missed(request, transcripts[index])
        return transcripts

    def _with_missed(self, request: TranscriptionRequest, whole: Transcript) -> Transcript:
        """The transcript, with the speech that it missed: decoded again with time tokens, which
        leave less out, then in two parts where speech is still without words.

        Of 290 sentences, some repeated, and of 319 in overlapping voices, in
        `benchmarks.stt.lost_speech`, parts alone lose 2 and 32, with time tokens 0 and 22,
        faster-whisper with a beam of 5 5 and 27. Time tokens without parts lose repeated ones.
        """
        if request.budget.is_spent or coverage.cut_at(request, words_of([whole])) is None:
            return whole
        known = replace(request.without_prompt, language=whole.language)
        (timed,) = self._transcribe([known], times=True)
        whole = max(
            whole, replace(whole, segments=timed.segments), key=lambda one: len(words_of([one]))
        )
        words = words_of([whole])
        if (at := coverage.cut_at(request, words)) is None:
            return whole
        parts = coverage.cut(known, at, whole.language)
        at_s = at / STT_SAMPLE_RATE
        if words and words[-1].end <= at_s:
            heard = [whole, *self._transcribe(parts[1:])]
        elif words and words[0].start >= at_s:
            shifted = tuple(one.shifted(-at_s) for one in whole.segments)
            heard = [*self._transcribe(parts[:1]), replace(whole, segments=shifted)]
        else:
            heard = self._transcribe(parts)
        if len(words_of(heard)) <= len(words):
            return whole
        return coverage.join(whole, list(map(self._with_missed, parts, heard)), at)

    def _in_parts(self, job: DecodingJob) -> Transcript | None:
        """A text that repeats itself is often that of speech that does: shorter parts do not, and
        take less time than more tries. None for speech without a pause."""
        if job.request.budget.is_spent or len(job.request.speech) < 2:
            return None
        if (at := coverage.cut_at(job.request, ())) is None:
            return None
        parts = self._transcribe_covered(coverage.cut(job.request, at, job.language))
        return coverage.join(Transcript(job.language, job.probability), parts, at)

    def _transcribe(
        self, requests: Sequence[TranscriptionRequest], *, times: bool = False
    ) -> list[Transcript]:
        began = time.monotonic()
        transcripts = [  # the result of silence
            Transcript(request.language or (request.languages or ("en",))[0], 0.0)
            for request in requests
        ]
        heard = [
            index
            for index, request in enumerate(requests)
            if is_audible(request.pcm) and request.budget.is_wanted()
        ]
        encoded = self._encode([requests[index] for index in heard])
        groups: dict[tuple[object, ...], list[tuple[int, DecodingJob]]] = defaultdict(list)
        for index, states in zip(heard, encoded, strict=True):
            request = requests[index]
            within_s = math.inf if request.retry_within_s is None else request.retry_within_s
            job = DecodingJob(request, states, began + within_s, times=times)
            self._choose_language(job)
            groups[request.options.beam_size, job.prompt, job.silence].append((index, job))
        for group in groups.values():
            for start in range(0, len(group), self._config.batch_size):
                batch = group[start : start + self._config.batch_size]
                decodings = self._decode([job for _, job in batch])
                for (index, job), decoding in zip(batch, decodings, strict=True):
                    transcripts[index] = self._finish(job, decoding)
        return transcripts

    def _encode(self, requests: Sequence[TranscriptionRequest]) -> list[States]:
        """One by one: a batch takes CTranslate2 as long."""
        return [self._window.encode(request.pcm, self._padding_s(request)) for request in requests]

    def _padding_s(self, request: TranscriptionRequest) -> float | None:
        """Interims get the minimum of silence: they may be less accurate."""
        if self._full_window:
            return WINDOW_S
        return self._shortest_padding_s if request.urgency == INTERIM else None

    def _stack(self, jobs: Sequence[DecodingJob]) -> ctranslate2.StorageView:
        """The input of the decoder, [jobs, n, width]: speech, then silence."""
        length = min(WINDOW_STATES, max(len(job.states) + job.silence for job in jobs))
        return self._view([self._window.fill(job.states, length) for job in jobs])

    def _view(self, states: Sequence[States]) -> ctranslate2.StorageView:
        """The states in the type that `self._model` takes, [n, m, width]."""
        return ctranslate2.StorageView.from_array(np.stack(states))

    def _choose_language(self, job: DecodingJob) -> None:
        """Sets the language of a job, from its states without the cached silence if possible."""
        request = job.request
        if len(self.capabilities.languages) == 1:
            job.language = self.capabilities.languages[0]
        elif request.language:
            job.language = request.language
        elif len(request.languages) == 1:
            job.language = request.languages[0]
        elif self._detect(job, job.states) < DOUBTFUL_LANGUAGE and not job.interim:
            self._detect(job, self._window.fill(job.states))

    def _detect(self, job: DecodingJob, states: States) -> float:
        """Sets the language; returns the probability of the likeliest, expected or not."""
        ranking = self._model.detect_language(self._view([states]))[0]
        scores = {token[2:-2]: probability for token, probability in ranking}
        allowed = job.request.languages or self.capabilities.languages
        job.language = max(allowed, key=lambda code: scores.get(code, 0.0))
        job.probability = scores.get(job.language, 0.0)
        likeliest = job.probability
        expected = job.request.expected
        if expected in allowed and likeliest < CERTAIN_LANGUAGE:
            weight = min(MAX_EXPECTED_WEIGHT, EXPECTED_WEIGHT * job.request.expected_times)
            probability = scores.get(expected, 0.0)
            if weight * probability > likeliest:
                job.language, job.probability = expected, probability
        return likeliest

    def _finish(self, job: DecodingJob, decoding: Decoding) -> Transcript:
        options = job.request.options
        doubtful = decoding.avg_logprob < self._config.retry_logprob
        if doubtful or self._guards.is_suspect(decoding, options):
            silence = decoding.no_speech_prob > options.no_speech_threshold
            if job.prompt or job.interim or (doubtful and silence):
                return self._without_prompt(job)
            if self._guards.is_runaway(decoding) and (parts := self._in_parts(job)) is not None:
                return parts
            if self._is_decoded_again(job, decoding):
                padding_s = self._config.retry_padding_s
                job.states = self._window.encode(job.request.pcm, padding_s)
                decoding = self._decode_again(job)
        if not decoding.text or self._guards.is_hallucination(decoding, options):
            return self._without_prompt(job)
        words: tuple[Word, ...] = ()
        if job.prompt or options.words or job.request.speech:
            words = self._align_words(job, decoding)
        if job.prompt and prompts.is_unsaid(words, job.prompt):
            return self._without_prompt(job)
        if options.terms and (again := self._with_terms(job, decoding, words)) is not None:
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
        return Transcript(job.language, job.probability, (segment,))

    def _with_terms(
        self, job: DecodingJob, decoding: Decoding, words: Sequence[Word]
    ) -> Decoding | None:
        """Decoded again before the likely key terms; None if that finds no more of them."""
        options = job.request.options
        text = key_terms.doubtful_part(words) if words else decoding.text
        terms = key_terms.likely_terms(text, options.terms)
        if not terms or key_terms.count(decoding.text, terms) == len(terms):
            return None
        prompt = f"{', '.join(terms)}. {options.initial_prompt or ''}"
        request = replace(job.request, options=replace(options, initial_prompt=prompt))
        again = self._decode([replace(job, request=request)])[0]
        more = key_terms.count(again.text, terms) > key_terms.count(decoding.text, terms)
        return again if more and not self._guards.is_suspect(again, options) else None

    def _align_words(self, job: DecodingJob, decoding: Decoding) -> tuple[Word, ...]:
        """The time of each word, from the decoder's attention."""
        tokenizer, duration_s = self._tokenizer(job), job.request.seconds
        text = [token for token in decoding.tokens if token < tokenizer.eot]
        if not text:
            return ()
        frames = max(2, int(duration_s * MEL_FRAMES_PER_S))
        states = self._view([job.states])
        alignment = self._whisper.find_alignment(tokenizer, [text], states, frames)[0]
        merge_punctuations(alignment, PREPENDED, APPENDED)
        words: list[Word] = []
        for timing in alignment:
            if word := timing["word"].strip():
                start = min(float(timing["start"]), duration_s)
                end = min(max(float(timing["end"]), start), duration_s)
                confidence = round(float(timing["probability"]), 4)
                # The tokenizer splits 8.30 and well-known.
                if words and job.language not in UNSPACED and timing["word"][0] != " ":
                    before = words.pop()
                    word, start = before.word + word, before.start
                    confidence = min(before.confidence, confidence)
                words.append(Word(word, round(start, 2), round(end, 2), confidence))
        return tuple(words)

    def _is_decoded_again(self, job: DecodingJob, decoding: Decoding) -> bool:
        """Whether a suspect text is decoded again; a speculative one only if it is improbable.

        Measured on 29 doubtful clips: the character error rate is then 71 %, in place of 74 %, and
        a live text comes 0.3 s later. A runaway text is decoded again even after its deadline,
        since it would be dropped.
        """
        if job.request.budget.is_spent:
            return False
        if self._guards.is_runaway(decoding):
            return True
        useless = decoding.avg_logprob < IMPROBABLE_LOGPROB
        return job.in_time and (useless or job.request.urgency != SPECULATIVE)

    def _decode_again(self, job: DecodingJob) -> Decoding:
        """Decodes with the full window; a runaway text, until its deadline, at more temperatures.

        If none passes the guards, the likeliest is returned.
        """
        tries = []
        for temperature in self._config.fallback_temperatures:
            decoding = self._decode([job], temperature)[0]
            tries.append(decoding)
            if not self._guards.is_suspect(decoding, job.request.options):
                return decoding
            if not self._guards.is_runaway(decoding):
                return decoding  # measured: at another temperature it is as wrong, and 0.2 s later
            if not job.in_time or job.request.budget.is_spent:
                break
            if decoding.no_speech_prob > job.request.options.no_speech_threshold:
                break  # silence: another temperature would only hallucinate another text
        plain = [one for one in tries if not self._guards.is_repetitive(one)]
        return max(plain or tries, key=lambda one: one.avg_logprob)

    def _without_prompt(self, job: DecodingJob) -> Transcript:
        """Decodes a text that failed without its prompt, so that no prompt costs more than one try.

        No text if it had none, or for an interim, which would come too late.
        """
        if not job.prompt or job.interim or not job.request.budget.is_wanted():
            return Transcript(job.language, job.probability)
        job.request = job.request.without_prompt
        return self._finish(job, self._decode([job])[0])

    def _decode(
        self, jobs: Sequence[DecodingJob], temperature: float | None = None
    ) -> list[Decoding]:
        """Texts of jobs that have the same beam size and initial prompt.

        Durations bound their lengths, at first by what speech usually has. A text that is longer
        than that, and is no repetition, is decoded again up to the most that speech has.
        """
        decodings = self._generate(jobs, [job.usual_tokens for job in jobs], temperature)
        for index, (job, decoding) in enumerate(zip(jobs, decodings, strict=True)):
            most = min(MAX_TEXT, most_tokens(job.request, self._config.max_tokens_per_s))
            if (
                not (decoding.complete or job.prompt or job.interim)
                and len(decoding.tokens) < most
                and not self._guards.repeats(decoding)
                and not job.request.budget.is_spent
            ):
                decodings[index] = self._generate([job], [most], temperature)[0]
        return decodings

    def _generate(
        self, jobs: Sequence[DecodingJob], limits: Sequence[int], temperature: float | None
    ) -> list[Decoding]:
        """One call of the decoder, for texts of at most so many tokens."""
        options = jobs[0].request.options
        begun = [self._prompt(job) for job in jobs]
        longest = min(MAX_TEXT, max(limits))
        sampling = {"sampling_topk": 0, "sampling_temperature": temperature}
        results = self._model.generate(
            self._stack(jobs),
            begun,
            beam_size=1 if temperature else options.beam_size,
            # The text gets the smaller of a half of it, and what the prompt leaves of it.
            max_length=max(2 * longest, len(begun[0]) + longest),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_blank=True,
            suppress_tokens=get_suppressed_tokens(self._tokenizer(jobs[0]), [-1]),
            **(sampling if temperature else {}),
        )
        decodings = []
        for job, limit, result in zip(jobs, limits, results, strict=True):
            tokens = tuple(result.sequences_ids[0])
            text = self._tokenizer(job).decode(list(tokens)).strip()
            job.request.budget.tokens -= SPARE_TOKENS + len(tokens)
            decodings.append(
                Decoding(
                    tokens=tokens,
                    text=text,
                    # The library's mean is over the text; here the end counts as a token too.
                    avg_logprob=result.scores[0] * len(tokens) / (len(tokens) + 1),
                    no_speech_prob=result.no_speech_prob,
                    compression_ratio=get_compression_ratio(text) if text else 0.0,
                    complete=len(tokens) < min(limit, longest),
                    endless=len(tokens) >= most_tokens(job.request, self._config.max_tokens_per_s),
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
