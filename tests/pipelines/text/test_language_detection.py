"""Language detection of texts and paragraphs."""

import pytest

from pipelines.text.language_detection import detect_language, paragraph_language

OFFERED = frozenset("en hi ar fr de es it nl pl pt bn gu kn ml mr pa ta te ja zh".split())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The meeting starts at noon tomorrow.", "en"),
        ("Hi", "en"),
        ("OK", "en"),
        ("Hello", "en"),
        ("", "en"),
        ("12345", "en"),
        ("Your code is 4921.", "en"),
        ("Wait 5 minutes.", "en"),
        ("Gas is $3.19.", "en"),
        ("A 16GB RAM, 2.4GHz CPU w/ 1TB SSD.", "en"),
        ("Visit https://www.example.co.uk/shop?id=7 or mail me.", "en"),
        ("Guten Morgen", "de"),
        ("Ihr Code ist 4921.", "de"),
        ("Su código es 4921.", "es"),
        ("Où est la bibliothèque, s'il vous plaît ?", "fr"),
        ("Ich habe heute leider keine Zeit.", "de"),
        ("¿Dónde está la estación de tren?", "es"),
        ("Vorrei prenotare un tavolo per due.", "it"),
        ("Ik heb vandaag helaas geen tijd voor jou.", "nl"),
        ("Nie mam dzisiaj czasu, przepraszam.", "pl"),
        ("Não tenho tempo hoje, desculpe.", "pt"),
        ("नमस्ते दुनिया, आप कैसे हैं?", "hi"),
        ("माझे नाव राम आहे आणि मी पुण्यात राहतो", "mr"),
        # Sentences of UD_Hindi-PUD and UD_Marathi-UFAL (CC BY-SA) that were taken for the other
        ('नये एपिसोड के बाद आफ्टर शो, "द टाकिंग डेड" आता है।', "hi"),
        ("जॉर्जटाउन बीआईडी के अध्यक्ष", "hi"),
        ("ट्रम्प की पत्नी मिलेनिया", "hi"),
        ("सकाळी राजा मुलाला म्हणाला, राज्यातून चालता हो.", "mr"),
        ("थोड्या अंतरावर दुसरा भाऊ म्हणाला, दादा, मलाही निरोप दे!", "mr"),
        ("त्याला एक मुलगा होता.", "mr"),
        ("مرحبا بالعالم", "ar"),
        ("আমি ভালো আছি", "bn"),
        ("હું ઠીક છું", "gu"),
        ("ನಾನು ಚೆನ್ನಾಗಿದ್ದೇನೆ", "kn"),
        ("എനിക്ക് സുഖമാണ്", "ml"),
        ("ਮੈਂ ਠੀਕ ਹਾਂ", "pa"),
        ("நான் நலம்", "ta"),
        ("నేను బాగున్నాను", "te"),
        ("東京は大きいです", "ja"),
        ("你好世界", "zh"),
    ],
)
def test_the_language_of_a_text_is_detected(text: str, language: str) -> None:
    assert detect_language(text, OFFERED) == language


def test_only_offered_languages_are_detected() -> None:
    assert detect_language("Ich habe heute leider keine Zeit.", {"en", "fr"}) in {"en", "fr"}
    assert detect_language("你好世界", {"en"}) == "en"
    assert detect_language("Привет", {"de"}) == "de"


@pytest.mark.parametrize(
    ("text", "voice", "language"),
    [
        ("Ich möchte heute Abend einen Tisch für zwei Personen reservieren.", "en", "de"),
        ("Please restart the server before the deployment begins.", "fr", "en"),
        ("Please restart the server before the deployment begins.", "hi", "en"),
        ("നമസ്കാരം … Hello friends.", "ml", "ml"),
        ("आज का meeting postponed हो गया, please update your calendar", "hi", "hi"),
        ("Gare du Nord", "en", "en"),
        ("OK.", "hi", "hi"),
        ("WARNING: DO NOT ENTER THIS AREA", "de", "de"),
        ("नमस्ते", "en", "hi"),
        ("माझे नाव राम आहे", "hi", "hi"),
        ("東京は大きいです", "zh", "ja"),
        ("你好世界，今天天气很好，我们去公园散步吧。", "ja", "zh"),
        ("東京都", "ja", "ja"),
        ("12:30", "ar", "ar"),
        ("Привет, как дела?", "en", "en"),
    ],
)
def test_a_paragraph_keeps_the_voices_language_unless_clearly_another(
    text: str, voice: str, language: str
) -> None:
    assert paragraph_language(text, OFFERED, voice) == language
