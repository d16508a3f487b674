"""`engine="onnxruntime"`: the answers of an exported model are those of the model, and JAX is not imported for them."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from packaging.requirements import Requirement

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.core.processor import processor_flags
from bert_jax.export import onnx_directory
from bert_jax.export.onnx_directory import export_onnx
from bert_jax.hub import model_directory as hub
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import CROSS_ENCODER, EmbedderSettings, Projection
from bert_jax.inference.engines.onnxruntime import pooled
from bert_jax.models.heads import HEADS
from bert_jax.models.pooling import pool
from bert_jax.models.pooling_weights import POOLINGS
from bert_jax.predictions.out_of_scope import OutOfScopeDetector, save_detector
from bert_jax.text.wordpiece import WordPiece
from tests.support.onnx_models import random_params
from tests.support.processes import process_environment
from tests.support.project import ROOT
from tests.support.requirements import modules_of_others
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, SMALL_VOCABULARY

pytestmark = pytest.mark.slow
TAGS = ("O", "B-X", "I-X")
EMBEDDER = EmbedderSettings(
    pooling="mean", normalize=True, projection=Projection(5, activation="tanh"), prompts={"query": "the "}
)
PAIRS = list(zip(SMALL_TEXTS, SMALL_TEXTS[::-1], strict=True))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Returns a model and the same model from its ONNX file."""
    directories = {}

    def open_both(head="", labels=(), embedder=None, **more):
        key = head, labels, bool(embedder)
        if key not in directories:
            folder = tmp_path_factory.mktemp("model")
            layout = Layout(
                SMALL_CONFIG, heads=(head,) if head else (), labels=labels, embedder=embedder,
                pooler=bool(head) and HEADS[head].pooler, hf_config=more,
            )  # fmt: skip
            model = folder / "model"
            hub.save_model(model, layout, random_params(layout), WordPiece.from_vocabulary(SMALL_VOCABULARY))
            if head.startswith(("classify", "compare")):
                vectors = np.random.RandomState(0).standard_normal((40, 8)).astype(np.float32)
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                save_detector(model, OutOfScopeDetector.from_vectors(vectors, vectors[:, 0]))
            export_onnx(model, folder / "onnx", "avx2" if embedder else None)
            directories[key] = model, folder / "onnx"
        model, onnx = directories[key]
        return bert_jax.load(model), bert_jax.load(onnx, engine="onnxruntime")

    return open_both


@pytest.mark.parametrize("how", POOLINGS)
def test_states_are_pooled_as_by_jax(how):
    states = np.random.RandomState(0).standard_normal((3, 7, 8)).astype(np.float32)
    mask = np.arange(7) < np.array([[7], [3], [1]])
    assert_close(pooled(states, mask, how), pool(states, mask, how, normalize=False))


def assert_close(ours, theirs) -> None:
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_an_embedder_gives_its_vectors(exported):
    ours, theirs = exported(embedder=EMBEDDER)
    assert_close(ours.encode(SMALL_TEXTS), theirs.encode(SMALL_TEXTS))
    assert_close(ours.encode_query("cat"), theirs.encode_query("cat"))
    assert_close(ours.encode(SMALL_TEXTS, pooling="last"), theirs.encode(SMALL_TEXTS, pooling="last"))
    long = "the cat sat on the mat . " * 4
    assert_close(ours.encode(long, long_texts="windows"), theirs.encode(long, long_texts="windows"))
    for states, same in zip(ours.hidden_states(SMALL_TEXTS), theirs.hidden_states(SMALL_TEXTS), strict=True):
        assert_close(states, same)


@pytest.mark.parametrize(
    "head", ["classify", pytest.param("classify_mean", marks=pytest.mark.long), "compare_cls"]
)
def test_a_classifier_gives_its_probabilities_and_p_values(head, exported):
    ours, theirs = exported(head, ("bad", "fair", "good"))
    texts = PAIRS if head.startswith("compare") else [*SMALL_TEXTS, *PAIRS]
    assert_close(ours.predict_proba(texts), theirs.predict_proba(texts))
    assert ours.predict(texts) == theirs.predict(texts)
    assert_close(ours.in_distribution_p_value(texts), theirs.in_distribution_p_value(texts))


