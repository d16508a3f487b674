import random

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.word_windows import encode_words
from tests.support.vocabularies import (
    SENTENCES,
    write_bytepair,
    write_json,
    write_sentencepiece,
    write_wordpiece,
)

ODD = [
    "a", "\x00", "\u0301", "x y", "👩‍👩‍👧", "東京は", "don", "'t", "[MASK]x", "…", "[CLS]", "\u200b", "Ā", "ﷺ",
]  # fmt: skip
LISTS = [*(sentence.split() for sentence in SENTENCES), ODD, ["\x00"], []]


def untrimmed(path):
    """Byte-level BPE whose offsets have the space before a word in it."""
    write_bytepair(path)
    write_json(path / "tokenizer_config.json", {"trim_offsets": False})
    return path


KINDS = {
    "untrimmed": untrimmed,
    "wordpiece": write_wordpiece,
    "bytepair": write_bytepair,
    "albert": lambda path: write_sentencepiece(path, "albert"),
    "xlm-roberta": lambda path: write_sentencepiece(path, "xlm-roberta"),
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request, tmp_path_factory):
    return open_tokenizer(KINDS[request.param](tmp_path_factory.mktemp("vocabulary")))


def test_ids_and_first_tokens_are_those_of_transformers(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    bytepair = (tmp_path / "merges.txt").exists()
    kind = transformers.RobertaTokenizerFast if bytepair else transformers.PreTrainedTokenizerFast
    theirs = kind.from_pretrained(tmp_path, **{"add_prefix_space": True} if bytepair else {})
    found = encode_words(tokenizer, LISTS, max_length=1000, overlap=0)
    for words, (window,) in zip(LISTS, found, strict=True):
        expected = theirs(words, is_split_into_words=True)
        assert window.encoding.input_ids == expected["input_ids"]
        first: dict[int, int] = {}
        for position, word in enumerate(expected.word_ids()):
            if word is not None:
                first.setdefault(word, position)
        assert window.words == [(position, word) for word, position in first.items()]


def test_each_word_is_decided_once_where_it_sees_enough_on_both_sides(tokenizer):
    drawn = random.Random(0)
    lists = [drawn.choices([word for words in LISTS for word in words], k=k) for k in (0, 1, 9, 40, 300)]
    whole = encode_words(tokenizer, lists, max_length=10**6, overlap=0)
    for overlap, max_length in ((6, 16), (7, 20), (1, 9)):
        found = encode_words(tokenizer, lists, max_length=max_length, overlap=overlap)
        for (all_of_it,), windows in zip(whole, found, strict=True):
            assert all(len(window.encoding.input_ids) <= max_length for window in windows)
            decided = {word: (w.encoding, place) for w in windows for place, word in w.words}
            assert len(decided) == sum(len(window.words) for window in windows)
            assert sorted(decided) == [word for _, word in all_of_it.words]
            ids, sees = all_of_it.encoding.input_ids, (overlap - 1) // 2
            for place, word in all_of_it.words:
                window, at = decided[word]
                near = slice(max(0, place - sees), place + sees + 1)
                assert window.input_ids[at - (place - near.start) : at + sees + 1] == ids[near]


def test_lists_of_words_only():
    for wrong in (["a text"], [["a", 3]], [("a", None)]):
        with pytest.raises(BertJaxError, match="sequence 0 is .*, not a list of words"):
            encode_words(None, wrong, max_length=16, overlap=4)
