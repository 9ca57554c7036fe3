"""What the dashboard shows: rows of panels, each with its queries."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph: a title, a unit of Grafana, and its queries by their legends."""

    title: str
    unit: str
    queries: dict[str, str]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Of a counter, summed over replicas."""
    return f"sum{_grouped(by)} (rate(antiphon_{metric}{{{where}}}[$__rate_interval]))"


def ratio(part: str, whole: str) -> str:
    """Nothing while there is no whole."""
    return f"{part} / ({whole} > 0)"


def quantile(q: float, metric: str, by: str = "") -> str:
    """Of a histogram, over all replicas."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {rate(f'{metric}_bucket', labels)})"


def spread(metric: str) -> dict[str, str]:
    """The usual quantiles of a histogram."""
    return {f"p{round(q * 100)}": quantile(q, metric) for q in (0.5, 0.95, 0.99)}


def total(metric: str, by: str = "") -> str:
    """Of a gauge, over replicas."""
    return f"sum{_grouped(by)} (antiphon_{metric})"


def most(metric: str, by: str = "") -> str:
    """Of a gauge, the greatest of all replicas."""
    return f"max{_grouped(by)} (antiphon_{metric})"


def _grouped(by: str) -> str:
    return f" by ({by})" if by else ""


FAILURES = ratio(
    rate("http_requests_total", where='status=~"5.."'),
    rate("http_requests_total"),
)
GAPS = ratio(
    rate("tts_streams_total", where='outcome="late"'),
    rate("tts_streams_total", where='outcome!="left"'),
)
OLDEST = most("webhooks_oldest_due_seconds")
USD = f"{rate('charged_micro_usd_total', 'service')} * 3600 / 1e6"

