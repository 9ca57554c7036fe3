"""Expressions of a page in Chromium, and waiting for them."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.clients.browser import Navigated, Page
from tests.patience import PATIENCE_S

# Keeps the loudest sample that was played in `loudest`.
MEASURE_SOUND = """(() => {
    const connect = AudioNode.prototype.connect;
    window.loudest = 0;
    AudioNode.prototype.connect = function (target, ...rest) {
        if (target !== this.context.destination) return connect.call(this, target, ...rest);
        const meter = new AnalyserNode(this.context);
        const samples = new Float32Array(meter.fftSize);
        setInterval(() => {
            meter.getFloatTimeDomainData(samples);
            window.loudest = samples.reduce((most, one) => Math.max(most, one), window.loudest);
        }, 20);
        connect.call(meter, target);
        return connect.call(this, meter);
    };
})"""


def run(page: Page, expression: str) -> Any:
    return page.call(f"(() => {expression})")


def wait_until(
    page: Page,
    expression: str,
    evaluate: Callable[[Page, str], Any] = run,
    most_s: float = PATIENCE_S,
) -> Any:
    """Polls an expression until it is truthy, and returns its value."""
    deadline = time.monotonic() + most_s
    while True:
        with suppress(Navigated):
            if value := evaluate(page, expression):
                return value
        assert time.monotonic() < deadline, f"{expression} did not come true"
        time.sleep(0.05)
