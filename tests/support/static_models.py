"""Directories of static embeddings over twelve words, in the layouts of model2vec and of sentence-transformers."""

import json

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "on", "mat", "."]
UNKNOWN = WORDS.index("[UNK]")
STATIC_TEXTS = [
    "the cat sat",
    "the dog sat on the cats .",
    "",
    "dog",
    "the cat sat on the mat . " * 20,
    "s" * 100_000,
    "the" + " " * 40 + "cat",  # of which model2vec reads the characters of few tokens
]


def small_tokenizer(words=WORDS, max_length=None) -> Tokenizer:
    ids = {word: i for i, word in enumerate(words)}
    rust = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    rust.normalizer, rust.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    if max_length:
        rust.enable_truncation(max_length)
    return rust


def small_rows(count=12, width=4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)


def write_model2vec(directory, tensors=None, tokenizer=None, **config):
    """Write a directory as model2vec does, by default with float32 rows."""
    directory.mkdir(parents=True)
    save_file({"embeddings": small_rows()} if tensors is None else tensors, directory / "model.safetensors")
    (tokenizer or small_tokenizer()).save(str(directory / "tokenizer.json"))
    config = {"model_type": "model2vec", "normalize": True} | config
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def model2vec_vectors(texts, rows, weights, normalize=True, max_length=512, tokenizer=None) -> np.ndarray:
    """What model2vec computes, from a row and a weight for each token."""
    rust = tokenizer or small_tokenizer()
    most = max_length and max_length * int(np.median([len(word) for word in rust.get_vocab()]))
    vectors = np.zeros((len(texts), rows.shape[1]), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        ids = rust.encode(text[:most], add_special_tokens=False).ids[:max_length]
        ids = [i for i in ids if i != UNKNOWN]
        if ids:
            vector[:] = (rows[ids].astype(np.float64) * weights[ids][:, None]).mean(0)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / (norms + 1e-32) if normalize else vectors
