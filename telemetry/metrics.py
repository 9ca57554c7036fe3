"""All Prometheus metrics. Names end with their unit; labels never contain user data.

Each process has its own counts. `GET /metrics` shows those of all processes, and adds the labels
`deployment` and `replica` to each series, so no metric here may have a label of that name.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from telemetry.tracing import note

# The `_created` series, an unused second series for each metric.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY = CollectorRegistry(auto_describe=True)
"""The registry of this service's metrics; libraries use prometheus-client's default one."""

ProcessCollector(namespace="antiphon", registry=REGISTRY)

_QUICK = (0.0001, 0.0003, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.5, 2)
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30)
_RATIO = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 4)
_SPEED = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
_LAG = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 86400)


class _TracedHistogram(Histogram):
    """Within a span a sample is an event of it, and names its trace on the page (an exemplar)."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        super().observe(amount, exemplar or note(self._name.removeprefix("antiphon_"), amount))


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"antiphon_{name}", text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"antiphon_{name}", text, labels, registry=REGISTRY)


def _histogram(name: str, text: str, *labels: str, bins: tuple[float, ...] = _LATENCY) -> Histogram:
    return _TracedHistogram(f"antiphon_{name}", text, labels, registry=REGISTRY, buckets=bins)


# HTTP. `route` is the pattern of a path, such as /voices/{voice_id}, or `none` without a match.
http_requests = _counter("http_requests_total", "Answered requests", "method", "route", "status")
http_request_seconds = _histogram(
    "http_request_duration_seconds",
    "From the head of a request to the end of its response",
    "route",
    bins=(0.001, 0.002, 0.003, *_LATENCY),
)
http_requests_live = _gauge("http_requests_live", "Requests in progress")
overload_refusals = _counter(
    "overload_refusals_total", "Requests and sessions refused by admission control", "kind"
)
turn_wait_seconds = _histogram(
    "turn_wait_seconds", "Wait of a request for its turn in the event loop"
)
refusals_delayed = _counter(
    "refusals_delayed_total", "Refusals that were delayed while models or sockets worked"
)
slow_clients = _counter("slow_clients_total", "Clients disconnected as too slow", "kind")
idempotent_replays = _counter(
    "idempotent_replays_total", "POSTs answered with a stored response by Idempotency-Key"
)

# Sockets. `protocol` is stt or tts.
sockets_live = _gauge("sockets_live", "Open WebSocket sessions", "protocol")
socket_refusals = _counter("socket_refusals_total", "Handshakes that were refused", "error")
socket_closes = _counter("socket_closes_total", "Sessions that ended", "protocol", "code")
socket_seconds = _histogram(
    "socket_duration_seconds",
    "Duration of sessions",
    "protocol",
    bins=(1, 5, 15, 60, 300, 900, 3600, 14400),
)

# Calls of replicas. `target` is the deployment that was called.
calls = _counter("calls_total", "Calls of replicas", "target", "outcome")
call_first_seconds = _histogram(
    "call_first_answer_seconds", "From a call to its first result", "target"
)
models_ready = _gauge(
    "models_ready", "1 when a replica is up or the next request starts one", "target"
)

# Speech.
tts_first_audio_seconds = _histogram(
    "tts_first_audio_seconds", "From a text to the first audio of its stream"
)
tts_gap_seconds = _counter(
    "tts_gap_seconds_total", "Silence by underruns within streams: audio that came late"
)
tts_streams = _counter(
    "tts_streams_total", "Streams: smooth, late (underruns) or left (disconnected)", "outcome"
)
tts_queue_seconds = _histogram(
    "tts_queue_seconds", "From a request to its first computation by the engine"
)
tts_real_time_factor = _histogram(
    "tts_real_time_factor", "Seconds of computation per second of speech, per request", bins=_RATIO
)
tts_audio_seconds = _counter("tts_audio_seconds_total", "Seconds of synthesised speech")

# Transcription. `urgency` is final, speculative, interim or file.
stt_queue_seconds = _histogram(
    "stt_queue_seconds", "From a request to the batch that takes it", "urgency"
)
stt_decode_seconds = _histogram("stt_decode_seconds", "Time in the engine, per batch", "urgency")
stt_real_time_factor = _histogram(
    "stt_real_time_factor", "Seconds of computation per second of audio, per batch", bins=_RATIO
)
stt_audio_seconds = _counter("stt_audio_seconds_total", "Audio that was decoded to text", "urgency")
stt_dropped = _counter("stt_dropped_total", "Requests refused, or dropped after their deadline")
stt_final_seconds = _histogram(
    "stt_final_seconds", "From the end of an utterance to its final text"
)
stt_speaker_seconds = _histogram(
    "stt_speaker_seconds", "What a final waited for the labels of its speakers"
)
stt_utterances = _counter("stt_utterances_total", "Utterances of sockets", "outcome")
vad_seconds = _counter("vad_seconds_total", "Time in the voice detector of sockets")
vad_audio_seconds = _counter("vad_audio_seconds_total", "Audio that the voice detector processed")
redacted_entities = _counter("redacted_entities_total", "Personal data that was masked", "kind")
decode_seconds = _histogram(
    "decode_seconds", "From an uploaded file to samples, including the wait for a worker"
)
decode_failures = _counter("decode_failures_total", "Uploads that could not be decoded", "error")
decodes_waiting = _gauge("decodes_waiting", "Uploads that wait for a decoder process")
decoder_sandbox = _gauge(
    "decoder_sandbox", "Whether a measure of the decoder's sandbox holds", "measure"
)

