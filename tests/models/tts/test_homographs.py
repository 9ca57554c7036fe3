"""English words with two pronunciations, by the phonemes of the voices that read them."""

import re

import pytest

from models.tts.kokoro.phonemes import phonemizer_for

READ = phonemizer_for("en")
BRITISH = phonemizer_for("en", british=True)

# Sentences with a word in brackets, and the phonemes of that word without secondary stress.
SENTENCES = {
    "bˈAs": ["She plays [bass] guitar.", "The [bass] is too loud.", "Turn up the [bass]!"],
    "bˈæs": ["He caught a large [bass] in the lake.", "We ate grilled [bass]."],
    "bˈW": ["The wave broke over the ship's [bow].", "Take a [bow]!", "He made a deep [bow]."],
    "bˈO": ["She drew her arrow and [bow].", "He tied a [bow] around the box."],
    "lˈɛd": [
        "[Lead] is toxic.",
        "The old [lead] pipes were replaced.",
        "Solder of tin and [lead].",
    ],
    "lˈid": ["The [lead] singer left.", "They took the [lead].", "Who will [lead] the team?"],
    "mInˈut": ["It differs in a [minute] detail.", "There are [minute] particles in it."],
    "mˈɪnət": ["Wait a [minute].", "The first [minute] was quiet.", "It takes one [minute]."],
    "mˈOpɛd": ["He sold his [moped].", "A [moped] stood at the gate."],
    "ˈæksᵻz": ["They carried swords and [axes].", "A row of stone [axes] was found."],
    "ˈæksiz": ["Label both [axes] of the diagram.", "The [axes] are perpendicular."],
    "tˈɛɹ": ["It is only wear and [tear].", "He has a partial [tear] of the tendon."],
    "tˈɪɹ": ["A [tear] ran down her cheek.", "The police used [tear] gas."],
    "ɹˈid": ["I did not [read] it.", "Can you [read] this?", "I want to [read]."],
    "ɹˈɛd": ["I have [read] it twice.", "She [read] it aloud.", "It was [read] by millions."],
    "lˈɪv": ["We [live] here.", "People who [live] alone."],
    "lˈIv": ["They played it [live] on stage.", "A [live] audience clapped."],
    "lˈɪvz": ["She [lives] in Oslo.", "[Lives] in Berlin."],
    "lˈIvz": ["It saved many [lives].", "Their [lives] changed."],
    "wˈWnd": ["We [wound] up in Rome.", "A coil [wound] around the core."],
    "wˈund": ["The [wound] healed.", "He died of a gunshot [wound]."],
    "ɹˈɛzəmA": ["My [resume] is attached.", "She updated her [resume]."],
    "ɹəzˈum": ["We [resume] at nine.", "Press play to [resume]."],
    "kəntˈɛnt": ["I am quite [content] with it."],
    "kˈɑntɛnt": ["The [content] is new.", "They make [content] for children."],
    "ɪkspˈɔɹt": ["You can [export] it.", "[Export] the file."],
    "ˈɛkspɔɹt": ["The [export] failed."],
    "pɹətˈɛst": ["They came to [protest]."],
    "pɹˈOtɛst": ["The [protest] grew."],
    "əbjˈuz": ["Never [abuse] their trust.", "He would [abuse] her."],
    "əbjˈus": ["It ends the [abuse] of power."],
    "ˈɪnvəlɪd": ["He was an [invalid] for years."],
    "ɪnvˈælɪd": ["The key is [invalid].", "An [invalid] code was entered."],
    "ɹˈɛdɪŋ": ["The train to [Reading] station is late."],
    "ɹˈidɪŋ": ["[Reading] is fun.", "He likes [reading] in bed."],
    "pˈɑlɪʃ": ["[Polish] the table first."],
    "pˈOlɪʃ": ["She speaks [Polish]."],
    "nˈis": ["They met in [Nice]."],
    "nˈIs": ["[Nice] to meet you.", "It was a [nice] day."],
    "klˈOz": ["[Close] the door.", "At the [close] of the day."],
    "klˈOs": ["They are [close] friends.", "It was a [close] call."],
    "ɪkskjˈuz": ["[Excuse] me, please."],
    "ɪkskjˈus": ["That is no [excuse]."],
    "dˈOv": ["She [dove] into the pool."],
    "dˈʌv": ["A white [dove] sat there."],
    "blˈɛsᵻd": ["The church of the [Blessed] Virgin."],
    "blˈɛst": ["He [blessed] them all."],
    "sˈɑki": ["We tried a [sake] brewery in Kyoto."],
    "sˈAk": ["Do it for my [sake]."],
}


@pytest.mark.parametrize(
    ("sentence", "phonemes"),
    [(text, phonemes) for phonemes, texts in SENTENCES.items() for text in texts],
)
def test_the_words_around_a_homograph_decide_its_pronunciation(
    sentence: str, phonemes: str
) -> None:
    place = sentence[: sentence.index("[")].count(" ")
    words = READ(re.sub(r"[\[\]]", "", sentence)).split()
    spoken = re.sub(r"[ˌ.,!?]", "", words[place])
    assert spoken == phonemes, words


def test_only_the_words_of_the_same_sentence_decide() -> None:
    bass_alone = READ("He plays bass.")
    assert READ("He plays bass. He caught a trout.").startswith(bass_alone)


def test_british_voices_read_homographs_with_british_vowels() -> None:
    assert "bˈAs" in BRITISH("She plays bass guitar.")
    assert "ɪkspˈɔːt" in BRITISH("You can export it.")
    assert "ɹˈɛzjʊmˌA" in BRITISH("My resume is attached.")
