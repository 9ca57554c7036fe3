"""Classes of written forms that NeMo's grammars or native speakers read, each by a few inputs."""

import pytest

from tests.pipelines.text.normalisation.score import speak

ENGLISH = {
    # Codes: three digits and more one by one after a letter, no units, and no ranges
    "h264": "h two six four",
    "abc1234": "abc one two three four",
    "t2000": "t two thousand",
    "COVID-19": "COVID nineteen",
    "B747-400": "B seven four seven four hundred",
    "12/345/67890": "twelve/three hundred and forty-five/six seven eight nine zero",
    "4-4-2": "four four two",
    "a#1": "a hash one",
    "90210": "nine zero two one zero",
    "card ending in 1234": "card ending in one two three four",
    "There are 90210 of them": "There are ninety thousand two hundred and ten of them",
    "1,000,000,000,000,000": "one quadrillion",
    # Ranges with spaces
    "2pm - 5pm": "two P M to five P M",
    "10:00 - 12:30": "ten o'clock to twelve thirty",
    "1995 - 1999": "nineteen ninety-five to nineteen ninety-nine",
    "1980s - 90s": "nineteen eighties to nineties",
    "2 - 3 kg": "two to three kilograms",
    "$1.5M - $2M": "one point five million dollars to two million dollars",
    "10-12 May": "the tenth to the twelfth of May",
    "~$5": "approximately five dollars",
    # Dates and times
    "JAN 5, 2001": "January fifth, two thousand and one",
    "jan-15-2020": "January fifteenth twenty twenty",
    "11.17.05": "November seventeenth two thousand and five",
    "300 B. C.": "three hundred B C.",
    "02.30 a.m.": "two thirty A M.",
    "1:02:03": "one hour two minutes and three seconds",
    # Units in any case, of areas, after millions and fractions
    "12 GHZ": "twelve gigahertz",
    "2 °c": "two degrees Celsius",
    "5 m² of floor": "five square meters of floor",
    "4 cu ft": "four cubic feet",
    "9.8 m/s2": "nine point eight meters per second squared",
    "1.5 million km": "one point five million kilometers",
    ".5kg": "point five kilograms",
    "3 1/2 in": "three and one half inches",
    "60 miles/hour": "sixty miles per hour",
    "2 m x 8 m": "two meters by eight meters",
    "5 in the box": "five in the box",
    "48226 MI": "forty-eight thousand two hundred and twenty-six MI",
    # Fractions and powers
    "3/200": "three two hundredths",
    "120/80": "one hundred and twenty over eighty",
    "24/7": "twenty-four seven",
    "5^3": "five cubed",
    # Addresses of the internet: alone with the protocol, in a sentence without
    "http://abc.de/x-y": "H T T P colon slash slash abc dot D E slash x dash y",
    "see https://abc.de now": "see abc dot D E now",
    "John.Smith@Example.co.uk": "John dot Smith at Example dot co dot U K",
    "config.yaml and main.rs": "config dot yaml and main dot rs",
    "the end.of it": "the end dot of it",
    "src/main/java": "src slash main slash java",
    "and/or": "and/or",
    # Others
    "Springfield, IL, 62701": "Springfield, Illinois six two seven zero one",
    "Well, OK.": "Well, OK.",
    "κ and Δt": "kappa and delta t",
    "Rs. 500": "five hundred rupees",
    "the 22th floor": "the twenty-second floor",
}  # fmt: skip
GERMAN = {
    "€1,5 Milliarden": "eins Komma fünf Milliarden Euro",
    "$2 Mio.": "zwei Millionen Dollar.",
    "5 chf": "fünf Franken",
    "2 1/2 kg": "zweieinhalb Kilogramm",
    "2010-04": "April zweitausendzehn",
    "01:01:01 Uhr": "ein Uhr eine Minute und eine Sekunde",
    "3 km3": "drei Kubikkilometer",
    "1,5 Millionen km": "eins Komma fünf Millionen Kilometer",
}
OTHERS = [
    ("es", "A las 12 p. m.", "A las doce del mediodía."),
    ("es", "A las 12:30 p. m. de hoy", "A las doce y media de la tarde de hoy"),
    ("es", "1 000 €", "mil euros"),
    ("es", "llame al 600 123 456", "llame al seis cero cero, uno dos tres, cuatro cinco seis"),
    ("zh", "下午2:30", "下午两点三十分"),
    ("zh", "12:02", "十二点零二分"),
    ("zh", "¥2", "两元"),
    ("ko", "010-1234-5678입니다", "영 일 영, 일 이 삼 사, 오 육 칠 팔입니다"),
    ("pl", "Np. pies, tj. zwierzę", "Na przykład pies, to jest zwierzę"),
    ("te", "₹500", "ఐదు వందల రూపాయలు"),
    ("te", "₹2000", "రెండు వేల రూపాయలు"),
    ("ta", "₹500", "ஐநூறு ரூபாய்"),
    ("gu", "98765 43210", "નવ આઠ સાત છ પાંચ, ચાર ત્રણ બે એક શૂન્ય"),
    ("mr", "डॉ. पाटील", "डॉक्टर पाटील"),
    ("pa", "₹500", "ਪੰਜ ਸੌ ਰੁਪਏ"),
    ("kn", "₹500", "ಐನೂರು ರೂಪಾಯಿಗಳು"),
    ("ml", "ഡോ. രവി", "ഡോക്ടർ രവി"),
    ("en", "arr[12] is set", "arr twelve is set"),
    ("en", "Paris[12] is big", "Paris is big"),
    (
        "en",
        "1,947 people in 1947",
        "one thousand nine hundred and forty-seven people in nineteen forty-seven",
    ),
    # The danda of a sentence is no letter of the word before it
    ("hi", "दूरी 5 किमी। तापमान 40°C।", "दूरी पाँच किलोमीटर। तापमान चालीस डिग्री सेल्सियस।"),
    ("hi", "देखें www.gov.in। अब", "देखें डब्ल्यू डब्ल्यू डब्ल्यू डॉट जी ओ वी डॉट इन। अब"),
    ("bn", "২৫%। ডাঃ রহমান।", "পঁচিশ শতাংশ। ডাক্তার রহমান।"),
    ("pa", "ਕੀਮਤ 99.50 ਰੁਪਏ।", "ਕੀਮਤ ਨੜ੍ਹਿੰਨਵੇ ਰੁਪਏ ਪੰਜਾਹ ਪੈਸੇ।"),
    # Rupees as they are written on bills, and times of half a day
    ("hi", "रु. 1,25,000/- दें", "एक लाख पच्चीस हज़ार रुपए दें"),
    ("gu", "રૂ. 2.5 લાખ અને Rs. 50", "અઢી લાખ રૂપિયા અને પચાસ રૂપિયા"),
    ("mr", "12:15 AM, 5 pm वाजता", "रात्री बारा वाजून पंधरा मिनिटे, संध्याकाळी पाच वाजता"),
    ("bn", "5 AM, 4:10 pm", "ভোর পাঁচটা, বিকাল চারটা দশ মিনিট"),
    ("gu", "₹500-1000, ₹5–10 કરોડ", "પાંચસો થી એક હજાર રૂપિયા, પાંચ થી દસ કરોડ રૂપિયા"),
    ("hi", "14 PM हुए", "चौदह PM हुए"),
    ("mr", "2020 मी पुण्यात होतो", "दोन हजार वीस मी पुण्यात होतो"),
    ("hi", "हेल्पलाइन 1800-233-5500", "हेल्पलाइन एक आठ शून्य शून्य, दो तीन तीन, पाँच पाँच शून्य शून्य"),
    ("gu", "1800 233 5500", "એક આઠ શૂન્ય શૂન્ય, બે ત્રણ ત્રણ, પાંચ પાંચ શૂન્ય શૂન્ય"),
    ("mr", "दि.15/6/2024, सायं 7.00 वा.", "दिनांक पंधरा जून दोन हजार चोवीस, सायं सात वाजता."),
    ("bn", "সকাল ৭.৩০টায়", "সকাল সাতটা ত্রিশ মিনিটে"),
    # Comparisons and differences, but no tags
    ("zh", "票数≥80，x < 5", "票数大于等于八十，x 小于五"),
    ("zh", "9-4=5，<b>7</b>分", "九减四 等于 五，七分"),
    ("ja", "湿度≦40、8>3、9-4=5", "湿度小なりイコール四十、八大なり三、九マイナス四 イコール 五"),
    # More than a whole, pressures and scores, which are no longer one number; dates without a year
    ("zh", "血压130/85，24/7服务", "血压一百三十、八十五，二十四七服务"),
    ("ja", "血圧は130/85", "血圧は百三十の八十五"),
    ("ja", "5/4拍子、3/2倍、1/10に減る", "四分の五拍子、二分の三倍、十分の一に減る"),
    ("ja", "4/29から5/2、7/1です", "四月二十九日から五月二日、七月一日です"),
    ("ja", "受付は6/25まで、1/3から1/2に", "受付は六月二十五日まで、三分の一から二分の一に"),
    ("ja", "4:2で勝つ、16:9の画面、8:05", "四対二で勝つ、十六対九の画面、八時五分"),
    # Currencies after letters of these scripts, months, and ten thousands in colloquial Chinese
    ("zh", "只要HK$80、A$9和CNY70", "只要八十港元、九澳大利亚元和七十人民币"),
    ("ja", "約US$80とEUR9", "約八十米ドルと九ユーロ"),
    ("zh", "2023-07，2010-11", "二零二三年七月，二零一零年十一月"),
    ("ja", "2023-07", "二千二十三年七月"),
    ("zh", "8w粉丝，8w灯泡", "八万粉丝，八w灯泡"),
    ("es", "en 2023-07", "en julio de dos mil veintitrés"),
    ("pt", "em 2023-07", "em julho de dois mil e vinte e três"),
    ("fr", "depuis 2023-07", "depuis juillet deux mille vingt-trois"),
    ("fr", "le décret n° 2023-07", "le décret numéro deux mille vingt-trois à zéro sept"),
    ("it", "stagione 2006-07", "stagione duemilasei a zero sette"),
    # Ordinals without a space, and ranges of weekdays
    ("de", "am 4.Juni im 2.Stock", "am vierten Juni im zweiten Stock"),
    ("de", "der 1.FC und 3.2 km", "der erste FC und drei Komma zwei Kilometer"),
    ("de", "Wir sind 4.Dann geht es.", "Wir sind vier. Dann geht es."),
    ("en", "Wed.-Sun. 9-5", "Wednesday to Sunday nine to five"),
    (
        "fr",
        "Du lun. au ven. et lun.-sam. 9h",
        "Du lundi au vendredi et du lundi au samedi neuf heures",
    ),
    ("es", "lun.-sáb. 9:00", "lunes a sábado nueve"),
    # A full stop that also ends the sentence
    ("es", "Vive en EE. UU.", "Vive en Estados Unidos."),
    ("de", "Das war 44 v. Chr.", "Das war vierundvierzig vor Christus."),
    # Signs that are typed with others: numbers, products, telephones
    *(
        (code, "N°. 7", word)
        for code, word in (
            ("en", "number seven"),
            ("de", "Nummer sieben"),
            ("es", "número siete"),
            ("fr", "numéro sept"),
            ("it", "numero sette"),
            ("pt", "número sete"),
            ("nl", "nummer zeven"),
            ("pl", "numer siedem"),
        )
    ),
    *(
        (code, "3*4", words)
        for code, words in (
            ("de", "drei mal vier"),
            ("es", "tres por cuatro"),
            ("fr", "trois fois quatre"),
            ("it", "tre per quattro"),
            ("pt", "três vezes quatro"),
            ("nl", "drie keer vier"),
            ("pl", "trzy razy cztery"),
            ("hi", "तीन गुणा चार"),
            ("zh", "三乘四"),
            ("ja", "三かける四"),
            ("ar", "ثلاثة ضرب أربعة"),
        )
    ),
    ("de", "Wähle *31*4#, **3** 4", "Wähle einunddreißig vier, drei vier"),
    ("it", "a 35° N", "a trentacinque gradi nord"),
    ("it", "tel. 02.7654321", "telefono zero due, sette sei cinque quattro tre due uno"),
    # Dates with a short month, and places in a race
    (
        "es",
        "el 7 de nov. y el 9 de dic. de 2023",
        "el siete de noviembre y el nueve de diciembre de dos mil veintitrés",
    ),
    ("pt", "em 7 de nov. às 9", "em sete de novembro às nove"),
    ("it", "il 7 nov. è arrivato 4°", "il sette novembre è arrivato quarto"),
    ("en", "born on 7 March, since 9 May", "born on the seventh of March, since the ninth of May"),
    # Full stops after an hour, a month and a mark of a footnote
    ("en", "She came at 7 P.M. Mrs. Hill left.", "She came at seven P M. Missis Hill left."),
    ("en", "It was 7 July.[4][5] She left.", "It was the seventh of July. She left."),
    ("en", "(see table 4).12 The next one follows.", "(see table four). The next one follows."),
    # HTML that a page does not show, and the addresses of links
    ("en", "Hello <!-- not this --> there.", "Hello there."),
    ("en", '<div class="a">\nHello\n</div>', "Hello"),
    (
        "en",
        "“It works.”3 The next one fails. See No.3 The end.",
        "“It works.” The next one fails. See number three The end.",
    ),
    ("fr", "Il était “content.”12 Elle est partie.", "Il était “content.” Elle est partie."),
    ("de", "Er ging.2 Hunde bellten.", "Er ging. zwei Hunde bellten."),
    ("en", "It costs approx.3 CDs.", "It costs approximately three CDs."),
    ("en", "The page[1] is here.\n[1]: https://example.com/a", "The page is here."),
    ("en", "[one](/a 'A title') [two](/b (A title))", "one two"),
    ("de", "der **Haupt**bahnhof", "der Hauptbahnhof"),
    ("zh", "**北京**是首都", "北京是首都"),
    ("en", "the <div> element", "the div element"),
    ("pa", "9:30–18:15", "ਨੌਂ ਵੱਜ ਕੇ ਤੀਹ ਮਿੰਟ ਤੋਂ ਅਠਾਰਾਂ ਵੱਜ ਕੇ ਪੰਦਰਾਂ ਮਿੰਟ"),
]


@pytest.mark.parametrize(("language", "written", "spoken"), OTHERS)
def test_forms_of_other_languages_are_read_by_class(
    language: str, written: str, spoken: str
) -> None:
    assert speak(written, language) == spoken


@pytest.mark.parametrize(("written", "spoken"), ENGLISH.items())
def test_english_forms_are_read_by_class(written: str, spoken: str) -> None:
    assert speak(written, "en") == spoken


@pytest.mark.parametrize(("written", "spoken"), GERMAN.items())
def test_german_forms_are_read_by_class(written: str, spoken: str) -> None:
    assert speak(written, "de") == spoken