# Chat.
chat_first_token_seconds = _histogram(
    "chat_first_token_seconds", "From a request to the first token of its answer"
)
chat_tokens_per_second = _histogram(
    "chat_tokens_per_second", "Of one answer, after its first token", bins=_SPEED
)
chat_tokens = _counter("chat_tokens_total", "Prompt and completion tokens", "kind")
chat_resumed = _counter("chat_resumed_total", "Answers resumed after a pause for a slow voice")

# Replicas of models.
engine_requests_live = _gauge("engine_requests_live", "Requests in a replica: waiting or running")
engine_failures = _counter("engine_failures_total", "Requests that a replica failed", "error")
model_load_seconds = _histogram(
    "model_load_seconds", "Time to load a model", bins=(0.1, 0.5, 1, 2, 5, 10, 20, 40, 80, 160)
)

replica_load = _gauge(
    "replica_load", "Load by which replicas are added: 1 is as much as one should have"
)
cluster_differences = _gauge(
    "cluster_differences", "Processes that do not agree with most others of the cluster"
)
model_swap_failed = _gauge(
    "model_swap_failed",
    "1 while a replica serves its previous model, since it could not load this one",
    "model",
)

# Billing. `service` is tts, stt, chat or voice.
ledger_seconds = _histogram("ledger_seconds", "Time of a ledger transaction", "kind", bins=_QUICK)
charged_micro_usd = _counter("charged_micro_usd_total", "Micro-USD captured", "service")
credit_refusals = _counter("credit_refusals_total", "Refusals for lack of credit", "service")
hangups = _counter(
    "hangups_total",
    "Work that clients left, or made fail, before a whole answer: free, or charged",
    "service",
    "price",
)
holds_expired = _counter("holds_expired_total", "Holds that expired unsettled and were released")
ledger_mismatches = _gauge("ledger_mismatches", "Accounts whose entries do not sum to the balance")

# Rate limits. `backend`, which decided: redis, cluster or twin.
limit_decisions = _counter("limit_decisions_total", "Requests counted", "backend", "decision")
limit_seconds = _histogram("limit_seconds", "Time to count a request", "backend", bins=_QUICK)
limiter_degraded = _gauge("limiter_degraded", "1 while the twin replaces the limiter")
leases_live = _gauge("leases_live", "Leases of sockets and jobs in use")
leases_refused = _counter("leases_refused_total", "Sockets and jobs over the plan's limit")
attempts_refused = _counter(
    "attempts_refused_total",
    "Sign-ups, logins, unknown and new keys, and webhooks over their limit",
    "kind",
)

# Custom voices.
voice_seconds = _histogram(
    "voice_seconds",
    "From the request of a custom voice to ready or failed",
    "outcome",
    bins=(60, 300, 480, 600, 720, 900, 1200, 1800, 3600, 7200, 21600, 86400),
)
voices_unfinished = _gauge("voices_unfinished", "Custom voices waiting or being built", "state")
voice_still_seconds = _gauge(
    "voice_still_seconds", "Since the last progress of the slowest voice job, or Ray accepted one"
)
voice_attempts_lost = _counter("voice_attempts_lost_total", "Jobs that ended without a voice")

# Jobs. `type` is transcription or speech.
jobs_unfinished = _gauge("jobs_unfinished", "Jobs waiting or being done", "state")
job_still_seconds = _gauge(
    "job_still_seconds", "Since the last progress of the slowest job, or Ray accepted one"
)
jobs_ended = _counter("jobs_ended_total", "Jobs that ended", "type", "outcome")
job_audio_seconds = _counter("job_audio_seconds_total", "Audio that jobs have done", "type")

# Webhooks.
webhook_attempts = _counter("webhook_attempts_total", "Attempts to deliver", "outcome")
webhook_attempt_seconds = _histogram("webhook_attempt_seconds", "Response time of the receiver")
webhook_lag_seconds = _histogram(
    "webhook_lag_seconds", "From an event to its first successful delivery", bins=_LAG
)
webhooks_due = _gauge("webhooks_due", "Deliveries that are due")
webhooks_oldest_seconds = _gauge(
    "webhooks_oldest_due_seconds", "Age of the oldest due delivery to a webhook that is not failing"
)
webhooks_deactivated = _counter("webhooks_deactivated_total", "Webhooks deactivated", "reason")

# Housekeeping and storage.
housekeeping_seconds = _histogram("housekeeping_seconds", "Time of a housekeeping run")
housekeeping_failures = _counter("housekeeping_failures_total", "Housekeeping tasks that failed")
kept_deleted = _counter("kept_deleted_total", "Objects deleted at the end of retention", "kind")
stored_bytes = _counter("stored_bytes_total", "Bytes written to the store of files", "kind")

# Every process.
loop_lag_seconds = _histogram("loop_lag_seconds", "Delay of timers by the event loop", bins=_QUICK)
