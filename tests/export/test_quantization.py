"""The static int8 file: what it rounds, and how near it stays to float32."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.export.graph import Graph, Output, Scope
from bert_jax.export.layers import dense
from bert_jax.export.model_graph import make_model
from bert_jax.export.onnx_directory import export_onnx, save_onnx
from bert_jax.export.quantization import (
    ActivationRange,
    dense_layers,
    measure_ranges,
    quantize_static,
    smoothing_factors,
)
from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.hub.onnx_files import HIDDEN_STATES, OnnxFile
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.engines.openvino import OpenVinoSession
from bert_jax.inference.onnx_session import OnnxSession
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.text.wordpiece import WordPiece
from tests.support.cases import long_except
from tests.support.onnx_models import BATCHES, CASES, SmallModel, graph_inputs, random_params, random_texts
from tests.support.small_models import SMALL_CONFIG, SMALL_VOCABULARY

WIDTHS = 6, 5
CONFIG = SMALL_CONFIG.replace(hidden_size=32, intermediate_size=64)
TEXTS = ["the cat sat on the mat .", "the mat", "cat cat sat", ". on the cat"]


@pytest.fixture
def two_layers(tmp_path):
    """A graph of two dense layers that read the same value, and their kernels; one of its numbers is large."""
    random = np.random.RandomState(0)
    kernels = {name: random.standard_normal(WIDTHS).astype(np.float32) for name in ("first", "second")}
    table = random.standard_normal((9, WIDTHS[0])).astype(np.float32) * [1, 1, 1, 50, 1, 0]
    scope = Scope(Graph(), EncoderConfig(vocab_size=9), {"encoder": {"words": table.astype(np.float32)}})
    states = (scope / "encoder").add("Gather", (scope / "encoder").weight("words"), "input_ids")
    outputs = {}
    for name, kernel in kernels.items():
        part = Scope(scope.graph, scope.config, {"kernel": kernel}, f"encoder/{name}", f"encoder/{name}")
        outputs[name] = Output(dense(part, states), ("batch_size", "sequence_length", WIDTHS[1]))
    path = tmp_path / "model.onnx"
    save_onnx(path, scope.graph.to_model(["input_ids"], outputs))
    return path, table.astype(np.float32), kernels


@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
def test_products_are_those_of_rounded_numbers(two_layers, weights, tmp_path):
    path, table, kernels = two_layers
    batch = {"input_ids": np.arange(8).reshape(2, 4)}
    read = table[:8]
    (value,) = ranges = measure_ranges(path, [{"input_ids": row[None]} for row in batch["input_ids"]])
    np.testing.assert_array_equal(ranges[value].low, read.min(0))
    np.testing.assert_array_equal(ranges[value].high, read.max(0))
    model = onnx.load_model(path)
    quantize_static(model, ranges, weights)
    save_onnx(tmp_path / "rounded.onnx", model)
    computed = OnnxSession(tmp_path / "rounded.onnx").run(batch)
    factors = smoothing_factors(ranges[value], list(kernels.values()))
    smooth = read / factors
    step = (smooth.max() - smooth.min()) / 255
    assert np.abs(smooth).max() < np.abs(read).max() / 3
    rounded = np.clip(np.round(smooth / step) * step, smooth.min() - step, smooth.max() + step)
    for name, kernel in kernels.items():
        columns = kernel * factors[:, None]
        scale = np.abs(columns).max(0) / 127
        expected = rounded @ (np.round(columns / scale) * scale)
        found = computed[name].reshape(8, -1)
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
        # Without factors, most numbers would be rounded by the range of the large one.
        plain = np.round(read / (np.ptp(read) / 255)) * (np.ptp(read) / 255) @ kernel
        exact = read @ kernel
        assert np.abs(found - exact).mean() < 0.7 * np.abs(plain - exact).mean()
    types = {tensor.name: numpy_helper.to_array(tensor).dtype for tensor in model.graph.initializer}
    assert not any(name.endswith("kernel") for name in types), "kernels of float32 are not kept beside them"


def test_ranges_of_several_batches_are_joined():
    joined = ActivationRange(np.array([-1, 2]), np.array([0, 3])).widen(
        ActivationRange(np.array([0, -2]), np.array([5, 1]))
    )
    np.testing.assert_array_equal([joined.low, joined.high], [[-1, -2], [5, 3]])


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    layout = Layout(CONFIG, embedder=EmbedderSettings(pooling="mean", normalize=True))
    tokenizer = WordPiece.from_vocabulary(SMALL_VOCABULARY)
    hub.save_model(folder / "model", layout, random_params(layout), tokenizer)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    return folder


@pytest.mark.slow
def test_a_text_does_not_depend_on_those_beside_it(embedder, tmp_path):
    """As it does where the scale of activations is that of a batch."""
    export_onnx(embedder / "model", tmp_path / "static", "auto", str(embedder / "texts.txt"))
    export_onnx(embedder / "model", tmp_path / "dynamic", "auto")
    exact = bert_jax.load(embedder / "model").encode(TEXTS)
    changes = {}
    for name in ("static", "dynamic"):
        model = bert_jax.load(tmp_path / name, dtype="int8")
        together, alone = model.encode(TEXTS), np.stack([model.encode(text) for text in TEXTS])
        changes[name] = np.abs(together - alone).max()
        assert 1e-4 < np.abs(together - exact).max() < 0.1
    assert changes["static"] < 1e-6 < 1e-4 < changes["dynamic"]


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classify", "tag", "answer", "mlm"])
def test_each_kind_of_model_reads_texts_as_it_predicts_them(head, tmp_path):
    labels = {"classify": ("a", "b"), "tag": ("O", "B-X")}.get(head, ())
    layout = Layout(CONFIG, heads=(head,), labels=labels, pooler=head == "classify")
    hub.save_model(
        tmp_path / "model", layout, random_params(layout), WordPiece.from_vocabulary(SMALL_VOCABULARY)
    )
    rows = {
        "answer": ["question,context", *(f"{text},the cat sat on the mat" for text in TEXTS)],
        "tag": [word.replace(" ", "\n") + "\n" for word in TEXTS],
    }
    texts = tmp_path / ("texts.conll" if head == "tag" else "texts.csv")
    texts.write_text("\n".join(rows.get(head, ["text", *TEXTS])))
    _, rounded = export_onnx(tmp_path / "model", tmp_path / "onnx", "auto", str(texts))
    assert "static" in rounded.path.name and 0 < rounded.difference.share < 0.2
    layers = dense_layers(onnx.load_model(tmp_path / "onnx/onnx/model.onnx"))
    assert sum(map(len, layers.values())) == 6 * CONFIG.num_hidden_layers


def test_a_file_without_texts_is_refused(embedder, tmp_path):
    (tmp_path / "empty.csv").write_text("text\n")
    with pytest.raises(BertJaxError, match="empty.csv has no text"):
        export_onnx(embedder / "model", tmp_path / "onnx", "auto", str(tmp_path / "empty.csv"))
    assert not (tmp_path / "onnx").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", long_except([case for case in CASES if case != "static"], ["albert", "modernbert", "deberta-v2"])
)
def test_layers_of_every_family_are_rounded(case, tmp_path):
    """Those that share their weights, gated ones, and those that read a table of relative positions, too. Static
    embeddings have no layers."""
    model = SmallModel.of_case(case)
    layout, texts = model.with_head(None), random_texts(model.layout)
    path, rounded = tmp_path / "model.onnx", tmp_path / "rounded.onnx"
    save_onnx(path, make_model(layout, model.params))
    batches = [graph_inputs(layout, [texts[number] for number in numbers]) for numbers in BATCHES]
    ranges, graph = measure_ranges(path, batches), onnx.load_model(path)
    count = sum(map(len, dense_layers(graph).values()))
    assert count >= 4 * layout.config.num_hidden_layers
    quantize_static(graph, ranges, "QInt8")
    assert not dense_layers(graph), "all of them read rounded numbers"
    save_onnx(rounded, graph)
    exact, session = OnnxSession(path), OnnxSession(rounded)
    other = OpenVinoSession(OnnxFile(rounded, "int8", is_static=True))
    for batch in batches:
        real = batch["attention_mask"] > 0
        (states,), (found,), (same,) = (
            some.run(batch, [HIDDEN_STATES]).values() for some in (exact, session, other)
        )
        share = np.sqrt(np.square(found - states)[real].mean() / np.square(states[real]).mean())
        assert 0 < share < 0.15
        assert np.abs(same - found)[real].mean() < 0.05 * np.abs(states[real]).mean()
