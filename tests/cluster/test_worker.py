"""What a worker answers: the rows of a shard, or in one line why there are none; and where it refuses to work."""

import json
import os
import socket
from dataclasses import replace

import numpy as np
import pytest
from pyarrow import parquet

import bert_jax
from bert_jax.cluster import predict_shards
from bert_jax.cluster.embed_shards import EmbedShards
from bert_jax.cluster.predict_shards import PredictShards
from bert_jax.cluster.worker import THREADS, ShardRefusal, ShardResult, ShardWorker, list_versions
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.shards.cut_file import CutFile
from bert_jax.data.shards.shard import list_shards
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings
from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.inference.onnx_session import threads_of_environment
from bert_jax.inference.row_predictor import PredictionOptions
from bert_jax.search.cache import content_keys
from bert_jax.search.stored_vectors import KEYS
from tests.support.small_models import SMALL_TEXTS, write_model
from tests.support.tables import write_jsonl

ENGINE = {"engine": "jax", "dtype": "float32"}
HERE = f" (on {socket.gethostname()})"


@pytest.fixture
def worker(worker_environment):
    return ShardWorker(1, uses_accelerator=False)


@pytest.fixture
def work(model, tmp_path):
    options = PredictionOptions(row_numbers=True)
    work = PredictShards.from_model(
        str(model), "jsonl", str(tmp_path / "out"), engine=ENGINE, options=options, columns=ExampleColumns()
    )
    with work.folder.opened():
        yield work


def test_a_worker_takes_the_cores_that_it_got(worker, monkeypatch):
    assert {os.environ[name] for name in THREADS} == {"1"} and os.environ["JAX_PLATFORMS"] == "cpu"
    assert threads_of_environment() == 1
    for several_levels_or_none in ("4,2", ""):
        monkeypatch.setenv("OMP_NUM_THREADS", several_levels_or_none)
        assert threads_of_environment() == 0


@pytest.mark.slow
def test_rows_are_numbered_and_told_by_the_file_that_was_cut(worker, work, tmp_path):
    rows = [{"text": text} for text in SMALL_TEXTS]
    rows[6] = {"text": ""}
    (shard,) = list_shards(write_jsonl(tmp_path / "in.jsonl", rows))
    first, second = CutFile(shard, 4, tmp_path / "cut").list_parts()
    assert worker.open(work, list_versions()) is None
    answer = worker.write(first)
    assert isinstance(answer, ShardResult) and (answer.rows, answer.warnings) == (4, ())
    answer = worker.write(second)
    assert isinstance(answer, ShardRefusal) and not answer.disk_is_full
    assert answer.message.startswith(f"{tmp_path}/in.jsonl row 7: ") and answer.message.endswith(HERE)
    assert [path.name for path in sorted((tmp_path / "out").glob("*.jsonl"))] == ["in-00000.jsonl"]
    assert list(work.folder.list_complete([first, second])) == ["in-00000"]
    rows[6] = {"text": "cats"}
    write_jsonl(tmp_path / "cut/in.parts/00001.jsonl", rows[4:])
    assert isinstance(worker.write(second), ShardResult)
    lines = (tmp_path / "out/in-00001.jsonl").read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == [5, 6, 7, 8]


@pytest.mark.slow
def test_a_disk_that_is_full_is_told_with_the_machine(worker, work, tmp_path, monkeypatch):
    (shard,) = list_shards(write_jsonl(tmp_path / "in.jsonl", [{"text": "cats"}]))
    assert worker.open(work, list_versions()) is None
    monkeypatch.setitem(predict_shards.WRITERS, "jsonl", full_disk)
    answer = worker.write(shard)
    assert answer == ShardRefusal(
        f"{tmp_path}/out/in.jsonl: No space left on device; make room there and repeat the command{HERE}",
        disk_is_full=True,
    )
    assert not list((tmp_path / "out").rglob("*.partial")) and not work.folder.list_complete([shard])


def full_disk(*_):
    raise OSError(28, os.strerror(28))


def test_a_machine_with_other_versions_is_refused(worker, work):
    answer = worker.open(work, list_versions() | {"jax": "0.9.1"})
    assert isinstance(answer, ShardRefusal)
    assert f"{socket.gethostname()} has jax " in answer.message
    assert answer.message.endswith(
        "and the command runs with 0.9.1; install the same versions on all machines"
    )


def test_a_machine_that_does_not_see_the_model_or_has_another_is_refused(worker, work):
    answer = worker.open(replace(work, model="/nowhere/model"), list_versions())
    assert answer == ShardRefusal(
        f"{socket.gethostname()} does not see /nowhere/model; put it on storage that all machines mount at this path"
    )
    answer = worker.open(replace(work, fingerprint="of another"), list_versions())
    assert answer == ShardRefusal(
        f"{work.model} is another model here than where the command runs; copy it again"
    )


