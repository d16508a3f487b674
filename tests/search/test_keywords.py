"""Counts of words for keyword search, and their stems."""

import numpy as np
import pytest

from bert_jax.search import keywords
from bert_jax.search.keywords import KeywordSearch
from bert_jax.search.segment_files import SegmentFiles


def scores(folder, texts: list[str], language: str | None, query: str) -> list[float]:
    keywords.build_postings(folder, texts, language)
    search = KeywordSearch([(keywords.open_postings(SegmentFiles(folder), len(texts)), None)], language)
    (found,) = search.weight_query(query).score_passages([len(texts)])
    return found.tolist()


def test_a_count_beyond_its_type_is_the_highest_of_the_type(tmp_path):
    keywords.build_postings(tmp_path, ["ab " * 70_000, "ab"], None)
    assert np.load(tmp_path / keywords.FILES.numbers).tolist() == [65_535, 1]


@pytest.mark.parametrize(
    ("language", "texts", "query", "finds"),
    [
        ("english", ["It runs and was running.", "They ran.", "A runner."], "run", [0]),
        (None, ["It runs and was running.", "A run."], "run", [1]),
        ("german", ["Die Häuser stehen.", "Ein Hausboot."], "Haus", [0]),
        # Vowels of Hindi are marks, which a regular expression does not take for parts of a word.
        ("hindi", ["लड़की है", "लड़का था", "लड क"], "लड़के", [0, 1]),
        ("arabic", ["الكتاب هنا", "قلم"], "كتاب", [0]),
    ],
)  # fmt: skip
def test_words_match_by_the_stems_of_their_language(language, texts, query, finds, tmp_path):
    assert [*np.flatnonzero(scores(tmp_path, texts, language, query))] == finds


def test_stems_are_counted_as_words_are(tmp_path, monkeypatch):
    texts = ["cats and cats", "The cat ran.", "dogs", "A dog, two dogs."]
    monkeypatch.setattr(keywords, "WINDOW", 2)
    (tmp_path / "stems").mkdir()
    (tmp_path / "words").mkdir()
    by_stems = scores(tmp_path / "stems", texts, "english", "The cats and the dog")
    plain = ["cat and cat", "The cat ran.", "dog", "A dog, two dog."]
    assert by_stems == scores(tmp_path / "words", plain, None, "cat dog") and all(by_stems)
    search = KeywordSearch([(keywords.open_postings(SegmentFiles(tmp_path / "stems"), 4), None)], "english")
    added = search.weight_query("Cats and a cat, dogs").explain(0, 0)
    assert [*added] == ["cats"]  # the first of the query's words with this stem
    assert added["cats"] == pytest.approx(2 * search.weight_query("cat").explain(0, 0)["cat"])