def test_spans_answers_and_scores_are_the_same(exported):
    ours, theirs = exported("tag", TAGS)
    for spans, same in zip(ours.tag(SMALL_TEXTS), theirs.tag(SMALL_TEXTS), strict=True):
        places = ([(span.label, span.start, span.end) for span in found] for found in (spans, same))
        assert next(places) == next(places)
        assert_close([span.score for span in spans], [span.score for span in same])
    ours, theirs = exported("answer")
    answers, same = (model.answer("the cat", ["the cat sat on the mat . " * 3]) for model in (ours, theirs))
    assert (answers[0].text, answers[0].start) == (same[0].text, same[0].start)
    assert_close(answers[0].score, same[0].score)
    ours, theirs = exported("classify", ("relevant",), **CROSS_ENCODER)
    assert_close(ours.predict(PAIRS), theirs.predict(PAIRS))
    order, same = (model.rank("the cat", SMALL_TEXTS) for model in (ours, theirs))
    assert [ranked["corpus_id"] for ranked in order] == [ranked["corpus_id"] for ranked in same]


def test_a_masked_model_fills_and_scores(exported):
    ours, theirs = exported("mlm")
    text = "the [MASK] sat on [MASK] ."
    for fillings, same in zip(ours.fill_mask(text), theirs.fill_mask(text), strict=True):
        assert [filled.token for filled in fillings] == [filled.token for filled in same]
        assert_close([filled.score for filled in fillings], [filled.score for filled in same])
    assert ours.fill_mask(text, steps=2).text == theirs.fill_mask(text, steps=2).text
    assert_close(*(model.pseudo_log_likelihood("the cat sat").tokens for model in (ours, theirs)))


def test_int8_is_another_file_and_a_copy_computes_the_same(exported, tmp_path):
    ours, theirs = exported(embedder=EMBEDDER)
    rounded = bert_jax.load(theirs.directory, engine="onnxruntime", dtype="int8")
    assert "computed in int8" in repr(rounded)
    vectors = rounded.encode(SMALL_TEXTS)
    assert 1e-4 < np.abs(vectors - ours.encode(SMALL_TEXTS)).max() < 0.1
    copied = pickle.loads(pickle.dumps(rounded))
    np.testing.assert_array_equal(copied.encode(SMALL_TEXTS), vectors)
    rounded.save(tmp_path / "saved")
    saved = bert_jax.Embedder.load(tmp_path / "saved", engine="onnxruntime", dtype="int8")
    np.testing.assert_array_equal(saved.encode(SMALL_TEXTS), vectors)


@pytest.fixture(scope="module")
def external(tmp_path_factory):
    """An exported classifier whose weights, and those of its int8 file, are in files of their own."""
    folder = tmp_path_factory.mktemp("external")
    config = SMALL_CONFIG.replace(hidden_size=32, intermediate_size=64)
    layout = Layout(config, heads=("classify",), labels=("a", "b"), pooler=True)
    tokenizer = WordPiece.from_vocabulary(SMALL_VOCABULARY)
    hub.save_model(folder / "model", layout, random_params(layout), tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_directory, "MOST_BYTES", 1000)
        export_onnx(folder / "model", folder / "onnx", "avx2")
    return folder / "onnx"


@pytest.mark.parametrize("copied", ["model_quint8_avx2.onnx", "model.onnx", "model.onnx_data"])
def test_a_file_that_is_not_the_one_that_was_exported_is_refused(copied, external, tmp_path):
    """Whatever was copied over it: it would compute something else under the same name."""
    directory = shutil.copytree(external, tmp_path / "onnx")
    file = directory / "onnx" / ("model.onnx_data" if copied.endswith("data") else "model.onnx")
    content = bytearray((external / "onnx" / copied).read_bytes())
    content[-1] ^= copied == file.name  # or else one bit of it has changed
    file.write_bytes(content)
    with pytest.raises(
        BertJaxError, match=rf"onnx/{file.name} (is damaged|has .* bytes instead).*; export the"
    ):
        bert_jax.load(directory, engine="onnxruntime")
    assert bert_jax.load(directory, engine="onnxruntime", dtype="int8").labels == ("a", "b")


