"""Tokenizers against those of `transformers`: same ids and offsets, also from the files we save."""

import pytest
from sentencepiece import SentencePieceProcessor

from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer import sanitize_texts
from bert_jax.text.tokenizer_directory import open_tokenizer
from tests.bench.tokenizers import compare, google_albert, transformers_on
from tests.support.optional_modules import transformers
from tests.support.vocabularies import (
    ADVERSARIAL,
    MULTILINGUAL_TEXTS,
    SENTENCES,
    write_bytepair,
    write_json,
    write_modernbert,
    write_mpnet,
    write_sentencepiece,
    write_wordpiece,
)


def agree(ours, theirs, texts=MULTILINGUAL_TEXTS):
    counts = compare(ours, theirs, texts)
    assert (counts["ids"], counts["offsets"]) == (0, 0), counts["first"]


@pytest.fixture(scope="module", params=["uncased", "cased", "no accents stripped", "no spaces around CJK"])
def words(request, tmp_path_factory):
    directory = write_wordpiece(tmp_path_factory.mktemp("words"), cased=request.param == "cased")
    config = {
        "uncased": {"do_lower_case": True},
        "cased": {"do_lower_case": False},
        "no accents stripped": {"do_lower_case": True, "strip_accents": False},
        "no spaces around CJK": {"do_lower_case": True, "tokenize_chinese_chars": False},
    }[request.param]
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", **config})
    return directory


@pytest.mark.slow
def test_wordpiece(words, tmp_path):
    ours = open_tokenizer(words)
    agree(ours, transformers_on(words))
    ours.save(tmp_path)
    agree(ours, transformers_on(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    agree(ours, transformers_on(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("casing", [{}, {"do_lower_case": False}])
def test_mpnet_s_wordpiece(casing, tmp_path):
    directory = write_mpnet(tmp_path / "files", cased=bool(casing))
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "MPNetTokenizer", **casing})
    ours, theirs = open_tokenizer(directory), transformers.MPNetTokenizer.from_pretrained(directory)
    agree(ours, transformers_on(directory))
    pair = ours.encode([("the quick", "fox")])[0]
    assert pair.input_ids == theirs("the quick", "fox")["input_ids"] and set(pair.token_type_ids) == {0}
    ours.save(tmp_path / "ours")
    agree(ours, transformers_on(tmp_path / "ours"))
    theirs.save_pretrained(tmp_path / "theirs")
    again = open_tokenizer(tmp_path / "theirs")
    agree(again, transformers_on(tmp_path / "theirs"))
    assert again.special == ours.special and again.template == ours.template
    (tmp_path / "theirs" / "tokenizer_config.json").unlink()  # the file alone says which is the unknown token
    assert open_tokenizer(tmp_path / "theirs").special == ours.special


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "name"),
    [
        (write_bytepair, "RobertaTokenizer"),
        (lambda path: write_sentencepiece(path, "xlm-roberta"), "XLMRobertaTokenizer"),
    ],
    ids=["bytes", "xlm-roberta"],
)
def test_vocabularies_of_roberta(write, name, tmp_path):
    directory = write(tmp_path / "files")
    ours = open_tokenizer(directory)
    agree(ours, transformers_on(directory, name))
    ours.save(tmp_path / "saved")
    agree(ours, transformers_on(tmp_path / "saved"))


@pytest.mark.slow
def test_byte_level_bpe_with_names_of_bert(tmp_path):
    directory = write_modernbert(tmp_path / "files")
    ours, theirs = open_tokenizer(directory), transformers.AutoTokenizer.from_pretrained(directory)
    agree(ours, transformers_on(directory))
    pair = ours.encode([("the quick", "fox")])[0]
    assert pair.input_ids == theirs("the quick", "fox")["input_ids"]
    ours.save(tmp_path / "saved")
    agree(ours, transformers_on(tmp_path / "saved"))
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert dict(again("the quick", "fox")) == dict(theirs("the quick", "fox")), (
        "no segments, which no layer reads"
    )
    assert open_tokenizer(tmp_path / "saved").fingerprint == ours.fingerprint


@pytest.mark.slow
def test_albert_model(tmp_path):
    directory = write_sentencepiece(tmp_path / "files", "albert")
    ours = open_tokenizer(directory)
    # What Google's ALBERT, an English model, saw in training; in other scripts the Rust normalizer differs.
    latin = [*SENTENCES[:4], *(text for text in ADVERSARIAL if text.isascii() and len(text) < 10_000)]
    agree(ours, google_albert(directory / "spiece.model", ours), latin)
    ours.save(tmp_path / "ours")
    agree(ours, transformers_on(tmp_path / "ours"))
    transformers.AlbertTokenizer.from_pretrained(directory).save_pretrained(tmp_path / "theirs")
    agree(open_tokenizer(tmp_path / "theirs"), transformers_on(tmp_path / "theirs"))


