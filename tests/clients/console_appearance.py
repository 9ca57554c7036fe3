"""Shows every page of the console in Chromium, by Playwright: python … URL KEY TOKEN AXE.

Prints JSON: the violations that axe finds, errors in the browser's console, pages that are wider
than their window, and controls that lie over each other or are cut, in four sizes, light and dark;
what of a page's job, and of its errors without a network, is not in sight; what a page does with a
slow network; and the bytes that come before the first use.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

PHONE, DESK = (390, 844), (1280, 800)
SIZES = {"light": ((360, 800), PHONE, (768, 800), DESK), "dark": (PHONE, DESK)}
PATHS = (
    "speak speak/pronunciations listen listen/microphone talk chat chat/correct jobs voices "
    "account/overview account/keys account/webhooks account/settings account/audit "
    "operator/overview operator/workspaces operator/models"
).split()
# What the job of a page needs, which is in sight as soon as the page is shown.
JOBS = {
    "speak": "[name=text] .chosen-voice #speak-live #make-file",
    "listen": ".drop .drop>.button",
    "listen/microphone": "#listen-live .meter",
    "talk": "#talk-start .meter .talk>div>section>.empty",
    "chat": ".answers [name=message] #chat-send",
    "chat/correct": "[name=text] #correct-go",
    "account/overview": "#credit",
    "account/keys": "#create-key",
    "account/webhooks": "#add-hook",
}
# A page, what is filled, and the button whose request meets no network.
ACTS = (
    ("speak/speech", "", "#speak-live"),
    ("speak/speech", "", "#make-file"),
    ("listen/microphone", "", "#listen-live"),
    ("talk", "", "#talk-start"),
    ("chat/chat", "[name=message]", "#chat-send"),
    ("chat/correct", "", "#correct-go"),
    ("account/keys", "[name=name]", "#create-key"),
    ("account/overview", "", "#refresh-usage"),
)
HIDDEN = """(selectors) => selectors.split(' ').filter((selector) => {
    const found = [...document.querySelectorAll(selector)].find((one) => one.checkVisibility());
    if (!found) return true;
    const {left, right, top, bottom} = found.getBoundingClientRect();
    return ![top + 2, bottom - 2].every((y) => found.contains(
        document.elementFromPoint((left + right) / 2, y)));
})"""
FLAGS = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SLOW_MS = 400
# Layout, without pictures, whose fonts differ between machines: what lies over each other, or is
# cut off.
BROKEN = """() => {
    const seen = (one) => one.checkVisibility({visibilityProperty: true, opacityProperty: true});
    const fixed = (one) => one.closest('.bar, dialog, .offscreen, .skip');
    const kinds = 'button, input, select, textarea, a, label, h1, h2, h3';
    const all = [...document.querySelectorAll(kinds)]
        .filter((one) => seen(one) && !fixed(one) && one.getBoundingClientRect().width > 2);
    const box = (one) => { // what lists that scroll show of it
        let {left, right, top, bottom} = one.getBoundingClientRect();
        for (let up = one.parentElement; up; up = up.parentElement) {
            if (getComputedStyle(up).overflowY === 'visible') continue;
            const around = up.getBoundingClientRect();
            [left, top] = [Math.max(left, around.left), Math.max(top, around.top)];
            [right, bottom] = [Math.min(right, around.right), Math.min(bottom, around.bottom)];
        }
        return {left, right, top, bottom};
    };
    const name = (one) => `${one.tagName} ${(one.innerText || one.id).trim().slice(0, 30)}`;
    const found = [];
    all.forEach((one, at) => {
        const a = box(one);
        const clips = getComputedStyle(one).overflowX !== 'visible' && !one.value;
        if (clips && one.scrollWidth > one.clientWidth + 1) found.push(`cut: ${name(one)}`);
        for (const other of all.slice(at + 1)) {
            if (one.contains(other) || other.contains(one)) continue;
            const b = box(other);
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (wide > 2 && high > 2) found.push(`over: ${name(one)} / ${name(other)}`);
        }
    });
    return found;
}"""


def enter_as_operator(page: Page, url: str, token: str) -> None:
    page.goto(f"{url}/console")
    page.get_by_role("tab", name="Operator", exact=True).click()
    page.get_by_label("Operator's token").fill(token)
    page.get_by_role("button", name="Open the operator's page").click()
    page.wait_for_selector(".frame h1")


def enter(page: Page, key: str) -> None:
    page.get_by_role("tab", name="Use an API key").click()
    page.get_by_label("API key", exact=True).fill(key)
    page.get_by_role("button", name="Enter").click()
    page.wait_for_selector(".frame h1")


def show(page: Page, path: str) -> None:
    page.evaluate(f"location.hash = '#/{path}'")
    title = path.split("/")[0].capitalize()
    page.get_by_role("heading", level=1, name=title, exact=True).wait_for()
    page.wait_for_load_state("networkidle")


def look(page: Page, axe: str, name: str, seen: dict[str, Any]) -> None:
    """Adds what is wrong with the page as it is shown."""
    page.evaluate(axe)
    options = {"runOnly": WCAG, "resultTypes": ["violations"]}
    found = page.evaluate("(options) => axe.run(document, options)", options)
    for one in found["violations"]:
        nodes = [node["html"][:200] for node in one["nodes"][:3]]
        seen["violations"].append([name, one["id"], one["help"], nodes])
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        seen["wide"].append(name)
    seen["wide"] += [f"{name}: {one}" for one in page.evaluate(BROKEN)]


def look_at_all(
    browser: Browser, url: str, key: str, token: str, axe: str, seen: dict[str, Any]
) -> None:
    for scheme, sizes in SIZES.items():
        for width, height in sizes:
            size: Any = {"width": width, "height": height}
            context = browser.new_context(
                viewport=size, color_scheme="dark" if scheme == "dark" else "light"
            )
            page = context.new_page()
            page.on("pageerror", lambda error: seen["errors"].append(str(error)))
            page.on(
                "console",
                lambda said: seen["errors"].append(said.text) if said.type == "error" else None,
            )
            page.goto(f"{url}/console")
            page.wait_for_selector(".enter")
            look(page, axe, f"enter {width} {scheme}", seen)
            enter_as_operator(page, url, token)
            look(page, axe, f"operator alone {width} {scheme}", seen)
            page.get_by_role("button", name="Log in to a workspace").click()
            enter(page, key)
            for path in PATHS:
                show(page, path)
                if (width, height) in (PHONE, DESK):
                    hidden = page.evaluate(HIDDEN, JOBS.get(path, "h1"))
                    seen["below"] += [[path, width, *hidden]] if hidden else []
                look(page, axe, f"{path} {width} {scheme}", seen)
            context.close()


def errors_in_sight(browser: Browser, url: str, key: str, seen: dict[str, Any]) -> None:
    """Errors of requests without a network stand beside their buttons, and are seen there."""
    for width, height in (PHONE, DESK):
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.goto(f"{url}/console")
        enter(page, key)
        for path, _, _ in ACTS:
            show(page, path)
        context.set_offline(True)
        for path, field, name in ACTS:
            page.evaluate(f"location.hash = '#/{path}'")
            if field:
                page.locator(f"main {field}:visible").fill("Hello.")
            page.locator(f"{name}:visible").click()
            beside = f"section:has({name}) .failed:not([hidden])"
            page.locator(beside).first.wait_for()
            if page.evaluate(HIDDEN, ".failed:not([hidden])"):
                seen["below"].append([path, width, f"error of {name}"])
        context.close()


def job_errors_in_sight(browser: Browser, url: str, key: str, seen: dict[str, Any]) -> None:
    """Errors of a new job stand beside its button: no space, no network; and a session that has
    ended leaves the upload for the next log-in."""
    full = {"error": "storage_unavailable", "message": "the disk is full"}
    ended = {"error": "unauthorized", "message": "the session has ended"}
    recording: Any = {"name": "talk.wav", "mimeType": "audio/wav", "buffer": bytes(20_000_000)}
    for width, height in (PHONE, DESK):
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.goto(f"{url}/console")
        enter(page, key)
        show(page, "jobs")
        page.locator(".jobs input[type=file]").first.set_input_files(recording)
        submit = page.get_by_role("button", name="Upload and transcribe")
        failed = page.locator("form .failed:visible")
        page.route("**/jobs/transcriptions", lambda route: route.fulfill(status=503, json=full))
        submit.click()
        failed.filter(has_text="The disk is full").wait_for()
        hidden = page.evaluate(HIDDEN, "form .failed:not([hidden])")
        page.unroute("**/jobs/transcriptions")
        page.route("**/jobs/*/parts/2", lambda route: route.abort())
        submit.click()
        row = page.locator("#jobs-list .queue-row").first
        row.filter(has_text="waiting for the network").wait_for()
        page.unroute("**/jobs/*/parts/2")
        page.route("**/jobs/*/parts/*", lambda route: route.fulfill(status=401, json=ended))
        page.get_by_text("Your session has ended").wait_for()
        page.unroute("**/jobs/*/parts/*")
        enter(page, key)
        page.get_by_role("button", name="Continue the upload of talk.wav").first.click()
        row.filter(has_text="waiting for its turn").wait_for()
        if hidden:
            seen["below"].append(["jobs", width, *hidden])
        context.close()


def cut_and_slow(browser: Browser, url: str, key: str, seen: dict[str, Any]) -> None:
    """A request without a network keeps the work and goes through when it is back."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(f"{url}/console")
    enter(page, key)
    text = page.get_by_role("textbox", name="Text", exact=True)
    text.fill("Kept without a network.")
    context.set_offline(True)
    page.get_by_role("button", name="Create a file").click()
    page.wait_for_selector(".failed:not([hidden])")
    banner = page.locator("#offline").is_visible()
    context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".history-row")
    seen["cut"] = [banner, text.input_value()]
    devtools = context.new_cdp_session(page)
    devtools.send("Network.enable")
    limits = {"offline": False, "latency": SLOW_MS, "downloadThroughput": 20_000}
    devtools.send("Network.emulateNetworkConditions", {**limits, "uploadThroughput": 20_000})
    page.reload()
    page.wait_for_selector(".frame h1", timeout=60_000)
    page.get_by_role("button", name="Create a file").click()
    page.wait_for_selector(".button.busy")  # says that it works
    page.locator(".history-row").nth(1).wait_for(timeout=60_000)
    seen["slow"] = True
    context.close()


def bytes_before_use(browser: Browser, url: str, key: str) -> int:
    """Of all that is loaded until a user who enters can press the button that speaks."""
    page = browser.new_page()
    page.goto(f"{url}/console")
    page.wait_for_selector(".enter")
    enter(page, key)
    page.wait_for_selector("#speak-live")
    page.locator(".voice-card").nth(1).wait_for()
    page.wait_for_load_state("networkidle")
    sizes = page.evaluate(
        "performance.getEntries().reduce((sum, one) => sum + (one.transferSize || 0), 0)"
    )
    page.close()
    return int(sizes)


def main(url: str, key: str, token: str, axe: str) -> None:
    seen: dict[str, Any] = {"violations": [], "errors": [], "wide": [], "below": []}
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        seen["bytes"] = bytes_before_use(browser, url, key)
        look_at_all(browser, url, key, token, Path(axe).read_text(encoding="utf-8"), seen)
        errors_in_sight(browser, url, key, seen)
        job_errors_in_sight(browser, url, key, seen)
        cut_and_slow(browser, url, key, seen)
        browser.close()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
