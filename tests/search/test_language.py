"""The language of documents, and that of an index: detected once, recorded, and the same for all that is added."""

import inspect
import json

import pytest

import bert_jax
from bert_jax.command import search
from bert_jax.command.main import main
from bert_jax.search.keywords import WordFinder, stem_words
from bert_jax.search.language import LANGUAGES, detect_language
from tests.support.indexes import file_contents

# The first article of the Universal Declaration of Human Rights, in languages with and without a stemmer.
ARTICLES = {
    "arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم "
    "بعضا بروح الإخاء.",
    "armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։ Նրանք ունեն "
    "բանականություն ու խիղճ և միմյանց պետք է եղբայրաբար վերաբերվեն։",
    "basque": "Gizon-emakume guztiak aske jaiotzen dira, duintasun eta eskubide berberak dituztela; eta "
    "ezaguera eta kontzientzia dutenez gero, elkarren artean senide legez jokatu beharra dute.",
    "catalan": "Tots els éssers humans neixen lliures i iguals en dignitat i en drets. Són dotats de raó i de "
    "consciència, i han de comportar-se fraternalment els uns amb els altres.",
    "czech": "Všichni lidé se rodí svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a "
    "svědomím a mají spolu jednat v duchu bratrství.",
    "danish": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft og "
    "samvittighed, og de bør handle mod hverandre i en broderskabets ånd.",
    "dutch": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met "
    "verstand en geweten, en behoren zich jegens elkander in een geest van broederschap te gedragen.",
    "english": "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.",
    "esperanto": "Ĉiuj homoj estas denaske liberaj kaj egalaj laŭ digno kaj rajtoj. Ili posedas racion kaj "
    "konsciencon, kaj devus konduti unu al alia en spirito de frateco.",
    "estonian": "Kõik inimesed sünnivad vabadena ja võrdsetena oma väärikuselt ja õigustelt. Neile on antud "
    "mõistus ja südametunnistus ja nende suhtumist üksteisesse peab kandma vendluse vaim.",
    "finnish": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu "
    "järki ja omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä.",
    "french": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de "
    "raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "german": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und "
    "Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.",
    "greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι "
    "προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα αδελφοσύνης.",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें "
    "बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "hungarian": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és "
    "lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy viseltessenek.",
    "indonesian": "Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama. Mereka "
    "dikaruniai akal dan hati nurani dan hendaknya bergaul satu sama lain dalam semangat persaudaraan.",
    "irish": "Saolaítear gach duine den chine daonna saor agus comhionann i ndínit agus i gcearta. Tá bua an "
    "réasúin agus an choinsiasa acu agus ba cheart dóibh gníomhú i dtreo a chéile i spiorad an bhráithreachais.",
    "italian": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di "
    "ragione e di coscienza e devono agire gli uni verso gli altri in spirito di fratellanza.",
    "lithuanian": "Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis. Jiems suteiktas protas ir sąžinė "
    "ir jie turi elgtis vienas kito atžvilgiu kaip broliai.",
    "nepali": "सबै व्यक्तिहरू जन्मजात स्वतन्त्र हुन् ती सबैको समान अधिकार र महत्व छ। निजहरूमा विचार शक्ति र "
    "सद्विचार भएकोले निजहरूले आपसमा भ्रातृत्वको भावनाबाट व्यवहार गर्नु पर्छ।",
    "norwegian": "Alle mennesker er født frie og med samme menneskeverd og menneskerettigheter. De er utstyrt "
    "med fornuft og samvittighet og bør handle mot hverandre i brorskapets ånd.",
    "persian": "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند. همه دارای عقل و وجدان "
    "هستند و باید نسبت به یکدیگر با روح برادری رفتار کنند.",
    "polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni "
    "rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.",
    "portuguese": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e "
    "de consciência, devem agir uns para com os outros em espírito de fraternidade.",
    "romanian": "Toate ființele umane se nasc libere și egale în demnitate și în drepturi. Ele sunt înzestrate "
    "cu rațiune și conștiință și trebuie să se comporte unele față de altele în spiritul fraternității.",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и "
    "совестью и должны поступать в отношении друг друга в духе братства.",
    "serbian": "Сва људска бића рађају се слободна и једнака у достојанству и правима. Она су обдарена разумом "
    "и свешћу и треба једни према другима да поступају у духу братства.",
    "spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de "
    "razón y conciencia, deben comportarse fraternalmente los unos con los otros.",
    "swedish": "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med förnuft och "
    "samvete och bör handla gentemot varandra i en anda av broderskap.",
    "tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும், உரிமைகளிலும் "
    "சமமானவர்கள், அவர்கள் நியாயத்தையும் மனச்சாட்சியையும் இயற்பண்பாகப் பெற்றவர்கள். அவர்கள் ஒருவருடனொருவர் சகோதர "
    "உணர்வுப் பாங்கில் நடந்துகொள்ளல் வேண்டும்.",
    "turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve "
    "birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.",
    "yiddish": "יעדער מענטש ווערט געבוירן פֿרײַ און גלײַך אין כּבֿוד און רעכט. יעדער ווערט באַשאָנקן מיט "
    "פֿאַרשטאַנד און געוויסן; יעדער זאָל זיך פֿירן מיט אַ צווייטן אין אַ געמיט פֿון ברודערשאַפֿט.",
}  # fmt: skip
UNSTEMMED_ARTICLES = {
    "afrikaans": "Alle menslike wesens word vry, met gelyke waardigheid en regte, gebore. Hulle het rede en "
    "gewete en behoort in die gees van broederskap teenoor mekaar op te tree.",
    "bulgarian": "Всички хора се раждат свободни и равни по достойнство и права. Те са надарени с разум и "
    "съвест и следва да се отнасят помежду си в дух на братство.",
    "chinese": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "slovak": "Všetci ľudia sa rodia slobodní a sebe rovní, čo sa týka ich dôstojnosti a práv. Sú obdarení "
    "rozumom a majú navzájom jednať v bratskom duchu.",
    "slovenian": "Vsi ljudje se rodijo svobodni in imajo enako dostojanstvo in enake pravice. Obdarjeni so z "
    "razumom in vestjo in bi morali ravnati drug z drugim kakor bratje.",
    "thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม "
    "และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
    "ukrainian": "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і "
    "совістю і повинні діяти у відношенні один до одного в дусі братерства.",
    "vietnamese": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con "
    "người đều được tạo hóa ban cho lý trí và lương tâm và cần phải đối xử với nhau trong tình bằng hữu.",
}  # fmt: skip

