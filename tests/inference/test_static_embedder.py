"""Static embeddings: the vectors of model2vec and of sentence-transformers, computed with and without JAX."""

import json
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.text.truncation import TruncationCounter
from tests.support.processes import run_process
from tests.support.static_models import (
    STATIC_TEXTS,
    WORDS,
    model2vec_vectors,
    small_rows,
    small_tokenizer,
    write_model2vec,
)

ROWS, ONES = small_rows(), np.ones(len(WORDS), np.float32)
NUMBERS = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
FACTORS = np.linspace(0.1, 1, len(WORDS))
INT8 = (ROWS[:3] * 40).astype(np.int8)
# Tensors of a file, and the row and weight of each token that they stand for.
FILES = {
    "float32": ({"embeddings": ROWS}, ROWS, ONES),
    "float16": ({"embeddings": ROWS.astype(np.float16)}, ROWS.astype(np.float16), ONES),
    "weights": ({"embeddings": ROWS, "weights": FACTORS}, ROWS, FACTORS),
    "mapping": ({"embeddings": ROWS[:3], "mapping": NUMBERS}, ROWS[NUMBERS], ONES),
    "int8": ({"embeddings": INT8, "mapping": NUMBERS, "weights": FACTORS}, INT8[NUMBERS], FACTORS),
}
CONFIGS = {
    "usual": {},
    "not normalized": {"normalize": False},
    "short": {"max_length": 3},
    "unlimited": {"max_length": None},
    "without a type": {"model_type": None, "embedding_dtype": "int8"},
}
pytestmark = pytest.mark.filterwarnings("ignore:.*truncated")


@pytest.mark.parametrize("engine", ["numpy", "jax"])
@pytest.mark.parametrize(
    ("file", "config"), [*((name, "usual") for name in FILES), *(("int8", name) for name in CONFIGS)]
)
def test_vectors_are_those_of_model2vec(file, config, engine, tmp_path):
    (tensors, rows, weights), keys = FILES[file], CONFIGS[config]
    write_model2vec(tmp_path / "model", tensors, **keys)
    model = bert_jax.load(tmp_path / "model", engine=engine)
    assert type(model) is bert_jax.StaticEmbedder
    settings = {name: value for name, value in keys.items() if name in ("normalize", "max_length")}
    expected = model2vec_vectors(STATIC_TEXTS, rows, weights, **settings)
    vectors = model.encode(STATIC_TEXTS)
    assert np.abs(vectors - expected).max() <= 1e-6 * max(1, np.abs(expected).max())
    assert not vectors[2:4].any()  # no text, and no known word


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Directories that sentence-transformers saved, with its vectors."""
    pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding

    torch.manual_seed(0)
    kinds = {"plain": [], "normalized": [Normalize()], "dense": [Dense(4, 3), Normalize()], "short": []}
    root, saved = tmp_path_factory.mktemp("theirs"), {}
    for name, others in kinds.items():
        rust = small_tokenizer(max_length=3 if name == "short" else None)
        model = SentenceTransformer(modules=[StaticEmbedding(rust, ROWS), *others], device="cpu")
        model.save(str(root / name))
        saved[name] = root / name, model.encode(STATIC_TEXTS)
    old = shutil.copytree(saved["normalized"][0], root / "old")
    folder = old / "0_StaticEmbedding"
    folder.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (old / name).rename(folder / name)
    modules = json.loads((old / "modules.json").read_text())
    modules[0] |= {"path": folder.name, "type": "sentence_transformers.models.StaticEmbedding"}
    (old / "modules.json").write_text(json.dumps(modules))
    return saved | {"old": (old, saved["normalized"][1])}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["numpy", "jax"])
@pytest.mark.parametrize("name", ["plain", "normalized", "dense", "short", "old"])
def test_vectors_are_those_of_sentence_transformers_which_opens_what_is_saved(name, engine, theirs, tmp_path):
    from sentence_transformers import SentenceTransformer

    directory, expected = theirs[name]
    model = bert_jax.load(directory, engine=engine)
    assert np.abs(model.encode(STATIC_TEXTS) - expected).max() <= 1e-6
    model.save(tmp_path / "saved")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(STATIC_TEXTS)
    assert np.abs(again - expected).max() <= 1e-6
    reopened = bert_jax.load(tmp_path / "saved", engine=engine)
    assert (reopened.encode(STATIC_TEXTS) == model.encode(STATIC_TEXTS)).all()


def test_what_model2vec_wrote_keeps_its_vectors_when_it_is_saved(tmp_path):
    write_model2vec(tmp_path / "model", FILES["int8"][0], max_length=3)
    model = bert_jax.load(tmp_path / "model")
    model.save(tmp_path / "saved")
    (name, saved), *others = load_file(tmp_path / "saved/model.safetensors").items()
    assert (name, saved.dtype, others) == ("embeddings", np.float32, [])
    config = json.loads((tmp_path / "saved/config.json").read_text())
    assert config["max_length"] == 3 and config["normalize"] is True
    assert (bert_jax.load(tmp_path / "saved").encode(STATIC_TEXTS) == model.encode(STATIC_TEXTS)).all()


def test_jax_is_not_imported_and_rows_are_mapped_into_memory(tmp_path):
    write_model2vec(tmp_path / "model")
    code = f"""