ROWS = (
    Row(
        "At a glance",
        (
            Panel("Requests", "reqps", {"{{status}}": rate("http_requests_total", "status")}),
            Panel(
                "Failures of the service",
                "percentunit",
                {"5xx": FAILURES},
                "The share of requests that were answered with a status of 500 or more.",
            ),
            Panel("Models that answer", "short", {"{{target}}": most("models_ready", "target")}),
            Panel("First audio of a stream", "s", spread("tts_first_audio_seconds")),
            Panel("Final text of an utterance", "s", spread("stt_final_seconds")),
            Panel("First piece of a chat", "s", spread("chat_first_token_seconds")),
        ),
    ),
    Row(
        "HTTP and sockets",
        (
            Panel(
                "Time of a request, p95",
                "s",
                {"{{route}}": quantile(0.95, "http_request_duration_seconds", "route")},
            ),
            Panel(
                "In progress",
                "short",
                {
                    "requests": total("http_requests_live"),
                    "{{protocol}} sockets": total("sockets_live", "protocol"),
                },
            ),
            Panel(
                "Refused",
                "ops",
                {
                    "overloaded: {{kind}}": rate("overload_refusals_total", "kind"),
                    "handshake: {{error}}": rate("socket_refusals_total", "error"),
                    "attempt: {{kind}}": rate("attempts_refused_total", "kind"),
                },
            ),
            Panel(
                "Sessions that ended",
                "ops",
                {"{{protocol}} {{code}}": rate("socket_closes_total", "protocol, code")},
                "By close code; 1000, 1001 and 1005 are normal.",
            ),
            Panel(
                "Length of a session, p50",
                "s",
                {"{{protocol}}": quantile(0.5, "socket_duration_seconds", "protocol")},
            ),
            Panel("Replayed answers", "ops", {"replays": rate("idempotent_replays_total")}),
        ),
    ),
    Row(
        "Text to speech",
        (
            Panel(
                "Speech made, seconds a second",
                "short",
                {"{{deployment}}": rate("tts_audio_seconds_total", "deployment")},
            ),
            Panel(
                "Real-time factor, p95",
                "short",
                {"{{deployment}}": quantile(0.95, "tts_real_time_factor", "deployment")},
                "Seconds of computing for a second of speech; over 1 cannot keep up.",
            ),
            Panel(
                "Wait for the engine, p95",
                "s",
                {"{{deployment}}": quantile(0.95, "tts_queue_seconds", "deployment")},
            ),
            Panel(
                "Streams with a gap",
                "percentunit",
                {"late": GAPS},
                "The share of streams whose listener heard silence since audio came late.",
            ),
            Panel(
                "Silence by gaps, seconds a second",
                "short",
                {"gaps": rate("tts_gap_seconds_total")},
            ),
        ),
    ),
    Row(
        "Speech to text",
        (
            Panel(
                "Audio decoded, seconds a second",
                "short",
                {"{{urgency}}": rate("stt_audio_seconds_total", "urgency")},
            ),
            Panel(
                "Wait for a lane, p95",
                "s",
                {"{{urgency}}": quantile(0.95, "stt_queue_seconds", "urgency")},
            ),
            Panel(
                "Time of a batch, p95",
                "s",
                {"{{urgency}}": quantile(0.95, "stt_decode_seconds", "urgency")},
            ),
            Panel("Real-time factor of batches", "short", spread("stt_real_time_factor")),
            Panel(
                "Utterances",
                "ops",
                {
                    "{{outcome}}": rate("stt_utterances_total", "outcome"),
                    "refused or too late": rate("stt_dropped_total"),
                },
            ),
            Panel(
                "Voice detector, share of real time",
                "percentunit",
                {"load": ratio(rate("vad_seconds_total"), rate("vad_audio_seconds_total"))},
            ),
            Panel("Time to decode a file", "s", spread("decode_seconds")),
            Panel("Files that wait for a decoder", "short", {"wait": total("decodes_waiting")}),
            Panel(
                "Files without audio", "ops", {"{{error}}": rate("decode_failures_total", "error")}
            ),
        ),
    ),
    Row(
        "Chat",
        (
            Panel("Tokens a second", "short", {"{{kind}}": rate("chat_tokens_total", "kind")}),
            Panel("Tokens a second of one answer", "short", spread("chat_tokens_per_second")),
        ),
    ),
    Row(
        "Replicas",
        (
            Panel(
                "Requests in replicas",
                "short",
                {"{{deployment}}": total("engine_requests_live", "deployment")},
            ),
            Panel(
                "Calls that failed",
                "ops",
                {
                    "{{target}} {{outcome}}": rate(
                        "calls_total", "target, outcome", 'outcome!~"ok|left"'
                    )
                },
            ),
            Panel(
                "First answer of a call, p95",
                "s",
                {"{{target}}": quantile(0.95, "call_first_answer_seconds", "target")},
            ),
            Panel(
                "Failures in replicas",
                "ops",
                {"{{deployment}} {{error}}": rate("engine_failures_total", "deployment, error")},
            ),
            Panel(
                "Time to load a model, p50",
                "s",
                {"{{deployment}}": quantile(0.5, "model_load_seconds", "deployment")},
            ),
            Panel(
                "Age of the reports",
                "s",
                {"{{deployment}} {{replica}}": most("report_age_seconds", "deployment, replica")},
            ),
            Panel(
                "Late timers, p99",
                "s",
                {"{{deployment}}": quantile(0.99, "loop_lag_seconds", "deployment")},
                "How long something kept the event loop of a process from going on.",
            ),
            Panel(
                "Cores in use",
                "short",
                {"{{deployment}}": rate("process_cpu_seconds_total", "deployment")},
            ),
            Panel(
                "Memory",
                "bytes",
                {
                    "{{deployment}} {{replica}}": most(
                        "process_resident_memory_bytes", "deployment, replica"
                    )
                },
            ),
            Panel(
                "Open files",
                "short",
                {"{{deployment}} {{replica}}": most("process_open_fds", "deployment, replica")},
            ),
        ),
    ),
    Row(
        "Money and limits",
        (
            Panel("Charged, USD an hour", "currencyUSD", {"{{service}}": USD}),
            Panel(
                "Transaction of the ledger, p95",
                "s",
                {"{{kind}}": quantile(0.95, "ledger_seconds", "kind")},
            ),
            Panel(
                "Refused for want of credit",
                "ops",
                {
                    "{{service}}": rate("credit_refusals_total", "service"),
                    "holds that expired": rate("holds_expired_total"),
                },
            ),
            Panel(
                "Custom voices, p50 from request to end",
                "s",
                {"{{outcome}}": quantile(0.5, "voice_seconds", "outcome")},
            ),
            Panel(
                "Custom voices on their way",
                "short",
                {
                    "{{state}}": "max by (state) (antiphon_voices_unfinished)",
                    "jobs lost, an hour": "sum(increase(antiphon_voice_attempts_lost_total[1h]))",
                },
            ),
            Panel(
                "Custom voices, since one got further",
                "s",
                {"the slowest": "max(antiphon_voice_still_seconds)"},
            ),
            Panel(
                "Requests counted",
                "ops",
                {"{{backend}} {{decision}}": rate("limit_decisions_total", "backend, decision")},
            ),
            Panel(
                "Time to count a request, p99",
                "s",
                {"{{backend}}": quantile(0.99, "limit_seconds", "backend")},
            ),
            Panel(
                "Places of sockets and jobs",
                "short",
                {"taken": total("leases_live"), "refused a second": rate("leases_refused_total")},
            ),
            Panel(
                "Alarms",
                "short",
                {
                    "limits without their store": most("limiter_degraded"),
                    "accounts that do not add up": most("ledger_mismatches"),
                },
                "Both should be 0.",
            ),
        ),
    ),
    Row(
        "Webhooks and what is kept",
        (
            Panel(
                "Attempts to deliver",
                "ops",
                {"{{outcome}}": rate("webhook_attempts_total", "outcome")},
            ),
            Panel("From event to delivery", "s", spread("webhook_lag_seconds")),
            Panel("Answer of a receiver", "s", spread("webhook_attempt_seconds")),
            Panel(
                "Deliveries that are due",
                "short",
                {"due": most("webhooks_due"), "age of the oldest, s": OLDEST},
            ),
            Panel(
                "Webhooks made inactive",
                "ops",
                {"{{reason}}": rate("webhooks_deactivated_total", "reason")},
            ),
            Panel("Written to the store", "Bps", {"{{kind}}": rate("stored_bytes_total", "kind")}),
            Panel(
                "Deleted when its time was over",
                "ops",
                {"{{kind}}": rate("kept_deleted_total", "kind")},
            ),
            Panel(
                "A round of cleaning",
                "s",
                {
                    "p95": quantile(0.95, "housekeeping_seconds"),
                    "failed a second": rate("housekeeping_failures_total"),
                },
            ),
        ),
    ),
)
