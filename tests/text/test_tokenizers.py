"""Tokenizers by themselves: what they promise, and what they refuse."""

import json

import pytest
import tokenizers
from tokenizers import models

from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer import BERT_NAMES
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.wordpiece import WordPiece
from tests.support.vocabularies import (
    ADVERSARIAL,
    SENTENCES,
    write_bytepair,
    write_json,
    write_sentencepiece,
    write_wordpiece,
)

KINDS = {
    "uncased": write_wordpiece,
    "cased": lambda directory: write_wordpiece(directory, cased=True),
    "bytes": write_bytepair,
    "albert": lambda directory: write_sentencepiece(directory, "albert"),
    "xlm-roberta": lambda directory: write_sentencepiece(directory, "xlm-roberta"),
}


@pytest.fixture(scope="module", params=KINDS)
def directory(request, tmp_path_factory):
    return KINDS[request.param](tmp_path_factory.mktemp("vocab") / request.param)


@pytest.fixture(scope="module")
def tokenizer(directory):
    return open_tokenizer(directory)


@pytest.fixture(scope="module")
def uncased(tmp_path_factory):
    return open_tokenizer(write_wordpiece(tmp_path_factory.mktemp("vocab")))


def test_encode_and_ids_agree(tokenizer):
    texts = [*SENTENCES, *ADVERSARIAL]
    for encoding, plain in zip(tokenizer.encode(texts), tokenizer.ids(texts), strict=True):
        (span,) = encoding.spans
        assert [encoding.input_ids[i] for i in span] == plain
        assert encoding.input_ids[0] == tokenizer.special.cls
        assert encoding.input_ids[-1] == tokenizer.special.sep
        assert len(encoding.input_ids) == len(encoding.offsets) == len(encoding.token_type_ids)
        assert encoding.dropped == 0
        assert max(encoding.input_ids) < tokenizer.size


def test_offsets_are_of_the_original_text(tokenizer):
    text = "The \ud800  quick, brown fox"
    encoding = tokenizer.encode([text])[0]
    covered = {c for start, end in encoding.offsets for c in range(start, end)}
    assert {text.index(word) for word in ("The", "quick", "brown", "fox")} <= covered
    assert max(end for _, end in encoding.offsets) == len(text)


def test_decode_gives_the_text_back(tokenizer):
    text = "the quick brown fox"
    assert tokenizer.decode(tokenizer.encode([text])[0].input_ids).strip() == text


def test_pairs_are_cut_longest_first_and_counted(tokenizer):
    long, short = "the quick " * 20, "the fox"
    whole = tokenizer.encode([(long, short)])[0]
    cut = tokenizer.encode([(long, short)], max_length=20)[0]
    assert len(cut.input_ids) == 20 and cut.dropped == len(whole.input_ids) - 20
    assert len(cut.spans[1]) == len(whole.spans[1])  # the short side is untouched
    assert [cut.input_ids[i] for i in cut.spans[1]] == tokenizer.ids([short])[0]
    first, all_of_it = ([one.offsets[i] for i in one.spans[0]] for one in (cut, whole))
    assert first == all_of_it[: len(first)]


def test_windows_cover_the_text(tokenizer):
    text, question = "the quick brown fox jumps over " * 30, "the fox?"
    ids = tokenizer.ids([text])[0]
    for given in (text, (question, text)):
        (windows,) = tokenizer.windows([given], max_length=40, overlap=8)
        together = []
        for place, window in enumerate(windows):
            assert len(window.input_ids) <= 40
            part = [window.input_ids[i] for i in window.spans[-1]]
            if place:
                assert together[-8:] == part[:8]
            together += part[8 if place else 0 :]
        assert together == ids
    (only,) = tokenizer.windows(["the fox"], max_length=40, overlap=8)
    assert only == tokenizer.encode(["the fox"])
    with pytest.raises(BertJaxError, match="neighbouring windows must share 8; shorten the first text$"):
        tokenizer.windows([(text, "the fox")], max_length=40, overlap=8)


@pytest.mark.slow
def test_save_and_open_again(tokenizer, directory, tmp_path):
    tokenizer.save(tmp_path)
    again = open_tokenizer(tmp_path)
    texts = [*SENTENCES, *ADVERSARIAL]
    assert again.encode(texts) == tokenizer.encode(texts)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.special == tokenizer.special and again.size == tokenizer.size


def test_tokens_outside_the_vocabulary(tokenizer):
    with pytest.raises(BertJaxError, match=f"id {tokenizer.size} is outside"):
        tokenizer.tokens([0, tokenizer.size])


def test_a_vocabulary_with_capitals_keeps_them(tmp_path):
    assert not open_tokenizer(write_wordpiece(tmp_path / "cased", cased=True)).lower_case
    lower = write_wordpiece(tmp_path / "lower")
    assert open_tokenizer(lower).lower_case
    write_json(lower / "tokenizer_config.json", {"do_lower_case": False})
    assert not open_tokenizer(lower).lower_case


def test_casing_in_the_config_goes_before_tokenizer_json(uncased, tmp_path):
    uncased.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    write_json(tmp_path / "tokenizer_config.json", config | {"do_lower_case": False})
    changed = open_tokenizer(tmp_path)
    assert not changed.lower_case
    assert changed.fingerprint != uncased.fingerprint


