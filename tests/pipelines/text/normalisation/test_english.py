"""English kinds of written forms that are met in messages, forms and catalogues."""

import pytest

from tests.pipelines.text.normalisation.score import speak

SPOKEN = {
    # Dates, quarters and eras
    "We met on june 12.": "We met on June twelfth.",
    "due 7 oct 2021": "due the seventh of October twenty twenty-one",
    "born 28.10.1995": "born the twenty-eighth of October nineteen ninety-five",
    "until 18-06-2022": "until the eighteenth of June twenty twenty-two",
    "sales of 3Q21": "sales of the third quarter of twenty-one",
    "Rome in 410 A.D. fell": "Rome in four ten A D fell",
    "We may 5 times march 3 miles.": "We may five times march three miles.",
    # Addresses
    "1325 W Maple Ave": "thirteen twenty-five west Maple Avenue",
    "at 509 S 3rd st": "at five zero nine south third Street",
    "Walk along Harbor Blvd to the pier.": "Walk along Harbor Boulevard to the pier.",
    "18 Bay Expy, Town": "eighteen Bay Expressway, Town",
    "St Ives is far.": "St Ives is far.",
    # Addresses of the Internet
    "kim77@mail.org": "kim seven seven at mail dot org",
    "r&d@firm.com": "r ampersand d at firm dot com",
    "file:///tmp/a.txt": "file colon slash slash slash tmp slash a dot txt",
    "Ping 10.20.0.30.": "Ping one zero dot two zero dot zero dot three zero.",
    # Money
    "¥40 billion": "forty billion yen",
    "£8/wk": "eight pounds per week",
    "$.07": "seven cents",
    "US$12.5 million": "twelve point five million US dollars",
    "$3.125": "three point one two five dollars",
    # Measures and fractions
    "9 g/kg": "nine grams per kilogram",
    "12.5 km³": "twelve point five cubic kilometers",
    "a 5-kg bag": "a five kilogram bag",
    "17/4": "seventeen quarters",
    "open 24/7": "open twenty-four seven",
    "the season 2018/19": "the season twenty eighteen nineteen",
    # Times and serial numbers
    "at 2:00 a.m. sharp": "at two A M sharp",
    "at 7.45pm": "at seven forty-five P M",
    "part x-4-12-b": "part x-four twelve b",
    "a k8s cluster": "a k eight s cluster",
    # Signs
    "Rm. 204, 3rd fl.": "Room two hundred and four, third floor.",
    "more than last yr.": "more than last year.",
    "cats/dogs/birds": "cats slash dogs slash birds",
}


@pytest.mark.parametrize("text", SPOKEN)
def test_english_forms_of_messages_and_catalogues_are_spoken(text: str) -> None:
    assert speak(text, "en") == SPOKEN[text]
