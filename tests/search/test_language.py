"""The language of documents: short texts, other languages, code and tables."""

import inspect
import json
import keyword

import pytest

from bert_jax.search.language import LANGUAGES, SIMILAR, STEMMED, detect_language
from bert_jax.search.words import stem_words
from tests.support.human_rights import ARTICLES, UNSTEMMED_ARTICLES

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


def test_the_words_of_the_lists_are_those_of_texts():
    for name, words in (STEMMED | SIMILAR).items():
        listed = words.split()
        assert len(set(listed)) == len(listed) and words.lower() == words, name
        assert not {word for word in listed if len(word) == 1 and word.isascii()}, name
        assert not {*listed} & {*keyword.kwlist} - {"del"}, name
