"""Generates clean English sentences full of protected spans that a correction must not change."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

# The fillings of template slots: protected spans, which a correction must return unchanged.
SLOTS: dict[str, tuple[str, ...]] = {
    "name": (
        "Marta Kowalczyk", "Dr. Nguyen", "Siobhan O'Rourke", "Jean-Luc Moreau", "Xiaoming",
        "Priya", "Bjorn Aakre", "Tom", "Mr. Okonkwo", "Ms. van der Berg", "Aoife", "Kaito Watanabe",
        "Zoë",
        "Ivana Horvat", "Professor Adeyemi", "McDonald", "Lakshmi", "Saoirse", "Thandiwe",
        "Günther",
    ),
    "place": (
        "Reykjavik", "São Paulo", "Lagos", "Gdansk", "Cardiff", "Kyoto", "Nairobi", "Ljubljana",
        "Timisoara", "Ouagadougou", "Saskatoon", "Tromsø", "Chiang Mai", "Bratislava", "Antwerp",
    ),
    "company": (
        "Huawei", "Novartis", "Siemens", "Kubernetes", "PostgreSQL", "GitHub", "Zalando", "Xiaomi",
        "Spotify", "IKEA", "OpenTelemetry", "NVIDIA", "Grafana", "Ubisoft", "Etsy", "LaTeX",
    ),
    "url": (
        "https://example.com/a_b?x=1&y=2", "http://localhost:8080/teh/recieve",
        "www.wierd.org/path",
        "https://docs.example.org/v2/api#their-id", "example.io/dont", "https://x.org/a(b)c",
        "ftp://files.example.net/pub/alot.tar.gz", "https://sub.domain.co.uk/q?id=U7&r=thx",
    ),
    "email": (
        "marta.k@example.com", "teh+list@sub.example.co.uk", "no-reply@wierd.org", "x_y.z@dont.io",
        "first.last@company.example", "sales@u.example",
    ),
    "code": (
        "`git rebase -i HEAD~3`", "`x = dont()`", "`SELECT * FROM teh`", "`npm install`",
        "`if (i==1) return;`", "`recieve_data()`", "`rm -rf ./tmp`", "`u = ur[i]`",
    ),
    "path": (
        "/etc/nginx/nginx.conf", "~/src/teh/main.py", "C:\\Users\\marta\\wierd.txt", "./run.sh",
        "../docs/adress.md", "/usr/local/bin/thru", "report_final.pdf", "recieve.py", "notes.txt",
    ),
    "number": (
        "3.14", "1,250", "42", "7", "1990", "0.5%", "12", "100", "2.0.1", "1e6", "16", "365", "88",
    ),
    "money": ("$5.00", "€1,299.99", "£20", "$3 million", "¥9800", "25 EUR", "$0.02", "US$40"),
    "date": (
        "2024-05-06", "12/05/2025", "March 3, 2026", "Monday, June 1", "the 21st of May", "10:30",
        "5 p.m.", "Friday", "Q3 2025", "the 1990s", "31.12.2026", "7:05 a.m.",
    ),
    "mention": ("@marta_k", "@teh.dev", "@xiaoming", "@OReilly", "@u2"),
    "tag": ("#wierd", "#AlotOfFun", "#release2024", "#teh", "#dontpanic"),
    "emoji": ("😀", "👍🏽", "🎉🎉", "❤️", "👩‍💻", "🇳🇬", ":)"),
    "placeholder": (
        "{user_name}", "{{ recieve }}", "%s", "${HOME}", "<b>", "[NAME]", "%(adress)s", "{0}",
    ),
    "identifier": (
        "userName", "recieve_count", "maxRetries", "HTTPServer", "MAX_SIZE", "__init__", "isDone",
        "NASA", "JSON", "iPhone", "parseURL", "API", "SQL", "OAuth2",
    ),
}  # fmt: skip
TEMPLATES = (
    "{name} wrote to {email} on {date}, but no one answered.",
    "Please open {url} and tell {name} what you see.",
    "The file {path} is {number} lines long and belongs to {name}.",
    "We paid {money} for the tickets to {place}, and it was worth it.",
    "Run {code} before you edit {path}.",
    "{name} moved to {place} before {date} to work for {company}.",
    "Our team uses {company} together with {company}, which works well.",
    "The value of {identifier} should never be larger than {number}.",
    "Did {name} reply to {mention} about {tag}?",
    "Hello {placeholder}, your order over {money} will arrive on {date}.",
    "I met {name} and {name} in {place} last year {emoji}",
    "If {code} fails, look at {path} or ask {mention}.",
    "They have lived in {place} for {number} years.",
    "It's {name}'s turn to write the report for {company}.",
    "The meeting with {name} is planned for {date}, so don't be late.",
    "She isn't sure whether {company} will open an office in {place}.",
    "There are {number} people who haven't read {url} yet.",
    "My brother's friend sent {money} to {email} by mistake.",
    "You can't pass {placeholder} to {identifier}, because it expects a number.",
    "Thanks to {name}, the build takes {number} minutes less than before.",
    '"{company} is better than {company}," said {name}.',
    "He asked where the nearest station in {place} was.",
    "The results of the tests were sent to {email} on {date}.",
    "Its name is {identifier}, and its value is {number}.",
    "Everyone in {place} knows {name}, who's the owner of {company}.",
    "We'd rather wait until {date} than lose {money}.",
    "An hour later, {name} had already fixed {code}.",
    "Each of the {number} files in {path} has its own header.",
    "What {name} likes about {place} is that it's quiet at night.",
    "Our prices rise by {number} on {date}; see {url} for details.",
    "The effect of {identifier} on {company} is small, and it doesn't affect {identifier}.",
    "If I were {name}, I'd accept the {money} and move to {place}.",
    "Neither {name} nor {name} has been to {place}.",
    "The principal of the school in {place} is {name}.",
    "Two of them are here, and the other two are too tired to come to {place}.",
    "{mention} Could you review {url} by {date}? {tag}",
    "She passed the exam {number} days after her move to {place}.",
    "The quality of {company} depends on {identifier} and on {placeholder}.",
    "Their car is over there, and they're waiting for {name}.",
    '"Where are you?" {name} asked. "I\'m in {place}," came the answer.',
)


@dataclass(frozen=True)
class CleanSentence:
    text: str
    protected: tuple[str, ...]  # spans that the output must have as often as the text


def clean_sentences(count: int, seed: int = 6) -> Iterator[CleanSentence]:
    """`count` sentences: each template in turn, filled at random from `seed`."""
    choose = random.Random(seed)
    for index in range(count):
        filled: list[str] = []
        text = ""
        for position, part in enumerate(TEMPLATES[index % len(TEMPLATES)].split("{")):
            if position:
                slot, _, rest = part.partition("}")
                filled.append(choose.choice(SLOTS[slot]))
                part = filled[-1] + rest
            text += part
        yield CleanSentence(text, tuple(filled))
