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

# Everyday sentences that look alike, or that the tagger or an earlier rule misread.
LOOK_ALIKES = {
    "mˈɪnət": [
        "There were last [minute] changes.",
    ],
    "slˈʌf": [
        "[Slough] off the dead skin.",
    ],
    "bˈOd": [
        "The violin is [bowed].",
    ],
    "ˈæksiz": [
        "The [axes] of the graph are near the door.",
        "On the other hand, the [axes] are perpendicular.",
    ],
    "dˈʌz": [
        "He saw a deer and [does] not shoot.",
    ],
    "bˈæs": [
        "He sold his [bass] boat.",
        "The [bass] were biting.",
        "I bought [bass] lures.",
        "I had the sea [bass] with lemon butter.",
        "We caught three [bass] before lunch.",
        "That's the biggest [bass] I've ever caught.",
        "They stock the pond with [bass].",
    ],
    "ɹəzˈum": [
        "[Resume] cooking over a low heat.",
    ],
    "mObˈil": [
        "He was born in [Mobile].",
    ],
    "pˈAsti": [
        "His face was [pasty] and thin.",
        "My skin goes so [pasty] in winter.",
    ],
    "dəfjˈuz": [
        "Candles [diffuse] a soft light.",
    ],
    "səbˈɔɹdnAt": [
        "I refuse to [subordinate] myself to anyone.",
    ],
    "nˈɛsᵊl": [
        "[Nestle] the eggs in the sauce.",
    ],
    "ɹˈW": [
        "They had a [row] about it.",
        "We had a blazing [row] about money.",
    ],
    "lˈid": [
        "There is no [lead] in the case.",
        "They made a list of [lead] developers.",
        "He made the most of [lead] time.",
        "He sees a [lead] from the front of the church roofs.",
        "The silver medallist took the [lead] in the race.",
        "[Lead] and inspire your team.",
        "He will [lead] soldiers into battle.",
        "The roof gave us a [lead] of three points.",
    ],
    "wˈund": [
        "He had a [wound] on his arm.",
        "The [wound] up his arm had healed.",
    ],
    "bˈAs": [
        "I'm hooked, the [bass] is great.",
        "The sea was loud but the [bass] was louder.",
        "He was caught with my [bass] in his car.",
        "I caught the [bass] player's eye.",
        "Catch our new [bass] player live.",
    ],
    "bˈO": [
        "Put the [bow] down.",
        "She gave him a little [bow] to shoot with.",
        "She took a [bow] from the box and tied it.",
        "He gave her a little [bow] for her hair.",
        "Mum made me a little [bow].",
        "She drew her [bow] and fired.",
    ],
    "ˈɑbʤəkt": [
        "It moves from object to [object].",
    ],
    "ɹˈO": [
        "There was a [row] over there.",
        "Delete the [row] about sales.",
        "Tell me about the [row] over there.",
        "I read the [row] about costs twice.",
    ],
    "jˈuzd": [
        "Your data is not [used] to train our models, and we delete it.",
        "These cookies are not [used] to track you.",
        "It's not [used] to store food.",
    ],
    "kˈɛltɪk": [
        "The [Celtic] people of the Highlands lived there for a season.",
        "It's a [Celtic] festival for music fans.",
    ],
    "ɹˈɛd": [
        "[Read] receipts are on.",
        "They [read] every night last week.",
        "He left me on [read].",
        "My father [read] to me when I was small.",
        "He sat down and [read] the paper.",
        "It can be [read] by anyone.",
        "What have you [read] lately?",
        "Yesterday they [read] every page.",
        "In May she [read] ten books.",
        "Have you ever [read] it?",
        "I [read] the note yesterday to see if he was coming.",
        "I haven't [read] the attachment.",
    ],
    "kˈɑntɛnt": [
        "This isn't [content], it's spam.",
    ],
    "bˈAsᵻz": [
        "The [basses] sing low.",
        "The legal team has [bases] in four cities.",
        "The army has two [bases] here.",
    ],
    "əbʤˈɛkt": [
        "I [object], Your Honour!",
    ],
    "kəntˈɛnt": [
        "He slept to his heart's [content].",
    ],
    "bˈW": [
        "[Bow] to the queen.",
        "She answered with a [bow].",
        "She gave a small [bow].",
    ],
    "tˈɛɹ": [
        "The [tear] in the curtain grew.",
        "He's got a muscle [tear] and will be out for six weeks.",
    ],
    "lˈɛd": [
        "It went over like a [lead] balloon.",
        "His feet were like [lead].",
        "The paint contains [lead].",
        "The statue is made of [lead].",
        "The [lead] pipes had to go.",
    ],
    "ˈæksᵻz": [
        "The firemen broke down the door with [axes].",
    ],
    "jˈust": [
        "We aren't [used] to this.",
    ],
    "pɹəʤˈɛkt": [
        "They [project] the film onto a sheet.",
    ],
    "ɹˈɛzəmA": [
        "That's going on my [resume].",
    ],
    "əbjˈuz": [
        "People who [abuse] animals should go to prison.",
    ],
    "tˈɛɹz": [
        "Cheap paper [tears] easily.",
    ],
    "ʤˈOb": [
        "She has the patience of [Job].",
    ],
    "mˈOpɛd": [
        "A [moped] nearly hit me.",
    ],
    "bˈWd": [
        "The violin player [bowed] to the audience.",
        "We [bowed] to pressure.",
    ],
    "mInˈut;": [
        "The flat is [minute]; you can't swing a cat.",
    ],
    "ɹˈikWnt": [
        "The losing side demanded a [recount].",
    ],
    "sˈɛltɪk": [
        "[Celtic] won the match on Saturday.",
    ],
    "ˈAʤɪd": [
        "An [aged] man opened the door.",
    ],
    "sˈɑki": [
        "I've never tried [sake] before.",
    ],
    "pɹətˈɛst": [
        "I must [protest]!",
    ],
    "bəlˈʌvᵻd": [
        "It's one of our most [beloved] songs.",
    ],
    "blˈɛsᵻd": [
        "I clean it every [blessed] day.",
    ],
    "kəntɹˈæst": [
        "[Contrast] that with my day.",
    ],
    "ɹˈid": [
        "The file has [read] access.",
        "Did your father [read] to you?",
        "Did you [read] the report that we have sent?",
        "What do you [read] when you have time?",
        "Did you [read] it yet?",
        "Can anyone [read] what I have written?",
        "Open the app and [read] the messages you got.",
        "Take a seat and [read] the picked passage.",
        "Go in and [read] what was written.",
        "You should not [read] it.",
        "If you [read] fast, you'll finish tonight.",
    ],
    "pˈʌTɪŋ": [
        "He missed from six feet, and his [putting] let him down all day.",
    ],
    "slˈW": [
        "Does this train stop at [Slough]?",
    ],
    "əbʤˈɛkts": [
        "He [objects] to being called old.",
    ],
    "kˈɜɹst": [
        "He [cursed] under his breath.",
    ],
    "ɪkspˈɔɹt": [
        "[Export] your photos before you delete the app.",
    ],
    "hˈWzᵻz": [
        "The [houses] are all the same.",
    ],
    "dəzˈɜɹts": [
        "He got his just [deserts].",
    ],
    "klˈOz": [
        "The show came to a [close] at midnight.",
    ],
    "kɹˈʊkɪd": [
        "He has [crooked] teeth.",
    ],
    "ɹˈɛdɪŋ": [
        "[Reading], England, is west of London.",
        "Trains to [Reading] run every hour.",
        "I work in [Reading], not London.",
    ],
    "lˈIv": [
        "[Live] from New York.",
        "Is the site [live] yet?",
        "The band sounds even better [live].",
    ],
    "nˈis": [
        "They have a flat in [Nice].",
    ],
    "ˈɪnvɜɹt": [
        "Use [invert] sugar for the syrup.",
    ],
    "dəfjˈus": [
        "The light here is soft and [diffuse].",
    ],
    "mˈObᵊl": [
        "Do you have the [Mobile] app?",
    ],
    "lˈɪv": [
        "They [live] yet they suffer.",
        "[Live] from your savings.",
        "[Live] from the heart.",
        "“[Live] a little,” he said.",
    ],
    "lˈɪvz": [
        "My mum [lives] in York.",
    ],
    "ˈʌpsɛt": [
        "It was an [upset] in the cup.",
    ],
    "tˈɪɹ": [
        "A [tear] stained his shirt.",
        "A [tear] fell on her shoulder.",
        "My eyes [tear] up when I chop onions.",
    ],
    "nˈɛslA": [
        "It's a [Nestle] chocolate bar.",
    ],
    "ɪkskjˈuz": [
        "“[Excuse] me?”",
    ],
    "ɹˈɛzəmAz": [
        "Send [resumes] to the office by Friday.",
        "We got two hundred [resumes] for the job.",
    ],
    "ˈɪmplænt": [
        "He's got a cochlear [implant].",
    ],
    "kənvˈɜɹs": [
        "They can [converse] in three languages.",
    ],
    "ɹˈiʤɛkt": [
        "It's a [reject], so it was cheap.",
    ],
    "dəlˈɪbəɹət": [
        "Was it [deliberate]?",
    ],
    "ɪnkɹˈis": [
        "They want to [increase] the rent.",
    ],
    "nˈIs": [
        "[Nice] is not the word.",
    ],
    "ˈɛstəmAt": [
        "They [estimate] that it will cost a million.",
    ],
    "wˈɪndz": [
        "Strong [winds] are expected.",
        "The river [winds] were cold.",
        "Forest path [winds] blew.",
    ],
    "lˈæmənAt": [
        "I want to [laminate] the menu.",
    ],
    "pˈOlɪʃ": [
        "Do you speak [Polish]?",
    ],
    "ɹəfjˈuz": [
        "I [refuse] to answer that.",
    ],
    "lˈɜɹnd": [
        "You live and learn, and I've [learned].",
    ],
    "blˈɛst": [
        "We are [blessed] with good weather.",
    ],
    "klˈOs": [
        "They live in a little [close] off the High Street.",
    ],
    "ʤˈɑb": [
        "It's not my [job] to clean up after you.",
    ],
    "mˈOpt": [
        "I [moped] about it for weeks.",
    ],
    "əbjˈus": [
        "He shouted [abuse] at the referee.",
    ],
    "pˈɑlɪʃ": [
        "Where's the furniture [polish]?",
    ],
    "əfˈɪliət": [
        "The firm has an [affiliate] in Japan.",
    ],
    "ˈɛstəmAts": [
        "He [estimates] the cost at a thousand.",
    ],
    "pˈʊTɪŋ": [
        "He kept [putting] his foot in the hole.",
        "Thanks for [putting] me up last night.",
    ],
    "kOˈɔɹdənAt": [
        "We need to [coordinate] our diaries.",
    ],
    "pˈæsti": [
        "I ate a [pasty] and washed my hands with soap.",
        "I could eat another [pasty].",
    ],
    "pɹˈɛdəkət": [
        "A sentence has a subject and a [predicate].",
    ],
    "ˈɔltəɹnət": [
        "We meet on [alternate] Mondays.",
    ],
    "ɹəzˈumz": [
        "When play [resumes], he will serve.",
        "After lunch the trial [resumes].",
    ],
    "dˈOv": [
        "The dove [dove].",
        "An eagle [dove] at its prey.",
    ],
    "ɹˈidɪŋ": [
        "[Reading], he fell asleep.",
        "We look forward to [Reading].",
    ],
    "bˈWz": [
        "The actors took their [bows].",
    ],
    "ˈɛntɹəns": [
        "The [entrance] you want is on the left.",
    ],
    "kənflˈɪkt": [
        "The dates [conflict].",
    ],
}


