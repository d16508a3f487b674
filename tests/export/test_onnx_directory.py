"""`bert-jax export --format onnx`: what it writes, what it says, and what it refuses."""

import json
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.export import encoder, layers, model_graph, onnx_directory
from bert_jax.hub import model_directory as hub
from bert_jax.hub import onnx_files
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import EmbedderSettings, Projection
from bert_jax.inference.batching import pad_batch
from bert_jax.inference.onnx_session import OnnxSession
from bert_jax.models import blocks
from bert_jax.models.heads import HEADS
from bert_jax.models.pooling import pool
from bert_jax.models.pooling_weights import POOLINGS
from bert_jax.predictions.calibration import Calibration, save_calibration
from bert_jax.text.wordpiece import WordPiece
from tests.support.onnx_models import (
    BERT,
    SmallModel,
    compute_with_jax,
    open_session,
    random_params,
    random_texts,
    run_graph,
)
from tests.support.project import ROOT
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, SMALL_VOCABULARY

CONFIG = SMALL_CONFIG.replace(max_position_embeddings=40)
LABELS = ("bad", "good")
# Tests share programs that JAX has compiled: those of this embedder, and those of a classifier.
EMBEDDER = EmbedderSettings(
    pooling="mean", projection=Projection(5, activation="tanh"), prompts={"query": "the "}
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Return a function that writes a model directory, with a head or as an embedder."""

    def write(heads=(), labels=(), embedder=None):
        path = tmp_path_factory.mktemp("model")
        pooler = any(HEADS[head].pooler for head in heads)
        layout = Layout(CONFIG, heads=heads, labels=labels, pooler=pooler, embedder=embedder)
        hub.save_model(path, layout, random_params(layout), WordPiece.from_vocabulary(SMALL_VOCABULARY))
        return path

    return write


def export(path, output, *more: str) -> int:
    return main(["export", str(path), "--format", "onnx", "--output", str(output), *more])


def encoded(model, texts) -> dict[str, np.ndarray]:
    return pad_batch(model.tokenizer.encode(texts), model.tokenizer.special.pad)


@pytest.mark.slow
def test_an_embedder_gives_its_vectors(directory, tmp_path, capsys):
    path = directory(embedder=EMBEDDER)
    assert export(path, tmp_path / "onnx") == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        f"{tmp_path}/onnx/onnx/model.onnx: last_hidden_state, sentence_embedding; the largest"
    )
    assert float(printed.split()[-1]) < 1e-5
    model, session = bert_jax.load(path), OnnxSession(tmp_path / "onnx/onnx/model.onnx")
    assert session.inputs == ["input_ids", "attention_mask", "token_type_ids"]
    outputs = session.run(encoded(model, SMALL_TEXTS))
    np.testing.assert_allclose(outputs["sentence_embedding"], model.encode(SMALL_TEXTS), atol=1e-6)
    files = {
        str(file.relative_to(tmp_path / "onnx")) for file in (tmp_path / "onnx").rglob("*") if file.is_file()
    }
    beside = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert files == beside - {"model.safetensors"} | {"onnx/model.onnx", "onnx/source.json", "hashes.json"}
    assert "2_Dense/model.safetensors" in files
    assert main(["check", str(tmp_path / "onnx")]) == 0
    assert f"{len(files) - 1} files of a model; their hashes match" in capsys.readouterr().out
    assert export(path, tmp_path / "onnx") == 1 and "onnx is not empty" in refusal(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_is_ours(pooling):
    layout = Layout(CONFIG, embedder=EmbedderSettings(pooling=pooling, normalize=False), pooler=False)
    model = SmallModel(layout, random_params(layout))
    session = open_session(model_graph.make_model(layout, model.params).SerializeToString())
    texts = random_texts(layout)
    outputs = run_graph(session, layout, texts)
    lengths = np.array([len(text["input_ids"]) for text in texts])
    mask = np.arange(max(lengths)) < lengths[:, None]
    expected = pool(outputs["last_hidden_state"], mask, pooling, normalize=False)
    np.testing.assert_allclose(outputs["sentence_embedding"], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["answer", "compare_mean", "mlm"])
def test_the_command_checks_every_kind_of_output(head, directory, tmp_path, capsys):
    labels = LABELS if head == "compare_mean" else ()
    assert export(directory((head,), labels), tmp_path / "onnx") == 0
    printed = capsys.readouterr().out
    assert ("start_logits, end_logits;" if head == "answer" else " logits;") in printed
    assert 0 < float(printed.split()[-1]) < 1e-5
    if labels:
        config = json.loads((tmp_path / "onnx/config.json").read_text())
        assert config["id2label"] == {"0": "bad", "1": "good"}


@pytest.mark.slow
@pytest.mark.parametrize(("head", "broken"), [("mlm", "gelu"), ("classify", "tanh")])
def test_a_file_with_other_outputs_is_refused(head, broken, directory, tmp_path, capsys, monkeypatch):
    labels = LABELS if head == "classify" else ()
    monkeypatch.setitem(layers.ACTIVATIONS, broken, layers.ACTIVATIONS["relu"])
    assert export(directory((head,), labels), tmp_path / "onnx") == 1
    printed = capsys.readouterr().err
    assert (
        "onnx is not written: outputs of ONNX Runtime differ by up to" in printed and printed.count("\n") == 1
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_weights_that_are_too_large_for_a_file_stand_beside_it(directory, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(onnx_directory, "MOST_BYTES", 0)
    monkeypatch.setattr(onnx_directory, "LEAST_EXTERNAL", 100)
    assert export(directory(("classify",), LABELS), tmp_path / "onnx") == 0
    assert float(capsys.readouterr().out.split()[-1]) < 1e-5
    files = {file.name: file.stat().st_size for file in (tmp_path / "onnx/onnx").iterdir()}
    assert files.keys() == {"model.onnx", "model.onnx_data", "source.json"}
    assert files["model.onnx_data"] > 4000
    assert main(["check", str(tmp_path / "onnx")]) == 0


def refusal(capsys) -> str:
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


@pytest.mark.slow
def test_what_has_no_onnx_form_is_refused_by_name(directory, tmp_path, capsys, monkeypatch):
    path = directory(("tag",), LABELS)
    monkeypatch.setattr(encoder.BLOCK_BUILDERS, "names", lambda: ["albert"])
    assert export(path, tmp_path / "onnx") == 1
    assert "the block post_norm has no ONNX form; add bert_jax/export/blocks/post_norm.py" in refusal(capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_block_of_the_tests_is_exported_with_one_more_file(monkeypatch):
    for package, folder in ((blocks, "blocks"), (sys.modules["bert_jax.export.blocks"], "onnx_blocks")):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(ROOT / "tests/examples" / folder)])
    family = replace(FAMILIES["bert"], model_type="windows", constants={"block": "alternating_windows"})
    config = family.read_config(BERT, "config.json")
    layout = Layout(config, family, pooler=False)
    model = SmallModel(layout, random_params(layout))
    texts = random_texts(layout)
    expected = compute_with_jax(model, texts)["hidden"]
    numbers = [2, 3, 6, 7]
    (states,) = run_graph(model.session(), layout, [texts[number] for number in numbers]).values()
    for number, row in zip(numbers, states, strict=True):
        np.testing.assert_allclose(row[: len(expected[number])], expected[number], atol=1e-5)


@pytest.mark.slow
def test_names_of_a_graph_are_those_of_the_modules():
    layout = Layout(CONFIG, heads=("classify",), labels=LABELS)
    model = model_graph.make_model(layout, random_params(layout))
    graph = model.graph
    names = {node.name for node in graph.node}
    assert {
        "encoder/embeddings/norm/LayerNormalization", "encoder/layers.1/attention/query/MatMul",
        "encoder/layers.0/feed_forward/in/Add", "pooler/dense/MatMul", "classify/dense/MatMul", "logits",
    } <= names  # fmt: skip
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    assert weights["encoder/layers.1/attention/out/kernel"] == [8, 8]
    assert weights["encoder/layers.0/feed_forward/in/kernel"] == [8, 12]  # as MatMul reads it
    assert {opset.version for opset in model.opset_import} == {17}


@pytest.mark.slow
def test_the_command_measures_what_int8_changes(directory, tmp_path, capsys):
    path, data, output = directory(("classify",), LABELS), str(tmp_path / "data.csv"), tmp_path / "onnx"
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(f"{text},good\n" for text in SMALL_TEXTS))
    save_calibration(path, Calibration("classes", LABELS, temperatures=(2.0,)))
    assert export(path, output, "--quantize", "avx2", "--data", data) == 0
    *_, note, measured = capsys.readouterr().out.splitlines()
    assert (
        note == "calibration.json is that of float32; probabilities of the int8 file are not calibrated again"
    )
    rounded = bert_jax.load(output, engine="onnxruntime", dtype="int8")
    scores = [bert_jax.evaluate(model, data)["metrics"]["accuracy"] for model in (path, rounded)]
    assert measured.startswith(
        f"accuracy on {data}: {scores[0]:.4f}, int8 {scores[1]:.4f} (95% interval of the change"
    )
    for words in (["--format", "onnx"], []):
        assert main(["export", str(path), *words, "--output", str(tmp_path / "new"), "--data", data]) == 1
        assert "--data measures what --quantize changes" in refusal(capsys)


@pytest.mark.slow
def test_an_int8_file_is_close_and_for_this_processor(directory, tmp_path, capsys, monkeypatch):
    path = directory(embedder=EMBEDDER)
    for flags, file in (
        ({"avx2", "avx512_vnni"}, "model_qint8_avx512_vnni"),
        ({"avx2"}, "model_quint8_avx2"),
    ):
        monkeypatch.setattr(onnx_files, "processor_flags", lambda flags=flags: flags)
        assert export(path, tmp_path / file, "--quantize", "auto") == 0
        assert (
            capsys.readouterr()
            .out.splitlines()[1]
            .startswith(f"{tmp_path}/{file}/onnx/{file}.onnx: int8; it changes")
        )
        names = {entry.name for entry in (tmp_path / file / "onnx").iterdir()}
        assert names == {"model.onnx", f"{file}.onnx", "source.json"}
        model = onnx.load(tmp_path / file / f"onnx/{file}.onnx")
        kinds = Counter(node.op_type for node in model.graph.node)
        # Four products of attention and two of the feed-forward in each layer, and the projection of vectors;
        # scores and mixtures stay float32.
        assert kinds["MatMulInteger"] == 6 * CONFIG.num_hidden_layers + 1
        weight = next(
            value for value in model.graph.initializer if value.name.endswith("in/kernel_quantized")
        )
        expected = onnx.TensorProto.INT8 if "_qint8" in file else onnx.TensorProto.UINT8
        assert weight.data_type == expected and list(weight.dims) == [8, 12]
        scale = next(value for value in model.graph.initializer if value.name.endswith("in/kernel_scale"))
        assert list(scale.dims) == [12]  # one for each column
    assert export(path, tmp_path / "other", "--quantize", "avx512_vnni") == 1
    assert "--quantize avx512_vnni needs a processor with avx512_vnni or avx_vnni" in refusal(capsys)
    assert main(["export", str(path), "--quantize", "avx2", "--output", str(tmp_path / "other")]) == 1
    assert "add --format onnx" in refusal(capsys)
    monkeypatch.setattr(onnx_directory, "MOST_ROUNDED", 0)
    assert export(path, tmp_path / "other", "--quantize", "avx2") == 1
    assert "int8 changes the outputs by" in refusal(capsys)
    assert not (tmp_path / "other").exists()