@pytest.mark.slow
def test_the_rows_of_a_table_as_parquet(worker, work, tmp_path):
    rows = [{"id": n, "text": text, "none": None} for n, text in enumerate(SMALL_TEXTS)]
    (shard,) = list_shards(write_jsonl(tmp_path / "in.jsonl", rows))
    work = replace(work, format="parquet")
    assert worker.open(work, list_versions()) is None
    assert isinstance(worker.write(shard), ShardResult)
    written = parquet.read_table(tmp_path / "out/in.parquet")
    assert written.column_names[:4] == ["id", "text", "none", "row"]
    assert written.column("text").to_pylist() == SMALL_TEXTS
    assert str(written.schema.field("none").type) == "string"
    assert str(written.schema.field("predicted_score").type) == "double"
    write_jsonl(tmp_path / "in.jsonl", [rows[0], rows[1] | {"id": "one"}])
    answer = worker.write(shard)
    assert isinstance(answer, ShardRefusal) and "which Parquet cannot" in answer.message


@pytest.mark.slow
def test_vectors_as_parquet_and_their_keys(worker, model, tmp_path):
    settings = {"prompt": None, "dimensions": None, "long_texts": "truncate"}
    own = {"engine": ENGINE, "pipeline": settings, "column": "", "quantize": None}
    work = EmbedShards.from_model(str(model), "parquet", str(tmp_path / "out"), **own)
    (tmp_path / "in.txt").write_text("\n".join(SMALL_TEXTS))
    (shard,) = list_shards(str(tmp_path / "in.txt"))
    with work.folder.opened():
        assert worker.open(work, list_versions()) is None
        assert worker.write(shard).rows == len(SMALL_TEXTS)
    written = parquet.read_table(tmp_path / "out/in.parquet")
    assert (
        str(written.schema.field("embedding").type).startswith("fixed_size_list<")
        and written.schema.field("embedding").type.list_size == 8
    )
    assert written.column("row").to_pylist() == list(range(1, len(SMALL_TEXTS) + 1))
    vectors = np.array(written.column("embedding").to_pylist(), np.float32)
    expected = bert_jax.Embedder.load(model, pooling="mean").encode(SMALL_TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    keys = np.load(tmp_path / "out" / KEYS / "in.npy")
    assert keys.tolist() == content_keys(SMALL_TEXTS).tolist()


@pytest.mark.slow
def test_sparse_vectors_as_parquet(worker, tmp_path):
    write_model(tmp_path / "model", heads=("mlm",), pooler=False, sparse=SparseSettings())
    settings = {"prompt": None, "max_active_dims": 2, "long_texts": "truncate"}
    own = {"engine": ENGINE, "pipeline": settings, "column": "", "quantize": None}
    work = EmbedShards.from_model(str(tmp_path / "model"), "parquet", str(tmp_path / "out"), **own)
    (shard,) = list_shards(write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS]))
    with work.folder.opened():
        assert worker.open(work, list_versions()) is None
        assert worker.write(shard).rows == len(SMALL_TEXTS)
    written = parquet.read_table(tmp_path / "out/in.parquet").to_pylist()
    assert [row["text"] for row in written] == SMALL_TEXTS
    assert [row["row"] for row in written] == list(range(1, len(SMALL_TEXTS) + 1))
    expected = bert_jax.load(tmp_path / "model").encode(SMALL_TEXTS, max_active_dims=2)
    assert [index for row in written for index in row["indices"]] == expected.indices.tolist()
    np.testing.assert_allclose([x for row in written for x in row["values"]], expected.data, atol=1e-6)


@pytest.mark.slow
def test_vectors_of_tokens_as_parquet(worker, tmp_path):
    write_model(tmp_path / "model", heads=(), pooler=False, multi_vector=MultiVectorSettings())
    settings = {"prompt": None, "long_texts": "truncate"}
    own = {"engine": ENGINE, "pipeline": settings, "column": "", "quantize": None}
    work = EmbedShards.from_model(str(tmp_path / "model"), "parquet", str(tmp_path / "out"), **own)
    (shard,) = list_shards(write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in SMALL_TEXTS]))
    with work.folder.opened():
        assert worker.open(work, list_versions()) is None
        assert worker.write(shard).rows == len(SMALL_TEXTS)
    written = parquet.read_table(tmp_path / "out/in.parquet")
    kind = written.schema.field("embedding").type
    assert str(kind).startswith("list<") and kind.value_type.list_size == 8
    assert written.column("text").to_pylist() == SMALL_TEXTS
    expected = bert_jax.load(tmp_path / "model").encode_document(SMALL_TEXTS)
    for vectors, others in zip(written.column("embedding").to_pylist(), expected, strict=True):
        np.testing.assert_allclose(vectors, others, atol=1e-6)