def test_weights_that_are_truncated_while_they_are_served_change_nothing(external, tmp_path):
    """ONNX Runtime would map a file beside the graph, and the process would end by a signal."""
    lines = """
import os, sys, bert_jax
from pathlib import Path
for dtype in ("float32", "int8"):
    model = bert_jax.load(sys.argv[1], engine="onnxruntime", dtype=dtype)
    answer = model.predict_proba(["the cat"])
    for path in Path(sys.argv[1], "onnx").iterdir():
        content = path.read_bytes()
        os.truncate(path, 0)
        assert (model.predict_proba(["the cat"]) == answer).all(), path
        path.write_bytes(content)
"""
    directory = shutil.copytree(external, tmp_path / "onnx")
    names = {path.name for path in (directory / "onnx").iterdir()}
    assert {"model.onnx_data", "model_quint8_avx2.onnx.data"} < names
    command = [sys.executable, "-c", lines, directory]
    done = subprocess.run(command, env=process_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done


def test_what_the_engine_cannot_do_is_said_in_a_line(exported, tmp_path, monkeypatch):
    ours, theirs = exported("classify", ("bad", "fair", "good"))
    tagger, directory = exported("tag", TAGS)[1], theirs.directory
    refused = {
        "load the directory that it was exported from": lambda: theirs.params,
        "the states of the last layer alone": lambda: theirs.hidden_states("cat", layers="all"),
        'pooling="pooler" is not computed': lambda: theirs.encode("cat", pooling="pooler"),
        "computes in float32, int8, not in": lambda: load(directory, dtype="bfloat16"),
        "attention='xla' is for the engine jax": lambda: load(directory, attention="xla"),
        "a new head is computed by the engine jax": lambda: load(directory, head="tag", labels=TAGS),
        "--format onnx --quantize auto --output OUT` writes it": lambda: load(directory, dtype="int8"),
        f"`bert-jax export {ours.directory} --format onnx": lambda: load(ours.directory),
        "or compute with the file: --engine onnxruntime": lambda: load_with("jax", directory),
        'did you mean "onnxruntime"?': lambda: bert_jax.load(directory, engine="onnxruntim"),
        "gives logits, but last_hidden_state is needed": lambda: tagger.encode("cat"),
    }
    broken = tmp_path / "broken"
    theirs.save(broken)
    (broken / "hashes.json").unlink()
    (broken / "onnx/model.onnx").write_bytes(b"no graph")
    refused["cannot be opened by ONNX Runtime"] = lambda: load(broken)
    for message, call in refused.items():
        with pytest.raises(BertJaxError) as error:
            call()
        assert message in str(error.value) and "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BertJaxError, match="the engine onnxruntime needs onnxruntime; install"):
        load(directory)


def load(directory, **settings):
    return bert_jax.load(directory, engine="onnxruntime", **settings)


def load_with(engine, directory, **settings):
    return bert_jax.load(directory, engine=engine, **settings)


def test_openvino_computes_the_same_file(exported, tmp_path, monkeypatch):
    ours, theirs = exported(embedder=EMBEDDER)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(SMALL_TEXTS))
    export_onnx(ours.directory, tmp_path / "onnx", "auto", str(texts))
    exact, directory = ours.encode(SMALL_TEXTS), tmp_path / "onnx"
    model = load_with("openvino", directory)
    assert "computed in float32 by openvino" in repr(model)
    assert_close(model.encode(SMALL_TEXTS), exact)
    for states, same in zip(model.hidden_states(SMALL_TEXTS), ours.hidden_states(SMALL_TEXTS), strict=True):
        assert_close(states, same)
    for dtype in ("bfloat16", "int8"):
        rounded = load_with("openvino", directory, dtype=dtype)
        difference = np.abs(rounded.encode(SMALL_TEXTS) - exact).max()
        assert f"computed in {dtype}" in repr(rounded) and difference < 0.1
        assert difference > 1e-4 or "avx512_bf16" not in processor_flags()
    copied = pickle.loads(pickle.dumps(rounded))
    np.testing.assert_array_equal(copied.encode(SMALL_TEXTS), rounded.encode(SMALL_TEXTS))
    with ThreadPoolExecutor(8) as threads:
        for vectors in threads.map(lambda _: model.encode(SMALL_TEXTS), range(200)):
            assert_close(vectors, exact)
    _, classifier = exported("classify", ("bad", "fair", "good"))
    same = load_with("openvino", classifier.directory)
    assert_close(same.predict_proba(PAIRS), classifier.predict_proba(PAIRS))
    with pytest.raises(
        BertJaxError, match="--quantize auto --calibration-data TEXTS --output OUT` writes it"
    ):
        load_with("openvino", theirs.directory, dtype="int8")
    broken = tmp_path / "broken"
    shutil.copytree(directory, broken)
    (broken / "hashes.json").unlink()
    (broken / "onnx/model.onnx").write_bytes(b"no graph")
    with pytest.raises(BertJaxError, match="cannot be opened by OpenVINO .*export the model again") as error:
        load_with("openvino", broken)
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(BertJaxError, match="the engine openvino needs openvino; install"):
        load_with("openvino", directory)


def test_an_exported_directory_is_computed_by_the_first_engine_that_can(exported, monkeypatch):
    ours, theirs = exported(embedder=EMBEDDER)
    opened = {
        dtype: bert_jax.load(theirs.directory, dtype=dtype) for dtype in ("float32", "bfloat16", "int8")
    }
    assert {dtype: model.engine.name for dtype, model in opened.items()} == {
        "float32": "onnxruntime",
        "bfloat16": "openvino",
        "int8": "onnxruntime",
    }
    assert bert_jax.load(ours.directory).engine.name == "jax"
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert bert_jax.load(theirs.directory).engine.name == "openvino"
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(BertJaxError, match="or compute with the file: --engine onnxruntime"):
        bert_jax.load(theirs.directory)


