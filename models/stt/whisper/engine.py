"""Whisper on CTranslate2, decoded in batches, with guards against hallucinations. Model: Radford et
al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022). Tokenizer, features and
alignment are those of faster-whisper."""

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
from models.stt import coverage, repetition
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
from models.stt.whisper.encoder_window import STATES_PER_S, WINDOW_STATES, EncoderWindow, States
from models.stt.whisper.hallucination import (
    IMPROBABLE_LOGPROB,
    Decoding,
    HallucinationGuards,
    without_repetitions,
)
from models.stt.whisper.job import CALL_TOKENS, SPARE_TOKENS, DecodingJob, with_budget
from models.stt.whisper.lead import with_lead, without_lead
from models.stt.whisper.native_script import ScriptTokens, foreign_letters, writer_of
from models.stt.whisper.processes import WhisperProcesses
from models.weights.store import WeightStore

LOOP_TOKENS = 4  # tokens in a row that may not occur twice, so that the decoder leaves a loop
LOST_LOGPROB = -0.6  # a text below it may come from a decoder in a loop
MAX_TEXT = 224  # tokens: half of the decoder's window, as the prompt may take the other half


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
            # The name has the precision and the version of the calibration sounds.
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
        led = [with_lead(with_budget(request)) for request in requests]
        return [
            without_lead(transcript, lead_s=after.seconds - before.seconds)
            for before, after, transcript in zip(requests, led, self._transcribe(led), strict=True)
        ]

    def _transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        jobs = list(map(DecodingJob, requests))
        return [
            self._with_missed(job, self._recounted(job, transcript))
            if job.request.speech
            else transcript
            for job, transcript in zip(jobs, self._decode_once(jobs), strict=True)
        ]

    def _with_missed(self, job: DecodingJob, whole: Transcript) -> Transcript:
        """Adds speech that a transcript misses: decodes with time tokens, which leave less out, and
        then in two parts if some speech still has no words.

        `benchmarks.stt.lost_speech` has 290 sentences, some repeated, and 319 in overlapping
        voices. Of these, parts alone lose 2 and 32, parts with time tokens 0 and 22, and
        faster-whisper with a beam of 5 loses 5 and 27. Time tokens alone lose repeated sentences.
        """
        request = job.request
        if not job.affords() or coverage.cut_at(request, words_of([whole])) is None:
            return whole
        request = replace(request.without_prompt, language=whole.language)
        times = repetition.longest_run(words_of([whole])).times
        if times < repetition.LEAST_TIMES:  # time tokens lose repetitions
            (timed,) = self._decode_once([replace(job, request=request, times=True)])
            if len(words_of([timed])) > len(words_of([whole])):
                whole = replace(whole, segments=timed.segments)
        words = words_of([whole])
        if (at := coverage.cut_at(request, words)) is None:
            return whole
        parts = list(map(DecodingJob, coverage.cut(request, at, whole.language)))
        at_s = at / STT_SAMPLE_RATE
        before = [whole] if words and words[-1].end <= at_s else []
        shifted = tuple(segment.shifted(-at_s) for segment in whole.segments)
        is_after = not before and bool(words) and words[0].start >= at_s
        after = [replace(whole, segments=shifted)] if is_after else []
        missed = parts[len(before) : len(parts) - len(after)]
        if not job.affords(sum(part.request.seconds for part in missed)):
            return whole
        transcripts = [*before, *self._decode_once(missed), *after]
        if len(words_of(transcripts)) <= len(words):
            return whole
        return coverage.join(whole, list(map(self._with_missed, parts, transcripts)), at)

    def _recounted(self, job: DecodingJob, whole: Transcript) -> Transcript:
        """Repeats a repeated word as often as the sound does. If the decoder may have lost count,
        only a few of the repetitions are decoded."""
        request = job.request
        if not (job.recounts and request.budget.is_wanted()):
            return whole
        if job.in_time and self._may_be_lost(request, whole):
            whole = self._few_repetitions(job) or whole
        words = repetition.spread(words_of([whole]))
        onsets_s: Sequence[float] = ()
        is_few = len(job.onsets_s) > 0
        if is_few or self._may_repeat(request, words):
            onsets_s = repetition.onsets_s(request.pcm, words) or job.onsets_s
        run = repetition.longest_run(words)
        count = len(onsets_s) - 1
        # One more may be the beginning of the next word: "go, go, go, gold".
        is_close = not is_few and run.after < len(words) and count == run.times + 1
        if count < repetition.LEAST_TIMES or run.times in (0, count) or is_close:
            return whole
        counted = repetition.gathered(repetition.recounted(words, onsets_s, is_few=is_few))
        separator = "" if whole.language in UNSPACED else " "
        segment = replace(
            whole.segments[0],
            text=separator.join(word.word for word in counted),
            start=counted[0].start,
            end=counted[-1].end,
            words=counted,
        )
        return replace(whole, segments=(segment,))

    def _may_repeat(self, request: TranscriptionRequest, words: Sequence[Word]) -> bool:
        """Whether a decoder may have lost count in a repetition, or ended it too soon."""
        times = repetition.longest_run(words).times
        if times >= repetition.LEAST_TIMES:
            return True
        return times > 0 and coverage.cut_at(request, words) is not None

    def _may_be_lost(self, request: TranscriptionRequest, whole: Transcript) -> bool:
        """Whether a text may come from a decoder that was caught in a repetition."""
        words = words_of([whole])
        if len(words) <= 1 or coverage.cut_at(request, words) is not None:
            return True
        return min(segment.avg_logprob for segment in whole.segments) < LOST_LOGPROB

    def _few_repetitions(
        self, job: DecodingJob, least_times: int = repetition.LEAST_TIMES
    ) -> Transcript | None:
        """Decodes the speech with few of its repetitions, to avoid a loop, and sets the onsets of
        all. None without repetitions, for a second try, or beyond the budget."""
        request = job.request
        onsets_s = repetition.onsets_s(request.pcm) if job.shortens and job.language else []
        job.shortens = False
        if len(onsets_s) - 1 < repetition.FEW:
            return None
        pcm, at_s, left_out_s = repetition.shortened(request.pcm, onsets_s)
        request.budget.tokens += request.budget.reserve
        request.budget.reserve = 0.0
        if not job.affords(len(pcm) / STT_SAMPLE_RATE, is_ordinary=True):
            return None
        speech = ((0, len(pcm)),)  # without a pause in which it would be split
        request = replace(request, pcm=pcm, speech=speech, language=job.language)
        (few,) = self._decode_once([DecodingJob(request, shortens=False)])
        words = words_of([few])
        run = repetition.longest_run(words)
        if not least_times <= run.times <= repetition.FEW + 1:
            return None
        middle_s = (words[run.first].start + words[run.after - 1].end) / 2
        if not onsets_s[0] <= middle_s <= onsets_s[-1] - left_out_s:
            return None  # another sound repeats, such as an alarm
        around = repetition.around(words, at_s, left_out_s)
        segment = replace(few.segments[0], words=around)
        job.onsets_s = onsets_s
        return Transcript(job.language, job.probability, (segment,), scores=job.scores)

    def _in_parts(self, job: DecodingJob) -> Transcript | None:
        """Decodes in two parts the speech whose text repeats itself; None without a pause. Often
        the speech itself repeats. Its parts may not, and cost less than more tries."""
        request = job.request
        if len(request.speech) < 2 or not job.affords(request.seconds):
            return None
        if (at := coverage.cut_at(request, ())) is None:
            return None
        parts = self._transcribe(coverage.cut(request, at, job.language))
        whole = Transcript(job.language, job.probability, scores=job.scores)
        return coverage.join(whole, parts, at)

    def _decode_once(self, jobs: Sequence[DecodingJob]) -> list[Transcript]:
        """Encodes and decodes jobs in batches; silence and abandoned requests get no text."""
        transcripts = [
            Transcript(job.request.language or (job.request.languages or ("en",))[0], 0.0)
            for job in jobs
        ]
        audible = [
            index
            for index, job in enumerate(jobs)
            if is_audible(job.request.pcm) and job.request.budget.is_wanted()
        ]
        new = [jobs[index] for index in audible if not len(jobs[index].states)]
        for job, states in zip(new, self._encode([job.request for job in new]), strict=True):
            job.states = states
            self._choose_language(job)
            job.begin()
        groups: dict[tuple[object, ...], list[tuple[int, DecodingJob]]] = defaultdict(list)
        for index in audible:
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
        """Encodes requests one by one, since a batch would not be faster in CTranslate2. Interims
        get the least silence, since they may be less accurate."""
        shortest_s = self._shortest_padding_s
        return [
            self._window.encode(request.pcm, shortest_s if request.urgency == INTERIM else None)
            for request in requests
        ]

    def _stack(self, jobs: Sequence[DecodingJob]) -> Any:
        """Returns the decoder's input, [jobs, n, width]: speech, then silence."""
        length = min(WINDOW_STATES, max(len(job.states) + job.silence for job in jobs))
        return self._view([self._window.fill(job.states, length) for job in jobs])

    def _view(self, states: Sequence[States]) -> Any:
        """Converts states to the type that `self._model` takes, [n, m, width]."""
        return np.stack(states)

    def _choose_language(self, job: DecodingJob) -> None:
        """Sets the language of a job, detected without the cached silence if that is certain."""
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
        """Detects the language of a job, and returns its probability."""
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
            if self._is_in_other_language(job):
                return self._finish(job, self._decode([job])[0])
            doubtful = decoding.avg_logprob < self._guards.retry_logprob
            silence = decoding.no_speech_prob > options.no_speech_threshold
            if job.prompt or job.interim or (doubtful and silence):
                return self._without_prompt(job)
            if job.recounts and (few := self._few_repetitions(job, least_times=2)) is not None:
                return few
            if self._guards.is_runaway(decoding):
                parts = self._in_parts(job)
                if parts is not None and parts.segments:
                    return parts
            if job.request.speech:  # speech that this loses is decoded again afterwards
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

    def _is_in_other_language(self, job: DecodingJob) -> bool:
        """Whether the speech of a recording is surely not in its given language, in which the
        decoder falls into loops. The job then gets the language of the speech."""
        request = job.request
        if not request.language or request.is_live or not job.affords():
            return False
        detected = replace(job)
        sure = self._detect(detected, self._window.fill(job.states)) >= languages.SURE
        if not sure or detected.language == job.language:
            return False
        job.language = detected.language
        job.request = replace(request, language=detected.language)
        return True

    def _with_terms(
        self, job: DecodingJob, decoding: Decoding, words: Sequence[Word]
    ) -> Decoding | None:
        """Decodes again with the likely key terms as prompt; None if that finds no more of them."""
        options = job.request.options
        text = key_terms.doubtful_part(words) if words else decoding.text
        terms = key_terms.likely_terms(text, options.keyterms)
        if not self._is_said(job, decoding.text, terms):
            return None
        prompt = f"{', '.join(terms)}. {options.prompt}"
        options = replace(options, prompt=prompt)
        # As little silence as in an interim, which takes 0.75 times as long.
        request = replace(job.request, options=options, urgency=INTERIM)
        (again,) = self._decode([replace(job, request=request)])
        more = key_terms.count(again.text, terms) > key_terms.count(decoding.text, terms)
        return again if more and not self._guards.is_suspect(again) else None

    def _is_said(self, job: DecodingJob, text: str, terms: Sequence[str]) -> bool:
        """Whether the speech makes a term likely that is missing in the text."""
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
        """Shortens a repetitive text to two of each repetition, if the speech makes that likely. A
        likely text that ended by itself stays whole, since a word may be said twenty times. It is
        judged without its repetitions, as each of them makes the next more probable."""
        tokenizer = self._tokenizer(job)
        text_tokens = [token for token in decoding.tokens if token < tokenizer.eot]
        if not self._guards.repeats(decoding):
            return decoding
        tokens = without_repetitions(text_tokens)
        if len(tokens) == len(text_tokens):
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
        """Decodes the speech after a loop; returns `once` if that finds nothing more."""
        budget = job.request.budget
        if budget.tokens < SPARE_TOKENS or not budget.is_wanted():
            return once
        (ended,) = self._decode([replace(job, no_repeat=LOOP_TOKENS)])
        lost = len(ended.text) < len(once.text)
        if lost or self._guards.is_hallucination(ended, job.request.options):
            return once
        return replace(ended, complete=True)

    def _align_words(self, job: DecodingJob, decoding: Decoding) -> tuple[Word, ...]:
        """Returns the words with their times, from the decoder's attention."""
        tokenizer = self._tokenizer(job)
        duration_s = job.request.seconds
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
        """Returns the log probability of each token, given the speech and the tokens before it."""
        frames = max(2, int(job.request.seconds * MEL_FRAMES_PER_S))
        states = self._view([job.states])
        before = self._tokenizer(job).sot_sequence
        (aligned,) = self._model.align(states, before, [tokens], frames, median_filter_width=7)
        return [math.log(probability + 1e-6) for probability in aligned.text_token_probs]

    def _is_decoded_again(self, job: DecodingJob, decoding: Decoding) -> bool:
        """Whether to decode a suspect text again, which lowers the character error rate from 74 to
        71 % (29 doubtful clips) and delays live text by 0.3 s. A speculative text is decoded again
        only if it is improbable. A runaway text is decoded again even after its deadline, since it
        would be dropped otherwise."""
        if not job.affords(job.request.seconds + self._config.retry_padding_s):
            return False
        if self._guards.is_runaway(decoding):
            return True
        is_improbable = decoding.avg_logprob < IMPROBABLE_LOGPROB
        return job.in_time and (is_improbable or job.request.urgency != SPECULATIVE)

    def _without_prompt(self, job: DecodingJob) -> Transcript:
        """Decodes a failed job again without its prompt, so that a prompt costs at most one try.
        The text is empty if there was no prompt, or for an interim, which would come too late."""
        if not job.prompt or job.interim or not job.request.budget.is_wanted():
            return Transcript(job.language, job.probability)
        job.request = job.request.without_prompt
        job.is_again = True
        return self._finish(job, self._decode([job])[0])

    def _decode(
        self, jobs: Sequence[DecodingJob], temperature: float | None = None
    ) -> list[Decoding]:
        """Decodes jobs with the same beam size, prompt, silence and scripts. The length of a text
        is limited by the duration of the speech. A text that reaches the usual limit without
        repeating itself is decoded again with the highest limit."""
        decodings = self._generate(jobs, [job.usual_tokens for job in jobs], temperature)
        for index, (job, decoding) in enumerate(zip(jobs, decodings, strict=True)):
            limit = min(MAX_TEXT, job.left)
            if (
                not (decoding.complete or job.prompt or job.interim)
                and len(decoding.tokens) < limit
                and not self._guards.repeats(decoding)
                and job.request.budget.is_wanted()
            ):
                with suppress(CallAbandoned):  # the other texts of the batch stay
                    decodings[index] = self._generate([job], [limit], temperature)[0]
        return decodings

    def _generate(
        self, jobs: Sequence[DecodingJob], limits: Sequence[int], temperature: float | None
    ) -> list[Decoding]:
        """Calls the decoder once, for texts of at most `limits` tokens."""
        starts = [self._prompt(job) for job in jobs]
        budgets = [id(job.request.budget) for job in jobs]  # parts of a request share a budget
        shares = [job.left // budgets.count(id(job.request.budget)) for job in jobs]
        limits = [max(SPARE_TOKENS, min(pair)) for pair in zip(limits, shares, strict=True)]
        longest = min(MAX_TEXT, max(limits))
        sampling = {"sampling_topk": 0, "sampling_temperature": temperature}
        results = self._model.generate(
            self._stack(jobs),
            starts,
            is_wanted=lambda: any(job.request.budget.is_wanted() for job in jobs),
            beam_size=1 if temperature else jobs[0].request.beam_size,
            # CTranslate2 limits the text to half of this length, and to what the prompt leaves.
            max_length=max(2 * longest, len(starts[0]) + longest),
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
                    # The library's mean is over the text; here the end token counts, too.
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
        without_times = () if job.times else (tokenizer.no_timestamps,)
        return [*prompt, *tokenizer.sot_sequence, *without_times]

    def _tokenizer(self, job: DecodingJob) -> Tokenizer:
        key = (job.language, job.request.options.translate)
        if key not in self._tokenizers:
            self._tokenizers[key] = Tokenizer(
                self._whisper.hf_tokenizer,
                self._model.is_multilingual,
                task="translate" if job.request.options.translate else "transcribe",
                language=job.language,
            )
        return self._tokenizers[key]


class WhisperVocabulary(WhisperModel):  # type: ignore[misc]  # the package has no types
    """faster-whisper's tokenizer, languages and alignment, with another network."""

    def __init__(self, folder: Path, network: Any) -> None:
        """Loads the tokenizer; `network` has the methods of `WhisperProcesses`."""
        self.hf_tokenizer = Vocabulary.from_file(str(folder / "tokenizer.json"))
        self.tokens_per_second = STATES_PER_S
        self.model = network
