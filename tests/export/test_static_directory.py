"""`bert-jax export --format static`: static embeddings that are distilled from an encoder."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_json
from bert_jax.export.static_directory import export_static
from bert_jax.inference.computations import HiddenStates
from tests.support.small_models import SMALL_TEXTS, SMALL_VOCABULARY, write_model
from tests.support.static_models import model2vec_vectors

READ = range(5, len(SMALL_VOCABULARY))  # all but the special tokens
TEXTS = [*SMALL_TEXTS, "the dog sat on it", "dog", "", "the [MASK]"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """An embedder with another pooling than the usual one."""
    path = tmp_path_factory.mktemp("source")
    write_model(path / "plain", heads=())
    bert_jax.Embedder.load(path / "plain", pooling="cls").save(path / "embedder")
    return path / "embedder"


@pytest.mark.slow
def test_rows_are_weighted_components_of_the_vectors_of_tokens(source, tmp_path):
    assert export_static(source, tmp_path / "static", 3).startswith("7 tokens, 3 dimensions, which keep ")
    rows = np.array(bert_jax.load(tmp_path / "static").engine.rows)
    model = bert_jax.load(source)
    encodings = [model.tokenizer.template.fill(([i], [(0, 0)]), None) for i in READ]
    vectors = np.stack([states[0] for states in model.run(encodings, HiddenStates())])
    centred = vectors - vectors.mean(0)
    components = centred @ np.linalg.svd(centred)[2][:3].T
    components *= [1 if column.max() > -column.min() else -1 for column in components.T]
    shares = 1 / np.arange(2, 2 + len(READ))
    weights = 1e-4 / (1e-4 + shares / shares.sum())
    assert np.abs(rows[5:] - components * weights[:, None]).max() <= 1e-4 * np.abs(rows).max()
    assert rows.shape == (len(SMALL_VOCABULARY), 3) and not rows[:5].any()


def test_both_libraries_open_what_is_written(source, tmp_path, capsys):
    assert main(["export", str(source), "--format", "static", "--output", str(tmp_path / "static")]) == 0
    assert "static: 7 tokens, 8 dimensions, which keep 100% of the variance" in capsys.readouterr().out
    model = bert_jax.load(tmp_path / "static")
    vectors = model.encode(TEXTS)
    rust = Tokenizer.from_file(str(tmp_path / "static/tokenizer.json"))
    assert (rust.post_processor, rust.truncation, rust.padding) == (None, None, None)
    expected = model2vec_vectors(
        TEXTS, np.array(model.engine.rows), np.ones(len(SMALL_VOCABULARY)), max_length=None, tokenizer=rust
    )
    assert np.abs(vectors - expected).max() <= 1e-6 and model.max_seq_length == 10**6
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(tmp_path / "static"), device="cpu"
    )
    assert np.abs(theirs.encode(TEXTS) - vectors).max() <= 1e-6


def test_an_embedder_that_lower_cases_gives_a_tokenizer_that_does(source, tmp_path):
    write_model(tmp_path / "cased", heads=())
    model = bert_jax.Embedder.load(tmp_path / "cased", pooling="mean")
    model.save(tmp_path / "embedder")
    write_json(tmp_path / "embedder/tokenizer_config.json", {"do_lower_case": False})
    (tmp_path / "embedder/tokenizer.json").unlink()
    (tmp_path / "embedder/vocab.txt").write_text("\n".join(SMALL_VOCABULARY))
    write_json(tmp_path / "embedder/sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": True})
    export_static(tmp_path / "embedder", tmp_path / "static")
    static = bert_jax.load(tmp_path / "static")
    assert (static.encode("The CAT") == static.encode("the cat")).all() and static.encode("CAT").any()


def test_wrong_arguments_are_refused_in_a_line(source, tmp_path, capsys):
    for dimensions in (0, 9, 2.5, "8"):
        with pytest.raises(BertJaxError, match="dimensions"):
            export_static(source, tmp_path / "static", dimensions)
    for flags, message in [
        (["--format", "static", "--step", "3"], "then the model to --format static"),
        (["--dimensions", "4"], "--dimensions is for static embeddings; add --format static"),
        (["--format", "static", "--quantize", "auto"], "add --format onnx"),
    ]:
        assert main(["export", str(source), "--output", str(tmp_path / "static"), *flags]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "static").exists()


def test_what_was_distilled_is_exported_to_onnx(source, tmp_path):
    export_static(source, tmp_path / "static")
    assert (
        main(["export", str(tmp_path / "static"), "--format", "onnx", "--output", str(tmp_path / "onnx")])
        == 0
    )
    exported = bert_jax.load(tmp_path / "onnx", engine="onnxruntime")
    expected = bert_jax.load(tmp_path / "static").encode(TEXTS)
    assert np.abs(exported.encode(TEXTS) - expected).max() <= 1e-6
    assert json.loads((tmp_path / "onnx/config.json").read_text())["model_type"] == "model2vec"