@pytest.mark.slow
def test_the_first_deberta_s_byte_level_bpe(tmp_path):
    directory = write_bytepair(tmp_path / "files", ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"))
    write_json(directory / "tokenizer_config.json", {"do_lower_case": False, "vocab_type": "gpt2"})
    ours = open_tokenizer(directory)
    texts = [text for text in MULTILINGUAL_TEXTS if " [MASK]" not in text]
    agree(ours, transformers_on(directory, "DebertaTokenizer"), texts)
    (masked,) = ours.encode(["a [MASK]"])
    assert ours.tokens(masked.input_ids)[1:-1] == ["a", "[MASK]"], "the masked word has its space with it"
    (pair,) = ours.encode([("a", "b")])
    assert ours.tokens(pair.input_ids) == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    ours.save(tmp_path / "ours")
    agree(ours, transformers_on(tmp_path / "ours"))
    assert open_tokenizer(tmp_path / "ours").fingerprint == ours.fingerprint


@pytest.mark.slow
def test_deberta_model(tmp_path):
    """The file's own normalisation and bytes, which transformers leaves out: ids are those of `sentencepiece`."""
    directory = write_sentencepiece(tmp_path / "files", "deberta")
    ours = open_tokenizer(directory)
    library = SentencePieceProcessor(model_file=str(directory / "spm.model"))
    texts = [text for text in sanitize_texts(MULTILINGUAL_TEXTS) if "[" not in text]
    for encoding, text in zip(ours.encode(texts), texts, strict=True):
        assert encoding.input_ids == [ours.special.cls, *library.encode(text), ours.special.sep], text
    (encoding,) = ours.encode(["x𠀀 [MASK]y"])
    tokens = ours.tokens(encoding.input_ids)
    assert tokens[2:-1] == ["x", "<0xF0>", "<0xA0>", "<0x80>", "<0x80>", "[MASK]", "▁", "y"]
    assert encoding.offsets[2:-1] == [(0, 1), *[(1, 2)] * 4, (3, 9), (9, 10), (9, 10)]
    assert ours.decode(encoding.input_ids) == "x𠀀 y" and ours.special.mask == library.get_piece_size()
    assert ours.encode([("a", "b")])[0].token_type_ids[-2:] == [1, 1]
    ours.save(tmp_path / "ours")
    agree(ours, transformers_on(tmp_path / "ours"))
    assert open_tokenizer(tmp_path / "ours").fingerprint == ours.fingerprint
    transformers.DebertaV2Tokenizer.from_pretrained(directory).save_pretrained(tmp_path / "theirs")
    agree(open_tokenizer(tmp_path / "theirs"), transformers_on(tmp_path / "theirs"))


@pytest.mark.slow
def test_truncated_pairs(words):
    ours, theirs = open_tokenizer(words), transformers.BertTokenizer.from_pretrained(words)
    for first in range(1, 7):
        for second in range(1, 7):
            pair = " ".join("a" * first), " ".join("b" * second)
            for most in range(5, 14):
                expected = theirs(*pair, truncation="longest_first", max_length=most)
                encoding = ours.encode([pair], max_length=most)[0]
                assert encoding.input_ids == expected["input_ids"]
                assert encoding.token_type_ids == expected["token_type_ids"]
                assert encoding.dropped == max(0, first + second + 3 - most)
    with pytest.raises(BertJaxError, match="4 tokens have no room for a pair"):
        ours.encode([pair], max_length=4)


def test_tokenizer_json_of_a_pretrained_fast_tokenizer(tmp_path):
    """Padding and truncation baked into the file are no part of the tokenizer; its template is."""
    fast = transformers.BertTokenizer.from_pretrained(write_wordpiece(tmp_path / "files"))
    fast.backend_tokenizer.enable_padding(length=64)
    fast.backend_tokenizer.enable_truncation(8)
    fast.save_pretrained(tmp_path / "saved")
    agree(open_tokenizer(tmp_path / "saved"), transformers_on(tmp_path / "saved"))


@pytest.mark.slow
def test_added_tokens_survive_both_ways(tmp_path):
    fast = transformers.BertTokenizer.from_pretrained(write_wordpiece(tmp_path / "files"))
    fast.add_tokens(["[E1]", "newword"])
    fast.save_pretrained(tmp_path / "theirs")
    ours = open_tokenizer(tmp_path / "theirs")
    texts = ["the [E1] newword fox", *MULTILINGUAL_TEXTS]
    assert ours.size == len(fast) and len(fast) - 2 in ours.ids(texts[:1])[0]
    agree(ours, transformers_on(tmp_path / "theirs"), texts)
    ours.save(tmp_path / "ours")
    agree(ours, transformers_on(tmp_path / "ours"), texts)
