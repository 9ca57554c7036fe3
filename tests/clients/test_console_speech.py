"""SSML, scripts, pronunciations and the options of transcripts on the console, in Chromium over
engines without weights."""

import pytest

from tests.clients.browser import Page
from tests.clients.console_page import fill, go, press, run, unfold, wait_until
from tests.clients.test_console_browser import page
from tests.clients.test_console_voices import ADD
from tests.clients.test_console_work import KEEP_FILES, choose_voice, signed_in

__all__ = ["page", "signed_in"]  # fixtures

# Keeps the JSON bodies and the forms that are sent.
KEEP_BODIES = """(() => {
    window.sent = [];
    const fetched = window.fetch;
    window.fetch = (path, options = {}) => {
        if (typeof options.body === 'string') window.sent.push([path, JSON.parse(options.body)]);
        return fetched(path, options);
    };
    const [open, send] = [XMLHttpRequest.prototype.open, XMLHttpRequest.prototype.send];
    XMLHttpRequest.prototype.open = function (method, path) {
        this.path = path;
        return open.call(this, method, path);
    };
    XMLHttpRequest.prototype.send = function (form) {
        const fields = {};
        for (const [name, value] of form.entries()) (fields[name] ||= []).push(String(value));
        window.sent.push([this.path, fields]);
        return send.call(this, form);
    };
})"""
# A socket that the test speaks through, by `live.say`.
FAKE_SOCKET = """(() => {
    window.WebSocket = class {
        static OPEN = 1;
        readyState = 1;
        constructor() {
            window.live = this;
            setTimeout(() => this.say({connection_established: {credit_balance: 5}}));
        }
        addEventListener() {}
        say(message) { this.onmessage({data: JSON.stringify(message)}); }
        send(text) {
            const message = JSON.parse(text);
            if (message.type === 'start') {
                window.started = message;
                this.say({type: 'connected'});
            } else if (message.type === 'stop') this.close();
        }
        close() { this.onclose({code: 1000}); }
    };
})"""
OPTIONS: list[tuple[list[str], str, dict[str, list[str] | None]]] = [
    (
        ["Numbers in digits", "Mask swear words", "Punctuation and capitals"],
        "/stt",
        {"keyterms": ["Nginx", "Ann Lee"], "numerals": ["true"], "punctuate": ["false"]},
    ),
    (["Treat two channels as two speakers"], "/stt", {"multichannel": ["true"], "numerals": None}),
    (
        ["Translate into English"],
        "/openai/v1/audio/translations",
        {"response_format": ["verbose_json"], "keyterms": None, "timestamps": None},
    ),
]
WRONG = '<speak>\n  Wait.\n  <brake time="1s"/>\n</speak>'
RIGHT = (
    '<speak>It costs $5.<break time="0.2s"/> '
    '<say-as interpret-as="characters">BBC</say-as> &amp; co.</speak>'
)
EXPLAINED = "all('.explained li > p:first-of-type').map((one) => one.textContent)"


