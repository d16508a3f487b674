"""Tokenizers of encoders that have a decoder's vocabulary, beside those of `transformers`."""

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.tokenizer_settings import TokenizerSettings
from tests.bench.tokenizers import compare, transformers_on
from tests.support.decoder_vocabularies import write_eurobert, write_mmbert
from tests.support.vocabularies import MULTILINGUAL_TEXTS, SENTENCES, write_json

pytest.importorskip("transformers")

ROLES = {
    write_eurobert: {
        "cls": "<|begin_of_text|>",
        "sep": "<|end_of_text|>",
        "pad": "<|end_of_text|>",
        "unk": "<|end_of_text|>",  # a stand-in, for no text has it
        "mask": "<|mask|>",
    },
    write_mmbert: {"cls": "<bos>", "sep": "<eos>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"},
}


@pytest.mark.slow
@pytest.mark.parametrize("write", ROLES)
def test_ids_and_offsets_are_those_of_transformers(write, tmp_path):
    directory = write(tmp_path / "files")
    ours = open_tokenizer(directory)
    assert {role: ours.tokens([getattr(ours.special, role)])[0] for role in ROLES[write]} == ROLES[write]
    ours.save(tmp_path / "saved")
    for path in (directory, tmp_path / "saved"):
        counts = compare(ours, transformers_on(path), MULTILINGUAL_TEXTS)
        assert (counts["ids"], counts["offsets"]) == (0, 0), counts["first"]
    again = open_tokenizer(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint and again.special == ours.special
    (pair,) = ours.encode([("the quick", "fox")])
    assert pair.input_ids.count(ours.special.sep) == 2 and pair.input_ids[0] == ours.special.cls
    assert ours.decode(ours.encode([SENTENCES[4]])[0].input_ids).strip() == SENTENCES[4]


def test_a_token_of_its_own_role_comes_before_that_of_a_decoder(tmp_path):
    names = {"bos_token": "<s>", "cls_token": "[CLS]", "eos_token": "</s>"}
    write_json(tmp_path / "tokenizer_config.json", names)
    assert TokenizerSettings.from_directory(tmp_path).names == {"cls": "[CLS]", "sep": "</s>"}


def test_a_vocabulary_without_bytes_needs_an_entry_for_unknown_characters(tmp_path):
    from tokenizers import Tokenizer, models

    names = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    rust = Tokenizer(models.BPE({name: i for i, name in enumerate([*names.values(), "a"])}, []))
    rust.add_special_tokens(list(names.values()))
    rust.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {f"{role}_token": name for role, name in names.items()})
    with pytest.raises(BertJaxError, match=r"lacks the special token \[UNK\]"):
        open_tokenizer(tmp_path)
