"""Tokenizers of encoders that have a decoder's vocabulary, as EuroBERT and mmBERT, beside those of `transformers`."""

import json
from pathlib import Path

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bert_jax.core.errors import BertJaxError
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.text.tokenizer_settings import TokenizerSettings
from tests.bench.tokenizers import compare, transformers_on
from tests.support.vocabularies import MULTILINGUAL_TEXTS, SENTENCES, save_tokenizer_json, write_json

pytest.importorskip("transformers")


def write_eurobert(directory: Path) -> Path:
    """Byte-level BPE with Llama's special tokens: none for unknown characters, and one for padding and the end."""
    rust = Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    rust.train_from_iterator(SENTENCES * 3, trainer)
    begin, end, mask = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
    rust.add_special_tokens([begin, end, AddedToken(mask, lstrip=True, special=True, normalized=False)])
    surround(rust, begin, end)
    return save_tokenizer_json(rust, directory, {"bos": begin, "eos": end, "pad": end, "mask": mask})


def write_mmbert(directory: Path) -> Path:
    """BPE with Gemma's special tokens: spaces are a letter of their own, and rare characters become bytes."""
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=400, limit_alphabet=100, show_progress=False)
    trained.train_from_iterator([sentence.replace(" ", "▁") for sentence in SENTENCES * 3], trainer)
    parts = json.loads(trained.to_str())["model"]
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    entries = {name: i for i, name in enumerate([*names, *octets, *parts["vocab"]])}
    merges = [tuple(pair) for pair in parts["merges"]]
    rust = Tokenizer(models.BPE(entries, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    rust.add_special_tokens(names)
    rust.normalizer = normalizers.Replace(" ", "▁")
    rust.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    rust.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    surround(rust, "<bos>", "<eos>")
    roles = dict(zip(("pad", "eos", "bos", "unk", "mask"), names, strict=True))
    return save_tokenizer_json(rust, directory, roles)


def surround(rust: Tokenizer, begin: str, end: str) -> None:
    ids = [(name, rust.token_to_id(name)) for name in (begin, end)]
    rust.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B {end}", special_tokens=ids
    )


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
    names = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    rust = Tokenizer(models.BPE({name: i for i, name in enumerate([*names.values(), "a"])}, []))
    rust.add_special_tokens(list(names.values()))
    rust.save(str(tmp_path / "tokenizer.json"))
    write_json(tmp_path / "tokenizer_config.json", {f"{role}_token": name for role, name in names.items()})
    with pytest.raises(BertJaxError, match=r"lacks the special token \[UNK\]"):
        open_tokenizer(tmp_path)