def test_markup_and_the_lines_of_several_speakers_are_explained_and_spoken(signed_in: Page) -> None:
    fill(signed_in, Text="Rock & roll now")
    text = "labelled('Text')"
    run(signed_in, f"({text}.setSelectionRange(12, 15), true)")
    press(signed_in, "Slower")
    document = '<speak>Rock &amp; roll <prosody rate="slow">now</prosody></speak>'
    assert run(signed_in, f"{text}.value") == document
    run(signed_in, f"({text}.setSelectionRange(7, 11), true)")
    press(signed_in, "Phonemes")
    wrapped = document.replace("Rock", '<phoneme ph="…">Rock</phoneme>')
    assert run(signed_in, f"{text}.value") == wrapped
    assert run(signed_in, f"{text}.value[{text}.selectionStart]") == "…"  # to be filled

    fill(signed_in, Text=WRONG)
    press(signed_in, "Explain")
    assert "line 3, column 3: <brake> is not supported" in wait_until(signed_in, "failed()")
    chosen = f"{text}.value.slice({text}.selectionStart, {text}.selectionEnd)"
    assert run(signed_in, chosen) == '<brake time="1s"/>'
    assert run(signed_in, f"{text}.ariaInvalid") == "true"
    fill(signed_in, Text=RIGHT)
    assert run(signed_in, f"{text}.ariaInvalid") is None
    assert run(signed_in, "all('.badge').some((one) => one.textContent === 'SSML')") is True
    press(signed_in, "Explain")
    wait_until(signed_in, f"{EXPLAINED}.length === 2")
    assert run(signed_in, EXPLAINED) == ["It costs five dollars.", "B, B, C and co."]
    price = run(signed_in, "at('.explained').previousSibling.textContent.split(' · ')[2]")
    press(signed_in, "Create a file")
    wait_until(signed_in, f"said().includes('of speech') && said().includes('{price}')")
    assert run(signed_in, "at('.words').textContent") == "It costs $5. BBC & co."
    wait_until(signed_in, "at('.history-row p')?.textContent === 'It costs $5. BBC & co.'")
    wait_until(signed_in, "!at('#make-file.busy')")

    signed_in.call(KEEP_BODIES)
    press(signed_in, "Several speakers")
    wait_until(signed_in, "at('.script select').options.length > 4")
    signed_in.call(
        """(() => {
            const [first, second] = document.querySelectorAll('.script-line');
            const put = (control, value) => {
                control.value = value;
                control.dispatchEvent(new Event(control.matches('select') ? 'change' : 'input'));
            };
            put(first.querySelector('input:last-child'), 'Shall we go?');
            put(second.querySelector('input:last-child'), 'Yes.');
            put(second.querySelector('[type=number]'), '0.2');
            const box = second.querySelector('select');
            put(box, [...box.options].find((one) => one.text.startsWith('Bass')).value);
        })"""
    )
    press(signed_in, "Create a file")
    wait_until(signed_in, "all('.history-row').length === 2")
    path, body = run(signed_in, "sent[0]")
    assert path == "/tts-synthesize" and "text" not in body
    (first, second) = body["script"]
    voices = run(signed_in, "at('.history-row .hint').textContent.split(' · ')[0]")
    assert voices == "By the language of the text, Bass"
    assert first == {"text": "Shall we go?"}
    assert (second["text"], second["pause"], len(second["voice"])) == ("Yes.", 0.2, 36)
    assert run(signed_in, "at('.words').textContent") == "Shall we go?\nYes."
    press(signed_in, "Code")
    code = wait_until(signed_in, "top().querySelectorAll('pre').length && top().textContent")
    assert '"script"' in code and "/tts/explain" in code and "/ws/tts" not in code


def test_a_dictionary_is_made_changed_restored_exported_imported_used_and_deleted(
    signed_in: Page,
) -> None:
    go(signed_in, "speak/pronunciations")
    press(signed_in, "New dictionary")
    press(signed_in, "Save")
    assert "Give the dictionary a name" in wait_until(signed_in, "failed()")
    fill(signed_in, Name="Products", Word="Nginx")
    press(signed_in, "Add the entry")
    assert "Write how it is pronounced" in wait_until(signed_in, "failed()")
    fill(signed_in, Said_as="engine X", Phonemes="!")
    press(signed_in, "Add the entry")
    press(signed_in, "Save")
    assert "Nginx: the phonemes have no sound" in wait_until(signed_in, "failed()")
    fill(signed_in, Phonemes="")  # the wrong entry is in the form again
    press(signed_in, "Change the entry")
    press(signed_in, "Save")
    wait_until(signed_in, "said() === 'Version 1 is saved.'")
    press(signed_in, "Hear Nginx")
    press(signed_in, "Edit the entry Nginx")
    fill(signed_in, Said_as="N jinx")
    press(signed_in, "Change the entry")
    press(signed_in, "Save")
    wait_until(signed_in, "said() === 'Version 2 is saved.'")
    fill(signed_in, Version="1")
    wait_until(signed_in, "rows('#entries')[0].includes('engine X')")
    press(signed_in, "Save")
    wait_until(signed_in, "said() === 'Version 3 is saved.'")

    signed_in.call(KEEP_FILES)
    press(signed_in, "Export Products as PLS")
    wait_until(signed_in, "files.length")
    assert "<alias>engine X</alias>" in run(signed_in, "files[0].text()")
    signed_in.call(
        """(() => {
            const files = new DataTransfer();
            files.items.add(new File([window.files[0]], 'Copy.pls'));
            const input = document.querySelector('.speak input[type=file]');
            input.files = files.files;
            input.dispatchEvent(new Event('change'));
        })"""
    )
    wait_until(signed_in, "said().includes('1 entry is imported into Copy.')")

    press(signed_in, "Speech")
    unfold(signed_in)
    wait_until(signed_in, "labelled('Products')")
    run(signed_in, "(labelled('Products').click(), true)")
    choose_voice(signed_in, "Alto")
    fill(signed_in, Text="Nginx is up.")
    press(signed_in, "Explain")
    assert wait_until(signed_in, f"{EXPLAINED}.length && {EXPLAINED}") == ["engine X is up."]
    press(signed_in, "Code")
    code = wait_until(signed_in, "top().querySelectorAll('pre').length && top().textContent")
    assert code.count('"pronunciations"') > 4  # of the file, the socket, and what OpenAI's has
    press(signed_in, "Close")

    press(signed_in, "Pronunciations")
    for name in ("Copy", "Products"):
        press(signed_in, f"Delete {name}")
        press(signed_in, "Delete")
        wait_until(signed_in, f"said() === '{name} is deleted.'")
    assert run(signed_in, "Boolean(at('#entries'))") is False
    press(signed_in, "New dictionary")
    fill(signed_in, Name="Draft", Word="SQL", Said_as="sequel")
    press(signed_in, "Add the entry")
    press(signed_in, "New dictionary")
    leaving = "((event) => !dispatchEvent(event))(new Event('beforeunload', {cancelable: true}))"
    assert run(signed_in, leaving)  # the browser asks before a reload
    press(signed_in, "Go back")
    assert run(signed_in, "rows('#entries').length") == 1
    press(signed_in, "Close")
    press(signed_in, "Discard them")
    wait_until(signed_in, "!at('#entries')")
    press(signed_in, "Speech")
    wait_until(signed_in, "!labelled('Products')")


