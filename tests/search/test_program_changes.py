"""An index that a program builds and changes, against the one that the command makes."""

import copy
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.runner import Runner
from bert_jax.search.index_manifest import DENSE_ROWS
from tests.support.indexes import file_contents
from tests.support.small_models import write_model

TEXTS = ["the cat sat", "on the mat .", "cats sat on the mat"]
ROWS = [{"id": name, "text": text, "title": f"the {name}"} for name, text in zip("abc", TEXTS, strict=True)]


def ids(index: bert_jax.Index) -> list[str]:
    return sorted(segment.ids[n] for segment in index.segments for n in segment.live_documents())


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, "model"])
def test_an_index_of_rows_is_that_of_a_table_with_them(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    flags = ["--passage-tokens", "10", "--overlap", "2", *(["--model", model] if model else [])]
    assert main(["index", "rows.jsonl", "--output", "command", *flags]) == 0
    how = {"passage_tokens": 10, "overlap": 2, "model": model}
    from_file = bert_jax.Index.build("rows.jsonl", "file", **how)
    how["model"] = model and bert_jax.load(model)
    from_memory = bert_jax.Index.build(iter(ROWS), tmp_path / "memory", **how)
    assert from_memory.manifest.model == from_file.manifest.model
    written = [file_contents(tmp_path / name) for name in ("command", "file", "memory")]
    assert written[0] == written[1]
    for contents in written:
        del contents["index.json"]
    assert written[0] == written[2]
    assert from_file.search("the cat sat") == from_memory.search("the cat sat") != []


def outputs_by_tokens(model: Runner, encodings, *_) -> list[np.ndarray]:
    """Stands in for what a model computes: random vectors, or logits, of the tokens."""
    width = len(model.labels) or model.config.hidden_size
    return [
        np.random.default_rng(encoding.input_ids).normal(size=width).astype(np.float32)
        for encoding in encodings
    ]


@pytest.mark.slow
def test_loaded_models_serve_an_index_that_can_be_opened_without_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model")
    write_model(tmp_path / "judge", heads=("classify",), labels=("LABEL_0",))
    embedder, judge = bert_jax.Embedder.load("model", pooling="mean"), bert_jax.Reranker.load("judge")
    monkeypatch.setattr(Runner, "run", outputs_by_tokens)
    monkeypatch.chdir("/")  # its directory is known by its whole path
    index = bert_jax.Index.build(TEXTS, tmp_path / "index", model=copy.deepcopy(embedder))
    assert index.add(["a cat"]).encoded == 1 and index.encoder_of(DENSE_ROWS).model is index.model
    again = bert_jax.Index.open(tmp_path / "index", embedder)
    hits = bert_jax.Index.open(tmp_path / "index").search("a cat", reranker=tmp_path / "judge")
    assert hits == again.search("a cat", reranker=judge.with_params(judge.params))
    changed = embedder.with_params(embedder.params)
    with pytest.raises(BertJaxError, match="model is not in a directory .* save it"):
        bert_jax.Index.build(TEXTS, tmp_path / "new", model=changed)
    with pytest.raises(BertJaxError, match="model is not in a directory .* save it"):
        bert_jax.Index.open(tmp_path / "index", changed)
    with pytest.raises(BertJaxError, match="judge is not the model that"):
        bert_jax.Index.open(tmp_path / "index", judge).search("a cat")
    with pytest.raises(BertJaxError, match="reranker is not a cross-encoder"):
        index.search("a cat", reranker=embedder)


def test_what_forms_documents_may_have(tmp_path):
    built = {
        "texts": bert_jax.Index.build(TEXTS, tmp_path / "texts"),
        "pairs": bert_jax.Index.build([(n, text) for n, text in enumerate(TEXTS)], tmp_path / "pairs"),
        "column": bert_jax.Index.build(pd.Series(TEXTS), tmp_path / "column"),
    }
    for index in built.values():
        assert ids(index) == ["0", "1", "2"] and index.search("cats on mats")[0].text == TEXTS[2]
    (tmp_path / "a.txt").write_text("A cat.")
    (tmp_path / "b.md").write_text("# B\n\nA dog.")
    files = bert_jax.Index.build([tmp_path / "a.txt", tmp_path / "b.md"], tmp_path / "files")
    assert ids(files) == ["a.txt", "b.md"]
    with pytest.raises(BertJaxError, match=r"is a file or a folder; give Path\("):
        bert_jax.Index.build([str(tmp_path / "a.txt")], tmp_path / "other")


def test_changes_are_counted_and_seen_at_once_and_by_others(tmp_path):
    index = bert_jax.Index.build(TEXTS, tmp_path / "index")
    other = bert_jax.Index.open(tmp_path / "index")
    counts = index.add(["a dog", "a fish"])
    assert (counts.new, counts.changed) == (2, 0) and ids(index) == ["0", "1", "2", "3", "4"]
    counts = index.add([("0", "a bird"), ("1", TEXTS[1]), ("x", "a cow")])
    assert (counts.new, counts.changed, counts.unchanged) == (1, 1, 1)
    assert [hit.id for hit in index.search("bird cow", top_k=5)] == ["0", "x"]
    assert index.remove(iter(["x", "0", "x"])).removed == 2 and index.remove("4").removed == 1
    assert ids(index) == ["1", "2", "3"] and len(index) == 3 and not index.search("bird")
    assert len(other) == 3 and other.search("cat")
    other.refresh()
    assert ids(other) == ["1", "2", "3"]
    assert index.remove([]).removed == 0


def test_lone_surrogates_are_replaced_with_a_warning(tmp_path):
    row = {"id": "a\ud800", "title": "\udfff", "text": "a cat \ud800"}
    with pytest.warns(UserWarning, match=r"1 document \(documents\[1\]\) not entirely UTF-8"):
        index = bert_jax.Index.build(["a dog", row], tmp_path / "index")
    (hit,) = index.search("cat \ud800")
    assert (hit.id, hit.title, hit.text) == ("a\ufffd", "\ufffd", "a cat \ufffd")
    assert index.remove("a\ud800").removed == 1


def test_blank_documents_are_left_out_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match=r"1 document without text left out \(documents\[1\]\)"):
        index = bert_jax.Index.build(["a cat", " "], tmp_path / "index")
    assert ids(index) == ["0"]


def test_documents_of_a_program_are_not_taken_for_files_that_are_gone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bert_jax.Index.build(TEXTS, "index")
    Path("docs").mkdir()
    Path("docs/a.txt").write_text("A cat.")
    assert main(["index", "docs", "--output", "index"]) == 0
    assert main(["index", "docs", "--output", "index", "--remove-missing"]) == 1
    assert "would also remove the documents of memory:documents" in capsys.readouterr().err
    assert len(bert_jax.Index.open("index")) == 4
