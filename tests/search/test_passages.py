"""Passages cover a document in whole sentences."""

import random
from itertools import pairwise

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.search.documents import Document
from bert_jax.search.passages import PassageCutter, TokenizerCounter, WordCounter
from bert_jax.text.wordpiece import WordPiece
from tests.support.small_models import SMALL_VOCABULARY


@pytest.mark.parametrize("room", [12, 40])
def test_passages_cover_a_document_in_whole_sentences(room):
    words = [
        word.capitalize() if n % 3 else word
        for n, word in enumerate(SMALL_VOCABULARY[5:8] + SMALL_VOCABULARY[9:11])
    ]
    tokens, rng = TokenizerCounter(WordPiece.from_vocabulary(SMALL_VOCABULARY), False), random.Random(0)
    odd = ["\u00a0", "\u2003", "\n", "\n\n", "x" * 300, "\u4e2d\u6587", "\U0001f600", "!", "mat" * 50]
    for ruler in (tokens, WordCounter()):
        for size in (1, 5, 50, 400):
            text = "".join(rng.choice(words) + rng.choice([" ", " ", ". ", *odd]) for _ in range(size))
            (cut,) = PassageCutter(ruler, room, room // 4)([Document("a", "the cat", text)])
            end = 0
            for start, stop in cut.spans:
                assert not text[end:start].strip(), "left out"
                assert stop > end and text[start:stop] == text[start:stop].strip()
                end = stop
            assert not text[end:].strip() and cut.texts == [text[start:stop] for start, stop in cut.spans]
            assert max(map(len, cut.texts)) <= 16 * room
            assert max(ruler.count(cut.texts)) <= room
    text = "The cat sat. " * 30
    (cut,) = PassageCutter(WordCounter(), 14, 7)([Document("a", "", text)])
    assert cut.spans[:3] == [(0, 51), (26, 77), (52, 103)]  # four sentences, of which two are shared
    with pytest.raises(BertJaxError, match="--passage-tokens"):
        PassageCutter(WordCounter(), 7, 0)


def test_a_title_has_half_of_a_passage_in_tokens_and_in_characters():
    def cut_title(title: str) -> str:
        return next(PassageCutter(WordCounter(), 16, 4)([Document("a", title, "cat")])).title

    assert cut_title("cat " * 100) == "cat " * 8
    assert cut_title("x" * 10_000) == "x" * 128


def test_neighbours_share_no_more_characters_than_their_tokens_may_have():
    (cut,) = PassageCutter(WordCounter(), 64, 8)([Document("a", "", "x" * 10_000)])
    shared = [before - start for (_, before), (start, _) in pairwise(cut.spans)]
    assert max(shared) <= 8 * 16 and len(cut.spans) > 5


def test_a_text_is_cut_where_its_lower_case_has_its_tokens():
    tokenizer = WordPiece.from_vocabulary(SMALL_VOCABULARY, do_lower_case=False)
    counter = TokenizerCounter(tokenizer, lower_case=True)
    for text in ("MATS CATS", "MATS \u0130"):
        assert counter.find_cuts(text, 2) == [5, len(text)]


@pytest.mark.slow
def test_a_document_of_any_size_is_cut_in_linear_time():
    cutter = PassageCutter(WordCounter(), 200, 25)
    for text in ("The cat sat on the mat. " * 8_000, "cat " * 50_000, "x" * 200_000):
        (cut,) = cutter([Document("a", "", text)])
        assert 50 < len(cut.spans) < 2_000