@pytest.mark.parametrize(
    ("sentence", "phonemes"),
    [
        (text, phonemes)
        for table in (SENTENCES, LOOK_ALIKES)
        for phonemes, texts in table.items()
        for text in texts
    ],
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


@pytest.mark.parametrize("quote", ['"{}"', "“{}”", "He said, “{}”"])
def test_direct_speech_is_read_like_the_sentence_alone(quote: str) -> None:
    for speech in ("Excuse me.", "Tear it up.", "Use it."):
        assert READ(speech) in READ(quote.format(speech))


def test_a_curly_apostrophe_is_like_a_straight_one() -> None:
    assert READ("I haven’t read it.") == READ("I haven't read it.")


# Words with accents, with American and British phonemes without secondary stress
ACCENTED = {
    "résumé resumé RÉSUMÉ": ("ɹˈɛzəmA", "ɹˈɛzjʊmA"),
    "résumés": ("ɹˈɛzəmAz", "ɹˈɛzjʊmAz"),
    "exposé": ("ɛkspOzˈA", "ɛkspˈQzA"),
    "lamé": ("læmˈA", "lˈɑːmA"),
    "rosé": ("ɹOzˈA", "ɹˈQzA"),
    "rosés": ("ɹOzˈAz", "ɹˈQzAz"),
    "pâté": ("pɑtˈA", "pˈatA"),
    "maté": ("mˈɑtA", "mˈatA"),
    "divorcé": ("dᵻvɔɹsˈA", "dɪvɔːsˈA"),
    "protégé protege": ("pɹˈOTəʒA", "pɹˈɒtəʒA"),
    "d'être d’être": ("dˈɛtɹə", "dˈɛtɹə"),
    "Zoë zoë": ("zˈOi", "zˈQi"),
    "José's": ("hOzˈAz", "hQzˈAz"),
    "naïve naive": ("nɑˈiv", "nIˈiːv"),
    "coöperate cooperate": ("kOˈɑpəɹAt", "kQˈɒpəɹAt"),
    "learnèd": ("lˈɜɹnᵻd", "lˈɜːnɪd"),
    "hatèd": ("hˈATᵻd", "hˈAtɪd"),
    "expose": ("ɪkspˈOz", "ɪkspˈQz"),
    "lames": ("lˈAmz", "lˈAmz"),
    "roses": ("ɹˈOzᵻz", "ɹˈQzɪz"),
}


@pytest.mark.parametrize(
    ("word", "american", "british"),
    [(word, *readings) for words, readings in ACCENTED.items() for word in words.split()],
)
def test_accents_tell_loan_words_from_english_ones(word: str, american: str, british: str) -> None:
    assert READ(word).replace("ˌ", "") == american
    assert BRITISH(word).replace("ˌ", "") == british


@pytest.mark.parametrize("text", ["He said no.", "She ate a fig.", "She watched the Sun."])
def test_words_that_resemble_abbreviations_end_sentences(text: str) -> None:
    assert READ(text) == READ(text[:-1]) + "."