def test_openvino_reports_to_nobody(exported):
    """By itself, its import starts a process that sends a message."""
    _, theirs = exported(embedder=EMBEDDER)
    script = (
        "import multiprocessing, bert_jax\n"
        "def refuse(process): raise AssertionError(process)\n"
        "multiprocessing.Process.start = refuse\n"
        f"bert_jax.load({str(theirs.directory)!r}, engine='openvino').encode('cat')\n"
        "import sys; print(sys.modules['openvino_telemetry'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=process_environment(), check=True
    )
    assert done.stdout.strip() == "None" and not done.stderr


def packages_of_light_sh() -> list[Requirement]:
    listed = re.search(r"packages=\((.*?)\)", (ROOT / "launch/light.sh").read_text(), re.DOTALL)
    assert listed
    return [Requirement(name) for name in listed[1].split()]


def test_commands_need_what_light_sh_installs_and_no_jax(exported, tmp_path):
    ours, theirs = exported(embedder=EMBEDDER)
    _, classifier = exported("classify_mean", ("bad", "fair", "good"))
    _, reranker = exported("classify", ("relevant",), **CROSS_ENCODER)
    texts, candidates = tmp_path / "texts.txt", tmp_path / "candidates.jsonl"
    texts.write_text("\n".join(SMALL_TEXTS))
    candidates.write_text(json.dumps({"query": "the cat", "documents": SMALL_TEXTS}))
    index = bert_jax.Index.build(SMALL_TEXTS, tmp_path / "index", model=ours.directory)
    judge = reranker.directory.parent / "model"
    expected = [hit.id for hit in index.search("the cat", 3, reranker=judge)]

    with_onnx = ["--engine", "onnxruntime"]
    commands = [
        ["embed", "--model", theirs.directory, "--input", texts, "--output", tmp_path / "vectors.npy"],
        ["embed", "--model", theirs.directory, "--input", texts, "--output", tmp_path / "int8.npy", "--dtype", "int8"],
        ["predict", "--model", classifier.directory, "--input", texts, "--output", tmp_path / "labels.jsonl"],
        ["rerank", "--model", reranker.directory, "--input", candidates, "--output", tmp_path / "ranked.jsonl"],
        ["search", tmp_path / "index", "the cat", "--top-k", 3, "--json", "--model", theirs.directory,
         "--rerank", reranker.directory],
    ]  # fmt: skip
    missing = modules_of_others(packages_of_light_sh())
    assert {"jax", "flax", "optax", "orbax", "ml_collections", "pyarrow", "onnx"} <= {*missing}
    lines = [[*map(str, command), *with_onnx] for command in commands]
    done = subprocess.run(
        [sys.executable, ROOT / "tests/docs/light.py", json.dumps(missing), json.dumps(lines)],
        env=process_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(code == 0 for code, _ in ends), ends
    assert_close(np.load(tmp_path / "vectors.npy"), ours.encode(SMALL_TEXTS))
    assert not np.array_equal(np.load(tmp_path / "vectors.npy"), np.load(tmp_path / "int8.npy"))
    hits = json.loads(ends[-1][1])["hits"]
    assert [hit["id"] for hit in hits] == expected
    labels = [json.loads(line)["label"] for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert labels == bert_jax.load(classifier.directory.parent / "model").predict(SMALL_TEXTS)


@pytest.mark.long
def test_light_sh_installs_what_computes(exported, tmp_path):
    ours, theirs = exported(embedder=EMBEDDER)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"VENV": str(tmp_path / "venv"), "PYTHON": sys.executable}
    subprocess.run([ROOT / "launch/light.sh"], env=environment, check=True)
    (tmp_path / "texts.txt").write_text("\n".join(SMALL_TEXTS))
    command = ["embed", "--model", theirs.directory, "--engine", "onnxruntime", "--input", tmp_path / "texts.txt",
               "--output", tmp_path / "vectors.npy"]  # fmt: skip
    subprocess.run([tmp_path / "venv/bin/bert-jax", *command], env=environment, check=True, cwd=tmp_path)
    assert_close(np.load(tmp_path / "vectors.npy"), ours.encode(SMALL_TEXTS))
    command = [tmp_path / "venv/bin/bert-jax", "info", ours.directory]
    refused = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert refused.returncode == 1 and "jax is not installed here, so only embed, predict" in refused.stderr
