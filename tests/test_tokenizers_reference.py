"""Tokenizers against those of `transformers`: same ids and offsets, also from the files we save."""

import pytest

from bert_jax.bench.tokenizers import compare, google_albert, transformers_on
from bert_jax.text.directory import open_tokenizer
from vocabularies import ADVERSARIAL, SENTENCES, TEXTS, bytepair, sentencepiece, wordpiece, write_json

transformers = pytest.importorskip("transformers")


def agree(ours, theirs, texts=TEXTS):
    counts = compare(ours, theirs, texts)
    assert (counts["ids"], counts["offsets"]) == (0, 0), counts["first"]


@pytest.fixture(scope="module", params=["uncased", "cased", "no accents stripped", "no spaces around CJK"])
def words(request, tmp_path_factory):
    directory = wordpiece(tmp_path_factory.mktemp("words"), cased=request.param == "cased")
    config = {
        "uncased": {"do_lower_case": True},
        "cased": {"do_lower_case": False},
        "no accents stripped": {"do_lower_case": True, "strip_accents": False},
        "no spaces around CJK": {"do_lower_case": True, "tokenize_chinese_chars": False},
    }[request.param]
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **config})
    return directory


def test_wordpiece(words, tmp_path):
    ours = open_tokenizer(words)
    agree(ours, transformers_on(words))
    ours.save(tmp_path)
    agree(ours, transformers_on(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    agree(ours, transformers_on(tmp_path))


def test_byte_level_bpe(tmp_path):
    directory = bytepair(tmp_path / "files")
    ours = open_tokenizer(directory)
    agree(ours, transformers_on(directory, "RobertaTokenizer"))
    ours.save(tmp_path / "saved")
    agree(ours, transformers_on(tmp_path / "saved"))


def test_xlm_roberta_model(tmp_path):
    directory = sentencepiece(tmp_path / "files", "xlm-roberta")
    ours = open_tokenizer(directory)
    agree(ours, transformers_on(directory, "XLMRobertaTokenizer"))
    ours.save(tmp_path / "saved")
    agree(ours, transformers_on(tmp_path / "saved"))


def test_albert_model(tmp_path):
    directory = sentencepiece(tmp_path / "files", "albert")
    ours = open_tokenizer(directory)
    # What Google's ALBERT, an English model, saw in training; in other scripts the Rust normalizer differs.
    latin = [*SENTENCES[:4], *(text for text in ADVERSARIAL if text.isascii() and len(text) < 10_000)]
    agree(ours, google_albert(directory / "spiece.model", ours), latin)
    ours.save(tmp_path / "ours")
    agree(ours, transformers_on(tmp_path / "ours"))
    transformers.AlbertTokenizer.from_pretrained(directory).save_pretrained(tmp_path / "theirs")
    agree(open_tokenizer(tmp_path / "theirs"), transformers_on(tmp_path / "theirs"))


def test_truncated_pairs(words):
    ours, theirs = open_tokenizer(words), transformers.BertTokenizer.from_pretrained(words)
    for first in range(1, 9):
        for second in range(1, 9):
            pair = " ".join("a" * first), " ".join("b" * second)
            for most in range(3, 14):
                expected = theirs(*pair, truncation="longest_first", max_length=most)
                encoding = ours.encode([pair], max_length=most)[0]
                assert (
                    encoding.ids == expected["input_ids"] and encoding.segments == expected["token_type_ids"]
                )
                assert encoding.dropped == max(0, first + second + 3 - most)


def test_tokenizer_json_of_a_pretrained_fast_tokenizer(tmp_path):
    """Padding and truncation baked into the file are no part of the tokenizer; its template is."""
    fast = transformers.BertTokenizer.from_pretrained(wordpiece(tmp_path / "files"))
    fast.backend_tokenizer.enable_padding(length=64)
    fast.backend_tokenizer.enable_truncation(8)
    fast.save_pretrained(tmp_path / "saved")
    agree(open_tokenizer(tmp_path / "saved"), transformers_on(tmp_path / "saved"))


def test_added_tokens_survive_both_ways(tmp_path):
    fast = transformers.BertTokenizer.from_pretrained(wordpiece(tmp_path / "files"))
    fast.add_tokens(["[E1]", "newword"])
    fast.save_pretrained(tmp_path / "theirs")
    ours = open_tokenizer(tmp_path / "theirs")
    texts = ["the [E1] newword fox", *TEXTS]
    assert ours.size == len(fast) and len(fast) - 2 in ours.ids(texts[:1])[0]
    agree(ours, transformers_on(tmp_path / "theirs"), texts)
    ours.save(tmp_path / "ours")
    agree(ours, transformers_on(tmp_path / "ours"), texts)
