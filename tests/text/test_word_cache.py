"""The ids of remembered words are those of the whole text."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import AddedToken

from bert_jax.text.tokenizer import BERT_NAMES
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.word_cache import WordCache, cached
from bert_jax.text.wordpiece import WordPiece
from tests.support.vocabularies import (
    ADVERSARIAL,
    MULTILINGUAL_TEXTS,
    write_bytepair,
    write_mpnet,
    write_sentencepiece,
    write_wordpiece,
)

# Parts that stand next to each other in texts, with and without spaces: white space and control characters of all
# kinds, accents that combine, signs, characters that get spaces around them, and added tokens.
PARTS = [
    *("the", "The", "playing", "café", "cafe\u0301", "un", "x", "[MASK]", "[MASK]", "[SEP]", "<Odd>", "odd", "##s"),
    *" \t\n\r\x0b\x1c\x85\xa0\u2003\u3000\u2028\x00\x07\xad\u200b\ufeff\ufffd\u0301\u0345\u0327.,'-[]#$Σσς中か한İßﬁ👍",
    *[" "] * 30,
]  # fmt: skip


def random_texts(count: int, seed: int = 0) -> list[str]:
    choice = random.Random(seed)
    return ["".join(choice.choices(PARTS, k=choice.randrange(40))) for _ in range(count)]


@pytest.mark.parametrize("cased", (False, True))
@pytest.mark.parametrize("write", (write_wordpiece, write_mpnet))
@pytest.mark.parametrize("most", (1, 200, 1 << 20))
def test_the_same_ids(write, cased, most, tmp_path):
    tokenizer = open_tokenizer(write(tmp_path, cased))
    flags = ({"lstrip": True}, {"rstrip": True}, {"single_word": True})
    added = [AddedToken(f"odd{i}", normalized=bool(i % 2), **flag) for i, flag in enumerate(flags)]
    tokenizer.rust.add_tokens([*added, AddedToken("<Odd>", normalized=True)])
    cache = WordCache(tokenizer, most)
    assert isinstance(cached(tokenizer), WordCache)
    for texts in (ADVERSARIAL, MULTILINGUAL_TEXTS, random_texts(500), random_texts(500, 1), [], [""]):
        texts = [*texts, *(text.replace("odd", "odd1") for text in texts)]
        assert cache.ids(texts) == tokenizer.ids(texts)
        assert sum(map(len, cache._known)) == cache._size <= most


def test_threads_share_a_cache_that_forgets(tmp_path):
    tokenizer = open_tokenizer(write_wordpiece(tmp_path, False))
    cache, texts = WordCache(tokenizer, 200), [random_texts(20, seed) for seed in range(200)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(cache.ids, texts)) == list(map(tokenizer.ids, texts))


def test_tokenizers_of_other_kinds_are_not_cached(tmp_path):
    for directory in (write_bytepair(tmp_path / "bytes"), write_sentencepiece(tmp_path / "albert", "albert")):
        tokenizer = open_tokenizer(directory)
        assert cached(tokenizer) is tokenizer


@pytest.mark.parametrize("content", ("new york", "new\u3000york", "中"))
def test_a_tokenizer_whose_added_tokens_have_spaces_is_not_cached(content):
    tokenizer = WordPiece.from_vocabulary([*BERT_NAMES.values(), "new", "york"])
    assert isinstance(cached(tokenizer), WordCache)
    tokenizer.rust.add_tokens([AddedToken(content, normalized=True)])
    assert cached(tokenizer) is tokenizer
    if content == "new york":
        assert WordCache(tokenizer).ids([content]) != tokenizer.ids([content])
