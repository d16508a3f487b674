"""Small vocabularies of the kinds that decoders have, as encoders with them are published: EuroBERT's and mmBERT's."""

import json
from pathlib import Path

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

from tests.support.vocabularies import SENTENCES, write_json


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
    return save(rust, directory, {"bos": begin, "eos": end, "pad": end, "mask": mask})


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
    return save(rust, directory, roles)


def surround(rust: Tokenizer, begin: str, end: str) -> None:
    ids = [(name, rust.token_to_id(name)) for name in (begin, end)]
    rust.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B {end}", special_tokens=ids
    )


def save(rust: Tokenizer, directory: Path, roles: dict[str, str]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    rust.save(str(directory / "tokenizer.json"))
    settings = {f"{role}_token": name for role, name in roles.items()}
    inputs = ["input_ids", "attention_mask"]
    write_json(
        directory / "tokenizer_config.json",
        settings | {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs},
    )
    return directory