def test_lines_of_a_vocabulary_keep_their_numbers(tmp_path):
    head = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
    (tmp_path / "vocab.txt").write_bytes((head + "a\n\nb\r\nc\n").encode())
    tokenizer = open_tokenizer(tmp_path)
    assert tokenizer.ids(["a b c"]) == [[5, 7, 8]]
    tokenizer.save(tmp_path / "saved")
    (tmp_path / "saved" / "tokenizer.json").unlink()
    assert open_tokenizer(tmp_path / "saved").ids(["a b c"]) == [[5, 7, 8]]


def test_added_tokens(tmp_path):
    directory = write_wordpiece(tmp_path)
    size = open_tokenizer(directory).size
    write_json(directory / "added_tokens.json", {"[E1]": size, "[E2]": size + 1})
    tokenizer = open_tokenizer(directory)
    assert tokenizer.size == size + 2
    assert size in tokenizer.ids(["the [E1] fox"])[0]
    write_json(directory / "added_tokens.json", {"[E1]": size + 7})
    with pytest.raises(BertJaxError, match=r"\[E1\] should have id .*; use the added_tokens.json that"):
        open_tokenizer(directory)


BROKEN = {
    "no tokenizer and no config.json; it needs": lambda d: None,
    "is not valid JSON": lambda d: (d / "tokenizer_config.json").write_text("{"),
    "is a list, not an object": lambda d: (d / "special_tokens_map.json").write_text("[]"),
    "not a tokenizer.json": lambda d: (d / "tokenizer.json").write_text('{"model": 3}'),
    r"lacks the special tokens \[CLS\], \[SEP\]": lambda d: (d / "vocab.txt").write_text(
        "[PAD]\n[UNK]\n[MASK]\na\n"
    ),
    "not in UTF-8": lambda d: (d / "vocab.txt").write_bytes(b"\xff\xfe[PAD]\n"),
    "without merges.txt": lambda d: (d / "vocab.json").write_text("{}"),
    "not a SentencePiece model": lambda d: (d / "spiece.model").write_bytes(b"\x00garbage"),
    "no pieces": lambda d: (d / "spiece.model").write_bytes(b""),
    "no entry for unknown characters .WordPiece error": lambda d: save_with_special_tokens(
        d, models.WordPiece({"a": 0}, unk_token="[UNK]")
    ),
    "no entry for unknown characters .Encountered": lambda d: save_with_special_tokens(
        d, models.Unigram([("a", -1.0)], unk_id=None)
    ),
}


def save_with_special_tokens(directory, model) -> None:
    """Write a tokenizer whose special tokens stand beside the vocabulary of the model."""
    rust = tokenizers.Tokenizer(model)
    rust.add_special_tokens([*BERT_NAMES.values()])
    rust.save(str(directory / "tokenizer.json"))


@pytest.mark.parametrize("message", BROKEN)
def test_broken_directories(message, tmp_path):
    BROKEN[message](tmp_path)
    with pytest.raises(BertJaxError, match=message) as caught:
        open_tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_names_from_the_special_tokens_map(tmp_path):
    (tmp_path / "vocab.txt").write_text("<p>\n<u>\n<c>\n<e>\n<m>\nthe\n")
    names = zip(("pad", "unk", "cls", "sep", "mask"), "puce" + "m", strict=True)
    write_json(tmp_path / "special_tokens_map.json", {f"{role}_token": f"<{name}>" for role, name in names})
    encoding = open_tokenizer(tmp_path).encode(["the <m>"])[0]
    assert encoding.input_ids == [2, 5, 4, 3]


def test_a_call_gives_the_arrays_of_a_batch():
    words = WordPiece.from_vocabulary([*BERT_NAMES.values(), "a", "b"])
    shown = ["a b a", ("a", "b"), "b"]
    batch = words(shown)
    for row, encoding in enumerate(words.encode(shown)):
        length = len(encoding.input_ids)
        assert batch["input_ids"][row].tolist() == encoding.input_ids + [0] * (5 - length)
        assert batch["token_type_ids"][row, :length].tolist() == encoding.token_type_ids
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (5 - length)
    of_one = words(("a", "b"))
    assert all((of_one[name] == batch[name][1]).all() for name in batch)
    assert words(shown, length=8)["input_ids"].shape == (3, 8)
    with pytest.warns(
        UserWarning, match=r"1 of 3 texts \(number 1\) is longer than 4 tokens and was truncated"
    ):
        assert words([shown[0], "a", "b"], max_length=4)["input_ids"].shape == (3, 4)
    with pytest.raises(BertJaxError, match="length is 4, but a text has 5 tokens; set max_length=4"):
        words(shown, length=4)
    lazily = words.batches(iter(shown), 2)
    assert [len(part["input_ids"]) for part in lazily] == [2, 1]
    with pytest.raises(
        BertJaxError, match='batches reads a list of texts, but "a b" is a single text; give a list'
    ):
        next(words.batches("a b", 2))
    assert repr(words) == "<WordPiece: 7 entries, pairs as [CLS] a [SEP] b [SEP]>"
