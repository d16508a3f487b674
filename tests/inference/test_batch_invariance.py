"""With batch_invariant, the result for a text has the same bits whatever else is computed with it."""

import pickle
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax.export.model_graph import make_model
from bert_jax.export.onnx_directory import export_onnx, save_onnx
from bert_jax.hub.onnx_files import ONNX_FILE
from bert_jax.inference.batching import BatchShapes
from bert_jax.models.encoder_config import EncoderConfig
from tests.support.adapters import write_adapter
from tests.support.cases import long_except
from tests.support.served_models import MODELS
from tests.support.small_models import SMALL_VOCABULARY, write_model

pytestmark = pytest.mark.optimized
CONFIG = EncoderConfig(
    vocab_size=len(SMALL_VOCABULARY), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=96, max_position_embeddings=64, tie_word_embeddings=True,
)  # fmt: skip
WORDS = np.array(["the", "cat", "sat", "on", "mat", "."])
DRAWN = np.random.default_rng(0)
TEXTS = [" ".join(DRAWN.choice(WORDS, count)) for count in (2, 4, 5, 18, 40) for _ in range(5)]
CALLS = {
    "embedder": lambda model, texts: model.encode(texts),
    "sparse": lambda model, texts: model.encode(texts).toarray(),
    "multi-vector": lambda model, texts: [
        np.concatenate(vectors)
        for vectors in zip(model.encode_query(texts), model.encode_document(texts), strict=True)
    ],
    "reranker": lambda model, texts: model.predict([("the cat", text) for text in texts]),
    "classifier": lambda model, texts: model.predict_proba(texts),
    "tagger": lambda model, texts: model.tag(texts),
    "answerer": lambda model, texts: model.answer("the cat", texts),
    "masked": lambda model, texts: model.fill_mask([f"[MASK] {text}" for text in texts]),
}

COMPUTED: dict[str, dict] = {
    "jax": {},
    "bfloat16": {"dtype": "bfloat16"},
    "onnxruntime": {"engine": "onnxruntime"},
    "openvino": {"engine": "openvino"},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, facts in MODELS.items():
        layout, params = write_model(folder / name, CONFIG, **facts)
        (folder / name / ONNX_FILE).parent.mkdir()
        save_onnx(folder / name / ONNX_FILE, make_model(layout, params))
    return folder


def count_different(call, model, texts: list[str]) -> int:
    """Count the results that differ from those of each text alone, among texts of any number and order."""
    alone = {text: repr_of(call(model, [text])[0]) for text in texts}
    random, different = np.random.default_rng(1), 0
    for _ in range(6):
        some = random.permutation(texts)[: random.integers(2, len(texts) + 1)].tolist()
        for text, result in zip(some, call(model, some), strict=True):
            different += repr_of(result) != alone[text]
    return different


def repr_of(result) -> str | bytes:
    return result.tobytes() if isinstance(result, np.ndarray) else repr(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "computed"),
    long_except(
        [(name, computed) for name in CALLS for computed in COMPUTED],
        [
            ("reranker", "jax"),
            ("tagger", "jax"),
            ("multi-vector", "onnxruntime"),
            ("embedder", "bfloat16"),
            ("classifier", "onnxruntime"),
            ("classifier", "openvino"),
        ],
    ),
)
def test_a_result_depends_on_its_text_alone(models, name, computed):
    model = bert_jax.load(models / name, batch_invariant=True, **COMPUTED[computed])
    assert count_different(CALLS[name], model, TEXTS) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranges", "computed"),
    [
        ("of texts", {"engine": "onnxruntime"}),
        ("of texts", {"engine": "openvino"}),
        pytest.param("of texts", {"engine": "openvino", "dtype": "bfloat16"}, marks=pytest.mark.long),
        pytest.param("of a batch", {"engine": "onnxruntime"}, marks=pytest.mark.long),
    ],
)
def test_int8_does_so_too(ranges, computed, models, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    source = tmp_path / "source"
    shutil.copytree(models / "embedder", source, ignore=shutil.ignore_patterns("onnx"))
    export_onnx(source, tmp_path / "onnx", "auto", str(texts) if ranges == "of texts" else "")
    model = bert_jax.load(tmp_path / "onnx", batch_invariant=True, **{"dtype": "int8"} | computed)
    assert count_different(CALLS["embedder"], model, TEXTS) == 0


@pytest.mark.slow
def test_copies_and_models_with_other_parameters_do_so_too(models):
    model = bert_jax.load(models / "embedder", batch_invariant=True)
    for other in (pickle.loads(pickle.dumps(model)), model.with_params(model.params)):
        assert other.computed["batch_invariant"]
        assert other.encode(TEXTS).tobytes() == model.encode(TEXTS).tobytes()


@pytest.mark.slow
def test_adapters_and_new_heads_do_so_too(models, tmp_path):
    write_adapter(tmp_path / "adapter", models / "classifier", "classify", ("bad", "good"), rank=2)
    opened = bert_jax.load(
        models / "classifier", adapters={"mine": tmp_path / "adapter"}, batch_invariant=True
    )
    for model in opened.values():
        assert count_different(CALLS["classifier"], model, TEXTS) == 0
    model = bert_jax.load(models / "masked", head="classify", labels=["a", "b"], batch_invariant=True)
    assert count_different(CALLS["classifier"], model, TEXTS) == 0


def test_a_length_has_one_row_count_which_no_program_lacks():
    shapes = BatchShapes(1024, (8, 64, 512), shared=128).batch_invariant()
    assert [shapes.row_counts(length) for length in (8, 64, 512)] == [[16], [2], [1]] and shapes.row_counts(
        40
    ) == [2]
    assert BatchShapes(1024, (8,), devices=4).batch_invariant().row_counts(8) == [16]
    assert BatchShapes(1024).batch_invariant(one_row=True).row_counts(8) == [1]