def test_saving_a_dictionary_takes_the_entry_in_the_form(signed_in: Page) -> None:
    go(signed_in, "speak/pronunciations")
    press(signed_in, "New dictionary")
    fill(signed_in, Name="Rivers", Word="Weir")
    press(signed_in, "Save")
    assert "Write how it is pronounced" in wait_until(signed_in, "failed()")
    fill(signed_in, Said_as="weer")
    press(signed_in, "Close")  # asks, since the entry would be lost
    press(signed_in, "Go back")
    press(signed_in, "Save")
    wait_until(signed_in, "said() === 'Version 1 is saved.'")
    assert "weer" in run(signed_in, "rows('#entries')[0]")
    press(signed_in, "Edit the entry Weir")
    fill(signed_in, Said_as="wear")
    press(signed_in, "Save")
    wait_until(signed_in, "said() === 'Version 2 is saved.'")
    assert "wear" in run(signed_in, "rows('#entries').join()")
    press(signed_in, "Close")
    wait_until(signed_in, "!at('#entries')")


@pytest.mark.slow
def test_transcript_options_are_sent_and_stable_live_words_distinguished(
    signed_in: Page,
) -> None:
    go(signed_in, "listen")
    signed_in.call(KEEP_BODIES)
    unfold(signed_in)
    fill(signed_in, Key_terms="Nginx, Ann Lee,")
    for boxes, path, fields in OPTIONS:
        for box in boxes:
            run(signed_in, f"(labelled('{box}').click(), true)")
        signed_in.call("(() => { sent.length = 0; })")
        signed_in.call(ADD.replace(".voices", ".listen"), 1)
        sent = wait_until(signed_in, "sent.find(([, body]) => body.audio || body.file)")
        assert sent[0] == path
        assert {name: sent[1].get(name) for name in fields} == fields
        # It is done, or refused: the recording has one channel, and this model does not translate.
        ended = "/USD|one channel|does not translate/.test(all('.queue-row').at(-1).innerText)"
        wait_until(signed_in, ended)
        for box in boxes:
            run(signed_in, f"(labelled('{box}').click(), true)")
    go(signed_in, "listen/microphone")
    signed_in.call(FAKE_SOCKET)
    press(signed_in, "Start listening")
    config = wait_until(signed_in, "window.started?.config")
    assert config["keyterms"] == ["Nginx", "Ann Lee"] and "multichannel" not in config
    shown = {"sentence_id": 1, "timestamp": 0, "duration": 1, "language": "en", "words": []}
    for committed, tentative, is_final in (
        ("We use", " engine", False),
        ("We use Nginx now.", "", True),
    ):
        message = {"type": "transcription", "text": committed + tentative, **shown}
        message |= {"committed": committed, "tentative": tentative, "is_final": is_final}
        signed_in.call("((message) => live.say(message))", message)
        assert run(signed_in, "at('.live-text p').textContent") == committed + tentative
        greys = run(signed_in, "all('.live-text .interim').map((one) => one.textContent)")
        assert greys == [tentative] * bool(tentative)
    press(signed_in, "Stop")
    wait_until(signed_in, "button('Export as TXT')")
