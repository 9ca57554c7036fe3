"""Logs of a process: one JSON object per line, with the request's id and without secrets."""

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from telemetry.tracing import request_id, trace_ids

_HIDDEN = "[hidden]"
_SECRETS = (
    re.compile(r"\b[set]k_[0-9A-Za-z]{16,}"),
    re.compile(r"\binv_[\w-]{16,}"),
    re.compile(r"\bwhsec_[0-9A-Za-z+/=_-]{4,}"),
    re.compile(r"(?<![\w-])eyJ[\w-]+\.[\w-]+\.[\w-]*"),
)
_SEVERAL = r"\w*token_keys?|\w*data_keys?"  # names of several keys, separated by commas
_NAME = (
    rf"(?i)(\b(?:api[-_]?key|\w*password|\w*secret|\w*pepper|operator_token|{_SEVERAL})\b"
    r"\\?[\"']?\s*[=:]\s*"
)
# Skips a word that is shorter than every secret, as in "password: must have …".
_NO_WORD = r"(?!(?<=: )(?-i:[a-z]{1,5}) )"
_NAMED_SECRETS = (
    re.compile(rf"(?i)(\b(?:{_SEVERAL})\s*[=:]\s*){_NO_WORD}[^\s\"'&}}\\]+"),
    re.compile(_NAME + rf"){_NO_WORD}[^\s\"'&,}}\\]+"),
    re.compile(_NAME + r"([\"']))(?:\\.|(?!\2).)+"),  # up to the quote that ends it
    re.compile(_NAME + r"(\\[\"']))(?:\\{3}[\"']|(?!\2).)+"),  # the same inside a JSON string
    re.compile(
        r"(?i)(\bauthorization\b\\?[\"']?\s*[=:,]\s*(?:b?\\?[\"'])?(?:bearer |basic )?)"
        r"[^\s\"',}\\]+"
    ),
    re.compile(r"(?i)(\bbearer\s+)[^\s\"',}\\]{8,}"),
    re.compile(r"(://[^\s/:@]*:)[^\s/]+(?=@)"),  # the password of a database URL
    # Passwords in these URLs may contain a slash, as about half of random base64 passwords do.
    re.compile(r"(?i)(\b(?:postgres|redis)[\w+]*://[^\s/:@]*:)(?:(?!://)[^\s\"'])+(?=@)"),
)


# Parts of an error that quote no user's text: stack frames with their source lines, and paths and
# addresses in system errors.
_NO_TEXT = re.compile(
    r'(?m)^(?P<margin>[ \t|]*)File "[^"\n]+", line \d+.*(?:\n(?P=margin)  .*)*'
    r"|^[ \t|+-]*Traceback \(most recent call last\):"
    r"|^(?:The above exception was|During handling of the above) .*"
    r"|\[Errno -?\d+\] [^'\n]*'[^'\s]*'(?: -> '[^'\s]*')?"
)
# Values of a row in an error of PostgreSQL.
_DETAIL = re.compile(
    r"(?s)(DETAIL:[^\n(]*(?:\([^\n()]*\)=)?)\(.*?"
    r"(?=\n(?:HINT|CONTEXT|LOCATION|QUERY|\[SQL|\nThe above|\nDuring handling)|\Z)"
)
_QUOTE = re.compile(
    r"(?is)\\(?P<escaped>.)|(?P<before>(?<!\w)[bru]{0,2})?(?P<mark>[\"'`])(?P<after>(?=\w))?"
)
_CODE_NAME = re.compile(r"[\w.-]{1,64}")
_BEFORE_NAME = re.compile(
    r"^[\s|]*(?:Attribute|Import|ModuleNotFound|Name|Type)Error: "
    r"|\b(?:attribute|module|No module named|relation|column|table|constraint|index|database|role"
    r"|for user|server at) [\"']$"
)
_AFTER_NAME = re.compile(r" object (?:has|is)\b")
_OPENING = " \n([{<=:,"  # what stands before a quotation

# Most lines contain none of these words, and one search is cheaper than all the substitutions.
_HINT = re.compile(
    r"(?i)[set]k_|inv_|whsec_|eyJ|api[-_]?key|authorization|bearer|password|secret|pepper|token_key"
    r"|operator_token|data_key|://"
)


def redact(text: str) -> str:
    """Hides API keys, tokens, webhook secrets and passwords."""
    if _HINT.search(text) is None:
        return text
    for pattern in _NAMED_SECRETS:
        text = pattern.sub(rf"\1{_HIDDEN}", text)
    for pattern in _SECRETS:
        text = pattern.sub(_HIDDEN, text)
    return text


