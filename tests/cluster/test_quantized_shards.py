"""Vectors of shards in int8: the bytes of one process, whose ranges are those of the first texts."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from bert_jax.cluster import embed_shards, run_shards
from bert_jax.cluster.embed_shards import RANGES, EmbedShards
from bert_jax.cluster.worker import ClusterOptions
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.search import vector_shards
from tests.support.small_models import SMALL_TEXTS, write_model

pytestmark = pytest.mark.slow
FIRST = 4  # texts, whose ranges count


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("models") / "embedder"
    write_model(path, heads=())
    return str(path)


@pytest.fixture
def done(tmp_path, monkeypatch) -> list[str]:
    """The shards that are done, in this process, in a folder with two files of FIRST texts."""
    names = []

    def complete_here(options, work, shards, before) -> list:
        write = work.open()
        for shard in reversed([shard for shard in shards if shard.name not in before]):
            names.append(shard.name)
            work.folder.record(shard, write(shard))
        complete = work.folder.list_complete(shards)
        return [complete[shard.name] for shard in shards]

    for module in (embed_shards, run_shards):
        monkeypatch.setattr(module, "complete_shards", complete_here)
    monkeypatch.setattr(vector_shards, "TEXTS_PER_SHARD", FIRST)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("all.txt").write_text("".join(f"{text}\n" for text in SMALL_TEXTS))
    Path("in").mkdir()
    for n in (0, 1):
        lines = [f"{text}\n" for text in SMALL_TEXTS[FIRST * n : FIRST * (n + 1)]]
        Path(f"in/{n}.txt").write_text("".join(lines))
    return names


def embed(model: str, output: str, given: str = "in", format: str = "npy") -> str:
    own = {"pipeline": {"prompt": None, "dimensions": None, "long_texts": "truncate"}, "column": ""}
    engine = {"engine": "jax", "dtype": "float32"}
    work = EmbedShards.from_model(model, format, output, engine=engine, quantize="int8", **own)
    return run_shards.run_shards(ClusterOptions("local"), work, given)


def test_the_bytes_of_one_process(model, done, tmp_path, capsys):
    command = ["embed", "--model", model, "--input", "all.txt", "--quantize", "int8", "--output", "alone.npy"]
    assert main(command) == 0
    end = capsys.readouterr().err.partition(";")[2]
    assert "numbers beyond the ranges of the first 4 vectors were clipped" in end
    line = embed(model, "together")
    assert done == ["0", "1", "0"], "the first is computed for its ranges, too"
    assert line.endswith(f";{end.rstrip()}")
    expected = np.load("alone.npy")
    assert np.load(f"together/{RANGES}").tolist() == np.load("alone.ranges.npy").tolist()
    for n in (0, 1):
        written = np.load(f"together/{n}.npy")
        assert written.dtype == np.int8 and written.tolist() == expected[FIRST * n : FIRST * (n + 1)].tolist()
    embed(model, f"file://{tmp_path}/bucket", format="parquet")
    table = parquet.read_table("bucket/1.parquet")
    assert str(table.schema.field("embedding").type).startswith("fixed_size_list<")
    assert table.column("embedding").to_pylist() == expected[FIRST:].tolist()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_ranges_of_many_small_shards(model, done):
    """They are of the first texts, in whatever shards these are."""
    Path("small").mkdir()
    for n, text in enumerate(SMALL_TEXTS):
        Path(f"small/{n}.txt").write_text(f"{text}\n")
    embed(model, "together")
    done.clear()
    embed(model, "many", "small")
    assert done[:FIRST] == ["0", "3", "2", "1"] and sorted(done[FIRST:]) == list("01234567")
    np.testing.assert_allclose(np.load(f"many/{RANGES}"), np.load(f"together/{RANGES}"), atol=1e-5)


def test_ranges_stay_when_the_command_goes_on(model, done):
    embed(model, "out")
    ranges, done[:] = np.load(f"out/{RANGES}"), []
    Path("out/1.npy").unlink()
    embed(model, "out")
    assert done == ["1"] and (np.load(f"out/{RANGES}") == ranges).all()
    shutil.copy("all.txt", "in/0.txt")  # which begins with the same texts
    for name in ("0", "1"):
        Path(f"out/_manifests/{name}.json").unlink()
    embed(model, "out")
    assert done == ["1", "0", "1", "0"]
    np.testing.assert_allclose(np.load(f"out/{RANGES}"), ranges, atol=1e-5)
    Path("out/1.npy").unlink()
    Path(f"out/{RANGES}").write_bytes(b"")
    with pytest.raises(BertJaxError, match=rf"out/{RANGES} is missing or damaged; name a new folder"):
        embed(model, "out")


def test_one_text_has_no_ranges(model, done):
    Path("one.txt").write_text("cats\n")
    with pytest.raises(BertJaxError, match="int8 needs the range of each dimension over at least two texts"):
        embed(model, "out", "one.txt")