# Danish and Norwegian share the function words of the article; Tamil's are mostly suffixes.
UNKNOWN = {"danish", "tamil"}
TABLE = [f"{name},{n},{n / 7:.3f},kg" for n, name in enumerate(["London", "Oslo", "The Hague", "Rome"] * 9)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_short_text_of_a_language_with_a_stemmer(language):
    expected = None if language in UNKNOWN else language
    assert detect_language([ARTICLES[language]]) == expected
    assert detect_language([ARTICLES[language]] * 30) == expected
    assert stem_words(["w1", "words"], language)[0] == "w1"


def test_texts_of_no_language_with_a_stemmer():
    for name, texts in {
        **{name: [article] for name, article in UNSTEMMED_ARTICLES.items()},
        "code": [inspect.getsource(json.decoder), inspect.getsource(json.encoder)],
        "a table": TABLE,
        "numbers": ["1 2 3"] * 50,
        "one word": ["cats"],
        "blank": [" "],
        "nothing": [],
        "two languages": [ARTICLES["english"] * 8, ARTICLES["german"] * 8] * 4,
    }.items():
        assert detect_language(texts) is None, name


def test_a_tenth_of_another_kind_does_not_hide_the_language():
    prose = [ARTICLES["spanish"]] * 90
    assert detect_language([*prose, *[ARTICLES["french"]] * 5, *TABLE[:5]]) == "spanish"


# Of an index


TEXTS = ["The wings of an aircraft were tested at high speed.", "It is a wing that was bent by the wind."]


def found(index: bert_jax.Index, query: str) -> list[str]:
    return sorted(hit.id for hit in index.search(query))


def test_documents_that_are_added_have_the_stems_of_the_first_ones(tmp_path):
    index = bert_jax.Index.build(TEXTS, tmp_path / "index")
    assert index.manifest.language == "english" and found(index, "winged") == ["0", "1"]
    index.add([ARTICLES["german"] * 5, "Bent wings."])
    assert index.manifest.language == "english" and found(index, "wing") == ["0", "1", "3"]
    assert found(index, "Mensch") == []  # Menschen, whose German stem this is
    german = bert_jax.Index.build([ARTICLES["german"]], tmp_path / "german")
    assert found(german, "Mensch") == ["0"]


def test_another_language_is_refused_unless_all_is_written_anew(tmp_path, capsys):
    path, other = str(tmp_path / "index"), str(tmp_path / "other")
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"id": t, "text": t}) + "\n" for t in TEXTS))
    docs = str(tmp_path / "docs.jsonl")
    assert main(["index", docs, "--output", path, "--language", "none"]) == 0
    assert "keywords match" not in capsys.readouterr().err
    before = file_contents(tmp_path / "index")
    for flags, message in (
        (["--language", "english"], "built with language none, not english; add --compact to this command"),
        (["--language", "englisch"], 'no language "englisch"; did you mean "english"?'),
    ):
        assert main(["index", docs, "--output", path, *flags]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert file_contents(tmp_path / "index") == before
    for language in ("auto", "none"):  # what it was built with, or nothing in particular
        assert main(["index", docs, "--output", path, "--language", language]) == 0
    assert "keywords match" not in capsys.readouterr().err
    assert main(["index", "--output", path, "--compact", "--language", "auto"]) == 0
    assert "the language is english, so keywords match by their stems" in capsys.readouterr().err
    assert main(["index", docs, "--output", other]) == 0
    assert "the language is english" in capsys.readouterr().err
    queries = ["winged", "speeds"]
    assert bert_jax.Index.open(path).search(queries) == bert_jax.Index.open(other).search(queries)
    assert main(["info", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["language"] == "english"
    assert main(["index", "--output", path, "--compact", "--language", "none"]) == 0
    assert found(bert_jax.Index.open(path), "winged") == []


def test_the_words_of_a_query_are_shown_whatever_their_endings(monkeypatch):
    monkeypatch.setattr(search, "is_coloured", lambda: True)
    finder = WordFinder("winged tests", "english")
    shown = search.highlight_words("Wings were tested; the wind was not.", finder)
    assert shown.count(search.BOLD) == 2 and shown.endswith("; the wind was not.")
    text = f"{'It was not so. ' * 30}The wings were tested."
    assert "wings were tested" in search.excerpt(text, finder)
