# ruff: noqa: E501
"""Texts whose line breaks are marked by hand: "¬" ends a line that continues in the next."""

from textwrap import wrap


def prose(text: str, width: int = 72, prefix: str = "", later: str | None = None) -> str:
    """Wrap a paragraph as editors do; each of its breaks only wraps it."""
    hanging = prefix if later is None else later
    lines = wrap(
        text,
        width,
        initial_indent=prefix,
        subsequent_indent=hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "¬\n".join(lines)


def columns(text: str, width: int) -> str:
    """Wrap a text without spaces after `width` letters."""
    return "¬\n".join(text[at : at + width] for at in range(0, len(text), width))


HARBOUR = (
    "The old man walked every morning along the narrow street behind the church, as if the sea "
    "might have moved in the night. Nobody asked him why. In winter Mrs. Dalloway lent him a lamp, "
    "which he never lit, and in summer he brought it back with a basket of plums from Saint Mary."
)
SHORT = "He had been told to wait at the gate until the carriage from London came for him."
KIRCHE = (
    "Der alte Mann ging jeden Morgen die schmale Straße hinter der Kirche entlang, als könnte sich "
    "das Meer in der Nacht bewegt haben. Niemand fragte ihn danach. Im Winter lieh ihm die Frau des "
    "Bäckers eine Laterne, die er nie anzündete."
)
EGLISE = (
    "Le vieil homme longeait chaque matin la rue étroite derrière l’église, comme si la mer avait "
    "pu bouger pendant la nuit. Personne ne lui demandait pourquoi. L’hiver, la boulangère lui "
    "prêtait une lanterne qu’il n’allumait jamais."
)
IGLESIA = (
    "El viejo caminaba cada mañana por la calle estrecha detrás de la iglesia, como si el mar "
    "hubiera podido moverse durante la noche. Nadie le preguntaba por qué. En invierno la panadera "
    "le prestaba un farol que nunca encendía."
)
RUSSIAN = (
    "Старик каждое утро шёл по узкой улице за церковью, словно море могло за ночь сдвинуться с "
    "места. Никто его ни о чём не спрашивал. Зимой жена пекаря давала ему фонарь, который он "
    "никогда не зажигал."
)
ITALIAN = (
    "Il vecchio percorreva ogni mattina la stradina dietro la chiesa, come se il mare avesse potuto "
    "spostarsi durante la notte. Nessuno gli chiedeva perché, e lui non lo diceva a nessuno."
)
POLISH = (
    "Stary człowiek szedł co rano wąską uliczką za kościołem, jak gdyby morze mogło się w nocy "
    "przesunąć. Nikt go o nic nie pytał, a on sam nie mówił o tym nikomu w całym miasteczku."
)
DUTCH = (
    "De oude man liep elke ochtend door de smalle straat achter de kerk, alsof de zee in de nacht "
    "verschoven kon zijn. Niemand vroeg hem ooit waarom hij dat deed."
)
HINDI = (
    "बूढ़ा आदमी हर सुबह गिरजाघर के पीछे की सँकरी गली से होकर जाता था, मानो रात में समुद्र अपनी जगह से हट गया हो। "
    "किसी ने उससे कभी नहीं पूछा कि वह ऐसा क्यों करता है और वह खुद भी कुछ नहीं कहता था।"
)
ARABIC = (
    "كان الرجل العجوز يمشي كل صباح في الشارع الضيق خلف الكنيسة كأن البحر قد تحرك من مكانه في الليل "
    "ولم يسأله أحد عن السبب وكان لا يقول شيئا لأحد في البلدة كلها حتى جاء الشتاء."
)
KOREAN = (
    "노인은 매일 아침 교회 뒤의 좁은 길을 따라 걸었다. 마치 밤사이에 바다가 자리를 옮겼을지도 모른다는 듯이 천천히 걸었고 "
    "아무도 그에게 이유를 묻지 않았다. 겨울에는 빵집 아주머니가 등불을 빌려주었다."
)
CHINESE = (
    "老人每天早上都沿着教堂后面那条狭窄的街道走去，好像大海在夜里会移动似的。没有人问他为什么。"
    "冬天，面包师的妻子借给他一盏灯，他却从来没有点亮过，到了夏天又把它还回来。"
)
JAPANESE = (
    "老人は毎朝、教会の裏の細い通りを歩いていった。まるで夜のあいだに海が動いたかもしれないとでも言うように。"
    "誰もその理由を尋ねなかった。冬にはパン屋のおかみさんが灯りを貸してくれた。"
)

SEEN = {
    "book of 72": prose(HARBOUR) + "\n\n" + prose(SHORT),
    "two lines": prose(SHORT),
    "title at the end of a line": "The carriage had left the yard before anybody saw that old Mr.¬\n"
    "Green was waiting at the gate with the letters of the whole family.",
    "opus at the end of a line": "Of the six pieces that she played that night, only the last, his Op.¬\n"
    "2, was known to anybody in the room.",
    "German book": prose(KIRCHE),
    "French book of 65": prose(EGLISE, 65),
    "Spanish book": prose(IGLESIA),
    "Russian book": prose(RUSSIAN),
    "Hindi": prose(HINDI, 60),
    "Korean": prose(KOREAN, 40),
    "Chinese of 30": columns(CHINESE, 30),
    "Japanese of 35": columns(JAPANESE, 35),
    "ragged by hand": "It was the best of times, it was the worst of times, it was the¬\n"
    "age of wisdom, it was the age of foolishness, it was the epoch¬\nof belief, it was the epoch "
    "of incredulity, it was the¬\nseason of Light, it was the season of Darkness.",
    "number after a wrap": "In the year of the long winter the harbour was closed for more than¬\n300 days, and the "
    "old man walked along the narrow street behind the church¬\neach morning, as if the sea might have moved "
    "during the dark night, and he¬\nnever told anyone.",
    "hyphenated": "The children thought that the whole evening had been a won-¬\nderful surprise, "
    "and nobody wanted to go home before mid-¬\nnight.",
    "e-mail": "Hi Anna,\n\n"
    + prose(HARBOUR)
    + "\n\nBest wishes\nTom\n\n-- \nTom Miller\nMiller & Sons Ltd\n12 Harbour Road\nDover",
    "quoted e-mail": "On Monday Tom wrote:\n" + prose(HARBOUR, 72, "> ") + "\n\nI agree.",
    "twice quoted": prose(SHORT, 60, ">> ") + "\n" + prose(HARBOUR, 72, "> ") + "\nYes.",
    "Markdown list": "# Plan\n"
    + prose(SHORT, 60, "- ", "  ")
    + "\n"
    + prose(SHORT, 60, "- ", "  "),
    "numbered": prose(SHORT, 60, "1. ", "   ") + "\n" + prose(HARBOUR, 60, "2. ", "   "),
    "sonnet": "Shall I compare thee to a summer’s day?\nThou art more lovely and more temperate:\n"
    "Rough winds do shake the darling buds of May,\nAnd summer’s lease hath all too short a date;",
    "German poem": "Wer reitet so spät durch Nacht und Wind?\nEs ist der Vater mit seinem Kind;\n"
    "Er hat den Knaben wohl in dem Arm,\nEr faßt ihn sicher, er hält ihn warm.",
    "French alexandrines": "Comme je descendais des Fleuves impassibles,\nJe ne me sentis plus "
    "guidé par les haleurs :\nDes Peaux-Rouges criards les avaient pris pour cibles,\n"
    "Les ayant cloués nus aux poteaux de couleurs.",
    "Spanish romance": "Verde que te quiero verde.\nVerde viento. Verdes ramas.\n"
    "El barco sobre la mar\ny el caballo en la montaña.\nCon la sombra en la cintura\n"
    "ella sueña en su baranda,",
    "modern verse": "so much depends\nupon\n\na red wheel\nbarrow\n\nglazed with rain\nwater",
    "Chinese poem": "床前明月光，\n疑是地上霜。\n举头望明月，\n低头思故乡。",
    "haiku": "古池や\n蛙飛びこむ\n水の音",
    "shopping": "Milk\nBread\nTwelve eggs\nA pound of butter\nApples\nTomatoes\nOlive oil",
    "address": "Dr. Anna Schmidt\nInstitut für Meereskunde\nHafenstraße 12\n24103 Kiel\nGermany",
    "dialogue": "“Are you coming?”\n“Yes.”\n“Good. Then we can leave at once, before the others "
    "come down.”\n“No! Wait.”",
    "headings": "CHAPTER I\nThe Harbour\n\n" + prose(HARBOUR),
    "recipe": "Ingredients\n200 g flour\n3 eggs\na pinch of salt\n\nMethod\n"
    + prose(HARBOUR, 70, "1. ", "   "),
    "long lines": "This is one whole paragraph on a single line, as editors without wrapping write "
    "it, and it goes on and on until its end comes at last.\nThis is the next paragraph, which is "
    "just as long, and which begins after a single line break, as in many documents of today.",
}

HELD_OUT = {
    "book of 80": prose(HARBOUR, 80) + "\n\n" + prose(SHORT, 80),
    "book of 60": prose(HARBOUR, 60),
    "book of 50": prose(HARBOUR, 50),
    "Italian book": prose(ITALIAN),
    "Polish book": prose(POLISH),
    "Dutch book of 66": prose(DUTCH, 66),
    "Arabic": prose(ARABIC, 65),
    "Chinese of 20": columns(CHINESE, 20),
    "Japanese of 40": columns(JAPANESE, 40),
    "German two lines": prose(
        "Er wartete den ganzen Nachmittag am großen Tor auf die Kutsche der Gräfin aus Wien."
    ),
    "indented paragraphs": prose(HARBOUR, 70, "    ", "") + "\n" + prose(SHORT, 70, "    ", ""),
    "Japanese paragraphs": columns("　" + JAPANESE, 30) + "\n" + columns("　" + JAPANESE[:45], 30),
    "German hyphens": "Am Abend saßen die Kinder noch lange am Ofen und erzählten sich Ge-¬\n"
    "schichten von Vor- und Nachteilen der Seefahrt, bis die Mut-¬\nter kam.",
    "commit": "Add a page about wrapped lines\n\n"
    + prose(SHORT, 72)
    + "\n\nSigned-off-by: A\nCc: B",
    "e-mail heads": "From: Anna Schmidt <anna@example.org> for the committee of the harbour\n"
    "To: everyone who has written to us about the lights on the northern pier\nSubject: Lights\n\n"
    + prose(HARBOUR, 76),
    "reply": "Hello,\n"
    + prose(SHORT, 70, "> ")
    + "\nThat is right.\n"
    + prose(SHORT, 70, "> ")
    + "\nThat is not.",
    "German letter": "Sehr geehrte Frau Schmidt,\n\n"
    + prose(KIRCHE, 76)
    + "\n\nMit freundlichen Grüßen\nIhr Hafenamt",
    "letter in one": "Dear Anna,\n" + prose(HARBOUR, 72) + "\nYours\nTom",
    "Markdown quote": prose(SHORT, 50, "> ") + "\n\n" + prose(HARBOUR, 80),
    "stars": prose(HARBOUR, 64, "* ", "  ") + "\n* Short.\n" + prose(SHORT, 64, "* ", "  "),
    "blank verse": "Of Man’s first disobedience, and the fruit\nOf that forbidden tree whose mortal "
    "taste\nBrought death into the World, and all our woe,\nWith loss of Eden, till one greater Man\n"
    "Restore us, and regain the blissful seat,",
    "Spanish sonnet": "Cerrar podrá mis ojos la postrera\nsombra que me llevare el blanco día,\n"
    "y podrá desatar esta alma mía\nhora a su afán ansioso lisonjera;",
    "French verse": "Demain, dès l’aube, à l’heure où blanchit la campagne,\nJe partirai. Vois-tu, je "
    "sais que tu m’attends.\nJ’irai par la forêt, j’irai par la montagne.\n"
    "Je ne puis demeurer loin de toi plus longtemps.",
    "Hindi ghazal": "हज़ारों ख़्वाहिशें ऐसी कि हर ख़्वाहिश पे दम निकले\nबहुत निकले मिरे अरमान लेकिन फिर भी कम निकले\n"
    "डरे क्यूँ मेरा क़ातिल क्या रहेगा उस की गर्दन पर\nवो ख़ूँ जो चश्म-ए-तर से उम्र भर यूँ दम-ब-दम निकले",
    "Arabic ode": "قفا نبك من ذكرى حبيب ومنزل بسقط اللوى بين الدخول فحومل\nفتوضح فالمقراة لم يعف رسمها لما نسجتها من جنوب "
    "وشمأل\nترى بعر الآرام في عرصاتها وقيعانها كأنه حب فلفل\nكأني غداة البين يوم تحملوا لدى سمرات الحي ناقف حنظل",
    "Chinese regulated verse": "昔人已乘黄鹤去此地空余黄鹤楼黄\n黄鹤一去不复返白云千载空悠悠白\n晴川历历汉阳树芳草萋萋鹦鹉洲晴",
    "long free verse": "I celebrate myself, and sing myself,\nAnd what I assume you shall assume,\n"
    "For every atom belonging to me as good belongs to you.\n\nI loafe and invite my soul,\n"
    "I lean and loafe at my ease observing a spear of summer grass.",
    "Chinese couplets": "白日依山尽，黄河入海流。\n欲穷千里目，更上一层楼。",
    "form": "Title: Mr.\nName: John Green\nDeliver to: the gate at the end of the street",
    "tasks": "Call the plumber about the kitchen\nWrite to the school\nBook the train to Edinburgh\n"
    "Pay the bill",
    "American address": "Mr. John Appleseed\nAppleseed Orchards, Inc.\n1234 Long Meadow Lane, "
    "Suite 500\nSpringfield, IL 62704",
    "play": "HAMLET. To be, or not to be, that is the question.\nOPHELIA. My lord?\n"
    "HAMLET. Well, well, well.",
    "schedule": "08:30 Registration and coffee in the foyer of the old main building on the quay\n"
    "09:15 Opening of the conference by the mayor and the president of the two societies",
    "ingredients": "200 g of butter that has been out of the fridge for an hour\n3 large eggs from a farm",
    "French dialogue": "— Tu viens ?\n— Oui, mais pas avant que les autres soient tous descendus.\n"
    "— Alors dépêche-toi, je t’attends en bas depuis une heure.",
    "steps": "Heat the oil in a large pan over a medium flame\nAdd the onions and stir until they "
    "are soft\nPour in the stock and let it simmer for an hour\nServe with bread",
}