def without_texts(error: str) -> str:
    """Hides what an error or a traceback quotes, which may be texts of users: libraries quote their
    input. Stack frames, names in code, and paths in system errors stay."""
    error = _DETAIL.sub(rf"\1{_HIDDEN}", error)
    pieces: list[str] = []
    end = 0
    for part in _NO_TEXT.finditer(error):
        head, *source = part[0].split("\n")
        pieces += [_without_quotations(error[end : part.start()]), head]
        pieces += ["\n" + _without_quotations(line) for line in source]
        end = part.end()
    return "".join(pieces) + _without_quotations(error[end:])


def _without_quotations(text: str) -> str:
    """Hides quotations, nested or over several lines. An unclosed quotation hides the rest of the
    text; a closing mark without an opening one extends the hidden quotation before it."""
    pieces: list[str] = []
    start = end = depth = 0
    opened = hidden = ""  # marks of the current quotation, and of the hidden one before it
    for token in _QUOTE.finditer(text):
        mark = token["mark"]
        at = token.end() - 1
        if depth:
            if mark == opened and (token["after"] is None or token["before"] is not None):
                depth += 1 if token["after"] is not None else -1
            if depth:
                continue
            hidden = "" if _is_name(text, start, at) else mark
            pieces += [text[end:start], _HIDDEN if hidden else text[start : at + 1]]
            end = at + 1
        elif mark and mark == hidden and token["after"] is None and text[at - 1] not in _OPENING:
            end = at + 1
        elif token["before"] is not None or token["escaped"] in ("'", '"', "`"):
            start = token.start()
            opened = mark or token["escaped"]
            depth = 1
    return "".join(pieces) + (text[end:start] + _HIDDEN if depth else text[end:])


def _is_name(text: str, start: int, end: int) -> bool:
    """Whether a quotation is a name in code or of a database."""
    line = text.rfind("\n", 0, start) + 1
    return _CODE_NAME.fullmatch(text, start + 1, end) is not None and (
        _BEFORE_NAME.search(text[line : start + 1]) is not None
        or _AFTER_NAME.match(text, end + 1) is not None
    )


class RedactedRecord(logging.LogRecord):
    """Log record that redacts secrets, and texts in exceptions, for every handler, including those
    of libraries."""

    def getMessage(self) -> str:
        message = super().getMessage()
        # `logging.makeLogRecord` makes records without a name.
        if (self.name or "").partition(".")[0] in _QUOTING:
            message = without_texts(message)
        return redact(message)

    def __setattr__(self, name: str, value: Any) -> None:
        # Formatters store the text of an exception in these attributes before they write it.
        if name in ("exc_text", "stack_info") and isinstance(value, str):
            value = redact(without_texts(value))
        super().__setattr__(name, value)


_QUOTING = ("asyncio", "ray")  # loggers whose messages contain errors
_ERRORS = ("error", "reason", "problem", "cause")  # extra fields
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One line of JSON: time, level, logger, event, request id, trace and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if (current := request_id.get()) is not None:
            line["request_id"] = current
        line |= trace_ids()
        line.update({k: v for k, v in vars(record).items() if k not in _OWN_FIELDS})
        for name in _ERRORS:
            if not isinstance(line.get(name), int | None):
                line[name] = without_texts(str(line[name]))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Redacts strings before JSON escapes their quotes, then the whole line for nested values.
        line = {k: redact(v) if isinstance(v, str) else v for k, v in line.items()}
        return redact(json.dumps(line, default=str))

    def formatException(self, ei: Any) -> str:
        # The base class prints into a buffer, and in replicas Serve replaces print() by a function
        # that writes the repr of a tuple for each line.
        return without_texts("".join(traceback.format_exception(*ei)).rstrip())


def redact_logs() -> None:
    """Redacts secrets in every later record of this process."""
    logging.setLogRecordFactory(RedactedRecord)


def setup_logs() -> None:
    """Redacts every record of this process, and writes those of the root logger to stderr as JSON.
    In a replica they also go to the file that Ray's dashboard shows, as Serve's own records do."""
    redact_logs()
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    if not any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers):
        # Serve replaces sys.stderr by a stream that buffers a thousand lines, and loses them when
        # the process is killed.
        of_replica = (
            getattr(buffer, "target", None) for buffer in logging.getLogger("ray.serve").handlers
        )
        for handler in (logging.StreamHandler(sys.__stderr__), *filter(None, of_replica)):
            handler.setFormatter(JsonFormatter())
            root.addHandler(handler)
