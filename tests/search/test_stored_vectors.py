"""An index takes over vectors that were computed elsewhere, and computes only those that are missing."""

import json
import shutil
import tracemalloc

import numpy as np
import pytest

import bert_jax
from bert_jax.cluster.embed_shards import EmbedShards
from bert_jax.command.main import main
from bert_jax.data.shards.shard import list_shards
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.search import index_encoder, index_writer, stored_vectors
from tests.support.small_models import SMALL_TEXTS, write_model
from tests.support.tables import write_jsonl

PROMPTS = EmbedderSettings(prompts={"query": "the ", "document": "on "})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "embedder"
    write_model(path, heads=(), embedder=PROMPTS)
    return path


def write_vectors(model, given, output, prompt="document", format="npy", quantize=None) -> None:
    """What `embed --ray` writes, without a cluster."""
    settings = {"prompt": prompt, "dimensions": None, "long_texts": "truncate"}
    engine = {"engine": "jax", "dtype": "float32"}
    own = {"engine": engine, "pipeline": settings, "column": "", "quantize": quantize}
    work = EmbedShards.from_model(str(model), format, str(output), **own)
    with work.folder.opened():
        write = work.open()
        for shard in list_shards(str(given)):
            work.folder.record(shard, write(shard))


@pytest.fixture
def documents(tmp_path):
    (tmp_path / "docs").mkdir()
    for part in (0, 1):
        rows = [{"id": f"{part}-{n}", "text": text} for n, text in enumerate(SMALL_TEXTS[part::2])]
        write_jsonl(tmp_path / f"docs/{part}.jsonl", rows)
    return tmp_path / "docs"


def index(documents, model, output, *flags: str, code: int = 0) -> None:
    command = ["index", str(documents), "--output", str(output), "--model", str(model), "--language", "none"]
    assert main([*command, "--passage-tokens", "12", *flags]) == code


@pytest.mark.slow
def test_nothing_is_encoded_twice(model, documents, tmp_path, monkeypatch, capsys):
    write_vectors(model, documents, tmp_path / "vectors")
    index(documents, model, tmp_path / "usual")
    monkeypatch.setattr(index_encoder.IndexEncoder, "encode_documents", None)
    index(documents, model, tmp_path / "taken", "--vectors", str(tmp_path / "vectors"))
    assert "0 passages encoded, 8 with stored vectors; " in capsys.readouterr().err
    usual, taken = (bert_jax.Index.open(tmp_path / name) for name in ("usual", "taken"))
    vectors = [np.concatenate([segment.vectors for segment in opened.segments]) for opened in (usual, taken)]
    np.testing.assert_allclose(*vectors, atol=1e-6)


@pytest.mark.slow
def test_each_shard_is_read_once(model, tmp_path, monkeypatch):
    """Passages come in the order of the shards, of which few are in memory."""
    (tmp_path / "docs").mkdir()
    for part in range(4):
        rows = [{"id": f"{part}-{n}", "text": f"{'the ' * part}{text}"} for n, text in enumerate(SMALL_TEXTS)]
        write_jsonl(tmp_path / f"docs/{part}.jsonl", rows)
    write_vectors(model, tmp_path / "docs", tmp_path / "vectors", format="parquet")
    read, usual = [], stored_vectors.read_vectors
    monkeypatch.setattr(stored_vectors, "read_vectors", lambda path: read.append(path.name) or usual(path))
    monkeypatch.setattr(index_writer, "ROWS", 3)
    index(tmp_path / "docs", model, tmp_path / "index", "--vectors", str(tmp_path / "vectors"))
    assert read == [f"{part}.parquet" for part in range(4)]


def test_only_the_rows_that_are_selected_are_in_memory(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    np.save(tmp_path / "a.npy", rows)
    stored = stored_vectors.StoredRows(stored_vectors.read_vectors(tmp_path / "a.npy"), normalizes=True)
    tracemalloc.start()
    selected = stored[np.arange(5, 15)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    expected = rows[5:15] / np.linalg.norm(rows[5:15], axis=1, keepdims=True)
    np.testing.assert_allclose(selected, expected, rtol=1e-6)
    assert peak < rows.nbytes / 50


@pytest.mark.slow
def test_what_has_no_vector_is_encoded(model, documents, tmp_path, capsys):
    write_vectors(model, documents / "0.jsonl", tmp_path / "vectors")
    index(documents, model, tmp_path / "index", "--vectors", str(tmp_path / "vectors"))
    assert "4 passages encoded, 4 with stored vectors; " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": "query"}, "take --prompt document"),
        ({"quantize": "binary"}, "was made with --quantize binary"),
    ],
)
def test_other_vectors_are_refused(changes, message, model, documents, tmp_path, capsys):
    write_vectors(model, documents, tmp_path / "vectors", **changes)
    index(documents, model, tmp_path / "index", "--vectors", str(tmp_path / "vectors"), code=1)
    assert message in capsys.readouterr().err and not (tmp_path / "index").exists()


@pytest.mark.slow
def test_damaged_foreign_and_missing_vectors_are_refused(model, documents, tmp_path, capsys):
    vectors, output = tmp_path / "vectors", tmp_path / "index"

    def refused(folder=vectors, directory=model) -> str:
        index(documents, directory, output, "--vectors", str(folder), code=1)
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "holds no _job.json; name a folder that `bert-jax embed --ray` wrote" in refused()
    assert "gs://b/vectors is in a bucket; copy the folder to this machine" in refused("gs://b/vectors")
    write_vectors(model, documents, vectors)
    other = shutil.copytree(model, tmp_path / "other")
    (other / "more.txt").touch()
    assert f"holds vectors of another model than {other}" in refused(directory=other)
    whole = (vectors / "1.npy").read_bytes()
    (vectors / "1.npy").write_bytes(whole[:-1] + b"x")
    assert "1.npy is damaged: its hash differs" in refused()
    (vectors / "1.npy").write_bytes(whole)
    for path in documents.iterdir():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        write_jsonl(path, [row | {"title": "the"} for row in rows])
    assert f"no passage has a vector in {vectors}; embed their texts, with their titles in front" in refused()