import sys, bert_jax, numpy as np
model = bert_jax.load({str(tmp_path / "model")!r})
model.encode(["the cat", "the mat"]), model.zero_shot("the cat", ["the mat", "cats"])
assert isinstance(model.engine.rows, np.memmap)
assert not {{"jax", "flax", "torch"}} & set(sys.modules)
"""
    run_process([sys.executable, "-c", code])


def test_many_texts_are_embedded_in_order_and_truncated_ones_are_counted(tmp_path):
    model = bert_jax.load(write_model2vec(tmp_path / "model", max_length=3))
    texts = [" ".join(np.random.default_rng(n).choice(WORDS[5:], 1 + n % 5)) for n in range(3000)]
    together, one_by_one = (EmbeddingPipeline(model, truncated=TruncationCounter(3)) for _ in range(2))
    assert (together(texts) == np.concatenate([one_by_one([text]) for text in texts])).all()
    assert vars(together.truncated) == vars(one_by_one.truncated)
    assert 1000 < together.truncated.truncated < together.truncated.texts == 3000


def test_windows_average_to_the_whole_text(tmp_path):
    model = bert_jax.load(write_model2vec(tmp_path / "model", normalize=False, max_length=6))
    text = "the cat sat on the mat . " * 9
    expected = model2vec_vectors([text], ROWS, ONES, normalize=False, max_length=None)
    whole = bert_jax.load(write_model2vec(tmp_path / "long", normalize=False, max_length=None)).encode([text])
    assert np.abs(whole - expected).max() <= 1e-6
    assert np.abs(model.encode([text], long_texts="windows") - expected).max() <= 0.05


def test_the_unknown_token_of_sentencepiece_is_left_out(tmp_path):
    from tokenizers import Tokenizer, models

    pieces = [("<pad>", 0.0), ("a", -1.0), ("b", -2.0), ("<unk>", 0.0)]
    rust = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    model = bert_jax.load(
        write_model2vec(tmp_path / "model", {"embeddings": ROWS[:4]}, rust, normalize=False)
    )
    assert np.abs(model.encode("abz") - ROWS[1:3].mean(0)).max() <= 1e-6


WRONG = {
    "mapping": ({"embeddings": ROWS, "mapping": NUMBERS + 20}, "do not fit their 12 rows"),
    "weights": ({"embeddings": ROWS, "weights": np.ones(20)}, "do not fit their 12 rows"),
    "rows": ({"vectors": ROWS}, "no table of rows"),
    "size": ({"embeddings": ROWS[:7]}, "the tokenizer has ids up to 11, the embedding only 7 rows"),
    "infinite": ({"embeddings": ROWS * np.inf}, "not finite"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_do_not_fit_are_refused_in_a_line(name, tmp_path):
    tensors, reason = WRONG[name]
    with pytest.raises(BertJaxError, match=reason) as refused, np.errstate(invalid="ignore"):
        bert_jax.load(write_model2vec(tmp_path / "model", tensors)).encode(["the cat"])
    assert "\n" not in str(refused.value)


def test_the_engine_numpy_is_for_static_embeddings(tmp_path):
    from tests.support.small_models import write_model

    write_model(tmp_path / "bert")
    with pytest.raises(BertJaxError, match="computes static embeddings, and .* has none; use jax"):
        bert_jax.load(tmp_path / "bert", engine="numpy")
    static = write_model2vec(tmp_path / "static")
    for given in ({"dtype": "bfloat16"}, {"remat": "full"}):
        with pytest.raises(BertJaxError, match="numpy computes in float32|is for the engine jax"):
            bert_jax.load(static, **given)
    with pytest.raises(BertJaxError, match="takes the mean, not pooling=max"):
        bert_jax.Embedder.load(static, pooling="max").save(tmp_path / "saved")
