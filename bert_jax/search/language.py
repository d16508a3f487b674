"""Tell the language of documents by its most frequent function words, to choose their stemmer."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from bert_jax.core.grouping import group_by_size
from bert_jax.data.randomness import sample_indices
from bert_jax.search.keywords import MARKS

# Words of one ASCII letter and keywords of programming languages are left out, so that code is not taken for prose.
# The languages with a stemmer, by Snowball's names.
STEMMED = {
    "arabic": "في من على إلى أن التي عن ما هذا مع كان هذه أو الذي بين قد كما لا بعد كانت ذلك هو هي كل لم حيث تم "
    "خلال وقد",
    "armenian": "և եւ է որ են էր այս իր մեջ համար ու հետ մի այն նաև ըստ կամ նրա ոչ բայց թե մինչև որը որոնք պետք "
    "իրենց",
    "basque": "eta da du bat dira ez ere zuen izan zen baina dute hau den bere edo beste egin baino dela ziren ditu "
    "duen",
    "catalan": "de la el que els les en del per un una és amb al va es com més dels seu ser han aquest aquesta però "
    "també són entre fou pel seva sobre quan des ha",
    "czech": "se na do je že to který jako ve za od po jsou pro by nebo ale jeho byl také byla bylo co však podle "
    "při která které až jen být má ze kde tak před mají jsem tím její",
    "danish": "og det at en den til af er på de med der et som ikke har han var fra kan eller blev ved være også "
    "efter sig når hvor men skal havde ud deres",
    "dutch": "de het een van en dat op te zijn met voor niet aan er om ook bij maar door uit naar heeft werd wordt "
    "worden ze hij die dan nog was deze tot over of hun",
    "english": "the of to an that was it he on are his be have by they which at had but were their been has its when "
    "who we you she her him how some your them my me our",
    "esperanto": "la de kaj en al estas ne por kiu kun oni ke pri sed aŭ el tiu kiel estis ĝi li ili pli per ĉi tio "
    "ankaŭ kiuj sia ĉiu havas pro",
    "estonian": "ja on ei et oli ta ka kui see mis seda aga ning oma kes nii siis veel selle ainult või pärast "
    "mille kus tema nad olid aasta pole mida sest mitte",
    "finnish": "ja on ei että oli se hän mutta ovat joka myös kun sen tai mukaan kuin jotka niin ole sekä hänen "
    "siitä voi jos vain jo ne jossa olla tämä kanssa olivat ollut sitä eivät tämän mitä heidän",
    "french": "le la les de des du et en un une que qui est pour dans par sur au aux ce se ne pas plus avec sont il "
    "elle ont été cette ou mais comme son sa ses leur dont être ces nous vous",
    "german": "der die und das den von zu mit sich des dem ein eine ist auf für nicht im es auch als an er wird bei "
    "aus sie nach einer um am werden haben oder war wurde zum zur einen einem eines wie über nur durch vor hat sind "
    "dass",
    "greek": "και το της την του η ο με να τα των που για τους από στο είναι στην στη στον δεν τον οι τη σε ως ότι "
    "αλλά τις ένα μια ή ήταν θα αυτό κατά μετά όπως έχει",
    "hindi": "के में की है और से का को हैं पर इस एक ने कि यह नहीं भी लिए जो था तो कर वह थे हो गया या इसके थी जाता "
    "साथ अपने किया",
    "hungarian": "az és hogy nem egy meg ez volt de csak már mint vagy ha még el azt van ki aki ezt amely minden "
    "majd azonban után által lehet pedig illetve között ami mert",
    "indonesian": "yang dan di dengan untuk dari ini dalam pada itu tidak adalah ke sebagai akan juga atau oleh "
    "telah dapat ada mereka karena lebih menjadi bahwa tersebut bisa seperti sudah ia",
    "irish": "an na ar agus go ag le do bhí sé den leis ón seo sin atá siad mar faoi ach tá nó bhfuil chun gach sna "
    "ina",
    "italian": "di che il la un una per non del si le dei con da della al sono nel come più gli lo alla ma è anche "
    "delle ha era ed su nella dal degli questo essere tra stato ci",
    "lithuanian": "ir kad buvo yra iš su tai kaip bet jis už ne po į jo taip nuo ar arba savo apie per dar tik "
    "labai jau metų būti kurie kuris iki jų prie ji",
    "nepali": "र छ पनि यो हो भएको लागि गरेको छन् भने तथा हुन् थियो गर्न तर गरी साथै हुने प्रत्येक उनी",
    "norwegian": "og det som en på er av til med de at ikke den har var han fra et om seg ble også kan men eller "
    "skal etter ved være hun sin når mot blir hadde opp ut",
    "persian": "و در به از که این را با است برای آن یک خود تا بر هم شد نیز شده بود می های ها کرد باشد دارد اما اند",
    "polish": "na się do nie że jest to jak po za od co przez dla jego oraz ale są ich lub także przy który które "
    "która tym był było tylko ze może być już jako czy tego jej ma pod oni tej te gdy bez",
    "portuguese": "de que do da em um uma para com não os dos se na por mais como das ao foi no mas sua à seu ou "
    "quando muito nos já também pelo pela até ela entre era aos são",
    "romanian": "și şi de la cu care din pe un nu este că mai al au fost ca sau pentru se să prin sunt sa lor fi "
    "dar după ale cele acest această ei într între era în",
    "russian": "и в не на что с по как из это его для от было был за но все он они также или были её ее при их до "
    "после которые который может то же у к о бы так только она если",
    "serbian": "и је у на да се за од са су не што као по који али или из био која треба na da se za od sa su ne "
    "što kao po koji ali ili iz bio koja nije kako bi koje samo",
    "spanish": "el la los las de del que en un una por con se para es su al lo como más pero sus le ha fue entre "
    "era este también desde sobre está son cuando muy sin hasta hay donde han",
    "swedish": "och att det som en på är av för den till med har de ett inte om han var från men sig så vid kan "
    "eller när under också efter sin då hade skulle blev alla mot",
    "tamil": "",  # its function words are mostly suffixes: it is never detected
    "turkish": "ve bir bu da de için ile çok olarak olan daha gibi ne ise ya var sonra kadar en her ancak ama "
    "tarafından göre olduğu değil ilk etti oldu üzerinde arasında onun bunu veya ki karşı bütün",
    "yiddish": "די און פון פֿון אין איז דער צו דאס דאָס מיט אויף ער האט האָט ניט נישט מען דעם וואס וואָס אז זיך "
    "אויך געווען א",
}  # fmt: skip
# Languages without one that share many words with a language above, and must not be taken for it.
SIMILAR = {
    "afrikaans": "die en van het nie om te wat vir op dat hy met was ook sy deur word aan hulle maar sal",
    "albanian": "të dhe në për me një që është nga si ka më do nuk janë",
    "belarusian": "і ў на не што з да як яго для ад было але які таксама або яе",
    "bulgarian": "на и в да се за от е не са по че това като с до му си бе ще при след или има най които който",
    "filipino": "ang ng sa mga na ay at si ito para kung",
    "galician": "de que do da en un unha os das dos para con non na no polo pola máis como ao á foi seu súa tamén "
    "ou mais",
    "icelandic": "og að það sem var er um með til við ekki hann en fyrir af eru eða hefur úr þar",
    "latin": "et est non ad cum ut sunt quod ex qui per sed aut ab quae atque etiam esse",
    "latvian": "un ir ar no kas uz par tā ka pie arī bet kā to viņš tika bija gan lai vai pēc",
    "macedonian": "на и во да се за од е не со дека како што по тоа ги ја го",
    "marathi": "आहे आणि या व ते हे होते होता होती आहेत तर असे पण मध्ये त्या त्यांनी केले म्हणून हा ही",
    "slovak": "na sa do je že to ako sú pre alebo ale aj od po bol ktorý ktoré ktorá bolo bola pri však iba byť "
    "jeho už čo",
    "slovenian": "je na da se za od so ki kot po ne pa tudi ali pri bi ga iz kar bil bila lahko",
    "swahili": "ya wa na kwa ni katika la cha za kuwa",
    "ukrainian": "і в не на що з та до за як у є це його для від було був але який які також або її ще їх про після",
    "urdu": "کے میں کی ہے اور سے کا کو اس پر نے ہیں ایک یہ تھا کہ بھی نہیں جو وہ تھی",
}  # fmt: skip

AUTO, NONE = "auto", "none"
LANGUAGES = tuple(STEMMED)
SAMPLE = 500  # texts that are looked at
GROUP = 200  # words of neighbouring texts that are judged together
# The fewest different function words of a group, and the share of all of them: prose has twice as many, code and tables
# half as many.
MIN_DISTINCT, MIN_SHARE = 3, 0.1
MAJORITY = 2 / 3  # of the words must be in groups of one language
WORD = re.compile(rf"[^\W\d_](?:[^\W\d_]|[{MARKS}])*")
LANGUAGES_BY_WORD: dict[str, list[str]] = {}
for name, words in (STEMMED | SIMILAR).items():
    for word in set(words.split()):
        LANGUAGES_BY_WORD.setdefault(word, []).append(name)


def detect_language(texts: Sequence[str]) -> str | None:
    """Return the language of most texts, by the name of its stemmer; None if it is unknown or has no stemmer.

    >>> detect_language(["They are born free, and they have the same rights."])
    'english'
    >>> detect_language(["for (int i = 0; i < n; i++) sum += a[i];"])
    """
    counts = Counter[str | None]()
    sample = (WORD.findall(texts[n].lower()) for n in sample_indices("language", len(texts), SAMPLE))
    for group in group_by_size(sample, GROUP, len):
        words = [*chain.from_iterable(group)]
        counts[closest_language(words)] += len(words)
    for language, count in counts.most_common(1):
        if language in STEMMED and count > MAJORITY * counts.total():
            return language
    return None


def closest_language(group: list[str]) -> str | None:
    """Return the language with the most function words in a group; None if it has few, or two have as many."""
    hits = Counter(language for word in group for language in LANGUAGES_BY_WORD.get(word, ()))
    (language, most), (_, second) = [*hits.most_common(2), ("", 0), ("", 0)][:2]
    distinct = sum(language in LANGUAGES_BY_WORD.get(word, ()) for word in set(group))
    is_prose = distinct >= MIN_DISTINCT and most >= MIN_SHARE * len(group)
    return language if is_prose and most > second else None
