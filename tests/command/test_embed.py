"""Vectors of many texts: shards that are the same after a kill, quantized vectors, and what is refused."""

import io
import json
import os
import random
import shutil
import subprocess
import sys
import time

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy.sparse import load_npz

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.hub.multi_vector_encoder import MultiVectorSettings, QueryExpansion
from bert_jax.hub.sentence_transformers import Projection
from bert_jax.hub.sparse_encoder import SparseSettings
from bert_jax.search import vector_shards
from bert_jax.search.vector_files import Quantizer
from tests.support.small_models import SMALL_VOCABULARY, write_model

SHARD = 8
QUANTIZED = {None: [], "int8": ["--quantize", "int8"], "binary": ["--quantize", "binary"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path, heads=("mlm",))
    return path


@pytest.fixture
def embed(model, tmp_path, monkeypatch, capsys):
    """Runs the verb in a folder, with small shards; what it said on standard error."""
    monkeypatch.setattr(vector_shards, "TEXTS_PER_SHARD", SHARD)
    monkeypatch.chdir(tmp_path)

    def run(*flags, code: int = 0, directory=model) -> str:
        assert main(["embed", "--model", str(directory), *map(str, flags)]) == code
        return capsys.readouterr().err

    return run


def made_up(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(SMALL_VOCABULARY[5:], k=rng.randint(0, 20))) for _ in range(count)]


def lines(path, texts) -> str:
    path.write_text("".join(text + "\n" for text in texts))
    return str(path)


def contents(directory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.slow
def test_the_column_that_was_read_is_said(embed, tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("passage,question\nthe cat,a mat\nthe mat,a cat\n")
    printed = embed("--input", "rows.csv", "--output", "a.npy")
    assert '2 vectors of column "question" in a.npy; "passage" is not read; choose with --text\n' in printed
    printed = embed("--input", "rows.csv", "--output", "a.npy", "--text", "passage")
    assert '2 vectors of column "passage" in a.npy\n' in printed
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "give --output" in embed("--input", "rows.csv", code=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUANTIZED)
def test_shards_are_one_array_and_missing_ones_are_made_again(kind, embed, tmp_path):
    given = ["--input", lines(tmp_path / "lines.txt", made_up(4 * SHARD + 3)), *QUANTIZED[kind]]
    embed(*given, "--output", "whole.npy")
    whole = np.load("whole.npy")
    assert "35 vectors in there" in embed(*given, "--output", "there")
    before = contents(tmp_path / "there")
    assert len(before) == 5 + 1
    assert "35 vectors in there; it was complete already" in embed(*given, "--output", "there")
    for missing in (["00000.npy"], ["00002.npy", "00004.npy"]):
        for name in missing:
            (tmp_path / "there" / name).unlink()
        with pytest.raises(BertJaxError, match=f"{missing[0]} is missing; copy the directory again"):
            bert_jax.open_vectors("there")
        embed(*given, "--output", "there")
        assert contents(tmp_path / "there") == before

    stored = bert_jax.open_vectors("there")
    assert (stored.shape, stored.dtype) == (whole.shape, whole.dtype)
    mask = np.arange(35) % 3 == 1
    for which in (
        slice(None), slice(5, 29, 3), slice(-4, None), 17, -1, [30, 2, 2, 9], np.array([], int), mask, mask.tolist(),
    ):  # fmt: skip
        np.testing.assert_array_equal(stored[which], whole[which])
    for which, message in (
        ([0, 35], "row 35 is out of range: there are 35 rows"),
        ([0, -36, 35], "row -36 is out of range: there are 35 rows"),
        (mask[1:], r"a mask of shape \(34,\) for 35 rows"),
    ):
        with pytest.raises(IndexError, match=message):
            stored[which]


@pytest.mark.slow
def test_sparse_vectors_are_one_array_or_lines(embed, tmp_path, capsys):
    write_model(tmp_path / "sparse", heads=("mlm",), pooler=False, sparse=SparseSettings())
    texts, model = made_up(20), bert_jax.load(tmp_path / "sparse")
    given = ["--input", lines(tmp_path / "lines.txt", texts), "--max-active-dims", 2]
    printed = embed(*given, "--output", "made.npz", directory="sparse")
    assert "20 vectors in made.npz\n" in printed and "truncated" in printed
    whole = model.encode([" ".join(text.split()[:14]) for text in texts], max_active_dims=2)
    assert abs(load_npz("made.npz") - whole).max() <= 1e-5
    assert main(["embed", "--model", "sparse", *map(str, given)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(row["indices"]) for row in rows] == np.diff(whole.indptr).tolist()
    assert np.concatenate([row["indices"] for row in rows]).tolist() == whole.indices.tolist()
    np.testing.assert_allclose(np.concatenate([row["values"] for row in rows]), whole.data, atol=1e-5)
    for flags, message in (
        (
            ["--output", "made.npy"],
            "--output made.npy should end in .npz, because sparse gives sparse vectors",
        ),
        (["--dimensions", 3], "--dimensions is not for sparse vectors, which sparse gives"),
        (["--quantize", "int8"], "--quantize is not for sparse vectors"),
    ):
        assert message in embed(*given, *flags, directory="sparse", code=1)
    assert "--max-active-dims is not for dense vectors" in embed(*given, "--output", "made.npy", code=1)


@pytest.mark.slow
def test_vectors_of_tokens_are_two_arrays_or_lines(embed, tmp_path, capsys):
    settings = MultiVectorSettings(projection=Projection(6), expansion=QueryExpansion(8), skiplist=("[SEP]",))
    write_model(tmp_path / "tokens", heads=(), pooler=False, multi_vector=settings)
    texts, model = [*made_up(19), ""], bert_jax.load(tmp_path / "tokens")
    given = ["--input", lines(tmp_path / "lines.txt", texts)]
    printed = embed(*given, "--output", "made.npz", directory="tokens")
    assert "20 vectors in made.npz\n" in printed and "truncated" in printed and "windows" not in printed
    made, whole = np.load("made.npz"), [model.encode_document(" ".join(t.split()[:14])) for t in texts]
    assert made["ends"].tolist() == np.cumsum([len(vectors) for vectors in whole]).tolist()
    np.testing.assert_allclose(made["vectors"], np.concatenate(whole), atol=1e-5)
    assert made["vectors"].dtype == np.float32 and made["vectors"].shape[1] == 6
    assert main(["embed", "--model", "tokens", *map(str, given), "--prompt", "query"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [np.shape(row) for row in rows] == [(8, 6)] * 20
    np.testing.assert_allclose(rows[0], model.encode_query(" ".join(texts[0].split()[:6])), atol=1e-5)
    for flags, message in (
        (["--output", "made.npy"], "should end in .npz, because tokens gives token vectors"),
        (["--dimensions", 3], "--dimensions is not for token vectors, which tokens gives"),
        (["--quantize", "int8"], "--quantize is not for token vectors"),
        (["--max-active-dims", 3], "--max-active-dims is not for token vectors"),
        (["--output", "a.npz", "--long-texts", "windows"], "truncates long texts; leave long_texts out"),
        (["--output", "a.npz", "--prompt", "other"], "no prompts"),
    ):
        assert message in embed(*given, *flags, directory="tokens", code=1)
    assert not list(tmp_path.glob("a.*"))


def test_hidden_files_are_no_part_of_a_model(model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    (copy / ".git/lfs").mkdir(parents=True)
    (copy / ".git/lfs/object").write_text("weights")
    (copy / ".DS_Store").touch()
    assert model_fingerprint(copy) == model_fingerprint(model)
    (copy / "more.txt").touch()
    assert model_fingerprint(copy) != model_fingerprint(model)


def test_a_first_run_without_a_finished_shard_binds_no_settings(embed, tmp_path):
    lines(tmp_path / "rows.jsonl", ['{"text": "the cat"}', "not JSON"])
    assert "row 2 is not JSON" in embed("--input", "rows.jsonl", "--output", "there", code=1)
    assert listed(tmp_path / "there") == 0 and (tmp_path / "there/vectors.json").exists()
    given = ["--input", lines(tmp_path / "lines.txt", ["the cat", "a mat"]), "--output", "there"]
    assert "2 vectors in there" in embed(*given, "--dimensions", 4)
    assert "dimensions was 4 and is 8" in embed(*given, code=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were truncated")
def test_dequantized_vectors_are_near_and_dimensions_are_a_prefix(embed, model, tmp_path):
    texts = made_up(2 * SHARD)
    given = ["--input", lines(tmp_path / "lines.txt", texts), "--dimensions", 5]
    embed(*given, "--output", "floats.npy")
    floats = np.load("floats.npy")
    prefix = bert_jax.Embedder.load(model, pooling="mean").encode(texts)[:, :5]
    np.testing.assert_allclose(floats, prefix / np.linalg.norm(prefix, axis=1, keepdims=True), atol=1e-6)
    for kind in ("int8", "binary"):
        embed(*given, "--output", kind, *QUANTIZED[kind])
    signs = bert_jax.open_vectors("binary", dequantize=True)
    assert (signs.shape, signs.dtype) == ((2 * SHARD, 5), np.float32)
    np.testing.assert_array_equal(signs[:], np.where(floats > 0, 1, -1))
    least, greatest = floats[:SHARD].min(0), floats[:SHARD].max(0)
    near = bert_jax.open_vectors("int8", dequantize=True)[:]
    half_a_step = (greatest - least) / 255 / 2
    assert (abs(near - np.clip(floats, least, greatest)) <= half_a_step + 1e-6).all()
    assert json.loads((tmp_path / "int8/vectors.json").read_text())["clipped"] == np.sum(
        (floats < least) | (floats > greatest)
    )


@pytest.mark.slow
def test_quantized_vectors_are_those_of_sentence_transformers(embed, tmp_path):
    theirs = pytest.importorskip("sentence_transformers").util.quantize_embeddings
    rng = np.random.default_rng(0)
    vectors = rng.normal(0, 1, (500, 13)).astype(np.float32)
    vectors[:, 3], vectors[:9, 4] = (
        0.25,
        0,
    )  # a dimension without a range, and what is neither positive nor negative
    int8 = Quantizer("int8", 100)
    ours = np.concatenate(list(int8(iter(np.split(vectors, 5)))))
    np.testing.assert_array_equal(int8.ranges, [vectors[:100].min(0), vectors[:100].max(0)])
    assert ours.dtype == np.int8 and 0 < int8.clipped < 500
    np.testing.assert_array_equal(ours, theirs(vectors, "int8", ranges=int8.ranges))
    np.testing.assert_array_equal(ours, theirs(vectors, "int8", calibration_embeddings=vectors[:100]))
    (bits,) = Quantizer("binary", 100)(iter([vectors]))
    assert bits.dtype == np.uint8
    np.testing.assert_array_equal(bits, theirs(vectors, "ubinary"))
    given = ["--input", lines(tmp_path / "lines.txt", made_up(3 * SHARD))]
    embed(*given, "--output", "floats.npy")
    embed(*given, "--output", "bytes.npy", "--quantize", "int8")
    expected = theirs(np.load("floats.npy"), "int8", ranges=np.load("bytes.ranges.npy"))
    np.testing.assert_array_equal(np.load("bytes.npy"), expected)


@pytest.mark.slow
def test_texts_come_from_lines_tables_and_standard_input(embed, tmp_path, monkeypatch):
    texts = ["the cat", "", 'sat on "the" mat , cats', "mat"]
    lines(tmp_path / "lines.txt", texts)
    rows = [{"id": n, "review": text, "text": "no"} for n, text in enumerate(texts)]
    lines(tmp_path / "rows.jsonl", map(json.dumps, rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "rows.parquet")
    quoted = ('"{}",1'.format(text.replace('"', '""')) for text in texts)
    lines(tmp_path / "rows.csv", ["review,stars", *quoted])
    sources = {
        "lines.txt": [],
        "rows.jsonl": ["--text", "review"],
        "rows.parquet": ["--text", "Review"],
        "rows.csv": [],
    }
    for source, flags in sources.items():
        embed("--input", source, *flags, "--output", f"{source}.npy")
    for source, flags in {"lines.txt": [], "rows.jsonl": ["--text", "review"]}.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper((tmp_path / source).open("rb")))
        embed(*flags, "--output", f"{source}.piped.npy")
    first, *others = (np.load(path) for path in sorted(tmp_path.glob("*.npy")))
    assert len(first) == 4 and len(others) == 5
    for vectors in others:
        np.testing.assert_array_equal(vectors, first)


@pytest.mark.slow
def test_truncated_texts_are_counted_once_over_all_shards(embed, tmp_path):
    texts = ["the cat " * (20 if n in (3, 17, 18) else 1) for n in range(3 * SHARD)]
    texts[17] += "the cat"
    given = ["--input", lines(tmp_path / "lines.txt", texts)]
    for output in ([], ["--output", "o.npy"], ["--output", "there"], ["--output", "there"]):
        printed = embed(*given, *output)
        assert printed.count("3 of 24 texts are longer than 16 tokens and were truncated") == 1
        assert (
            "the longest (number 18) by 28 tokens; --long-texts windows" in printed
            and printed.count("truncated") == 1
        )
    assert "truncated" not in embed(*given, "--output", "windows", "--long-texts", "windows")


@pytest.mark.slow
def test_a_directory_of_other_vectors_stays_as_it_is(embed, model, tmp_path):
    texts = made_up(3 * SHARD + 2)
    given = ["--input", lines(tmp_path / "lines.txt", texts), "--output", "there"]
    embed(*given)
    before = contents(tmp_path / "there")
    shutil.copytree(model, tmp_path / "other")
    (tmp_path / "other/config.json").write_text((model / "config.json").read_text() + "\n")

    def refused(*flags, **more) -> str:
        printed = embed(*given, *flags, code=1, **more)
        assert printed.count("\n") == 1 and contents(tmp_path / "there") == before
        return printed

    assert "another model" in refused(directory="other")
    assert "dimensions was 8 and is 4" in refused("--dimensions", 4)
    assert "quantization" in refused("--quantize", "int8")
    changed = [*texts[:12], "mat", *texts[13:]]
    for other, first in ((changed, 8), (texts[: 2 * SHARD], 16), (texts[:-1], 24), ([*texts, "mat"], 24)):
        lines(tmp_path / "lines.txt", other)
        assert f"of different texts: the input differs after the first {first};" in refused()
    embed("--input", lines(tmp_path / "even.txt", texts[:16]), "--output", "even")
    lines(tmp_path / "even.txt", texts[:17])
    assert "after the first 16;" in embed("--input", "even.txt", "--output", "even", code=1)
    lines(tmp_path / "lines.txt", changed)
    (tmp_path / "there/00001.npy").unlink()
    printed = embed(*given, code=1)  # nor does a file that is made again bring in other texts
    assert "first 8" in printed and "00001.npy" not in contents(tmp_path / "there")
    lines(tmp_path / "lines.txt", texts)
    (tmp_path / "there/00001.npy").write_bytes(before["00001.npy"][:300])
    assert "there/00001.npy is damaged; delete it, and repeat the command" in embed(*given, code=1)
    with pytest.raises(BertJaxError, match="00001.npy"):
        bert_jax.open_vectors("there")
    with pytest.raises(BertJaxError, match="read a .npy file with numpy.load"):
        bert_jax.open_vectors("there/00000.npy")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--quantize", "int8"], "--quantize needs an --output"),
        (["--output", "out.jsonl"], "should end in .npy, or be the name of a directory"),
        (["--output", "out", "--dimensions", "9"], "dimensions must be between 1 and 8, not 9"),
        (
            ["--output", "out", "--prompt", "query"],
            'this embedder has no prompts, so none called "query"',
        ),
        (
            ["--output", "foreign"],
            "foreign is left as it is because it holds files that this command does not write (mine)",
        ),
        (["--output", "lines.txt/out"], "Not a directory"),
        (["--output", "out", "--text", "review"], "lines.txt row 1 is not JSON"),
    ],
)
def test_what_is_refused_before_anything_is_written(flags, message, embed, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/mine").touch()
    lines(tmp_path / "lines.txt", ["the cat"])
    assert message in embed("--input", "lines.txt", *flags, code=1)
    assert sorted(os.listdir()) == ["foreign", "lines.txt"]


def test_shards_beside_a_model_are_no_part_of_it(embed, model, tmp_path):
    lines(tmp_path / "lines.txt", ["the cat"])
    printed = embed("--input", "lines.txt", "--output", model / "vectors", code=1)
    assert "elsewhere" in printed and not (model / "vectors").exists()


CHILD = """
import sys
from bert_jax.command.main import main
from bert_jax.search import vector_shards
vector_shards.TEXTS_PER_SHARD = int(sys.argv[1])
sys.exit(main(["embed", *sys.argv[2:]]))
"""


def started(shard: int, *flags, **options) -> subprocess.Popen:
    # As the tests of this file, for other programs may give other last bits.
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-c", CHILD, str(shard), *map(str, flags)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, **options)


def listed(directory) -> int:
    path = directory / "vectors.json"
    return len(json.loads(path.read_text())["shards"]) if path.exists() else 0


@pytest.mark.ci
def test_killed_it_resumes_to_the_same_bytes(embed, model, tmp_path):
    texts = made_up(120 * SHARD)
    given = ["--input", lines(tmp_path / "lines.txt", texts), "--quantize", "int8"]
    embed(*given, "--output", "whole")
    process = started(SHARD, "--model", model, *given, "--output", "killed")
    deadline = time.monotonic() + 100
    while listed(tmp_path / "killed") < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert 3 <= listed(tmp_path / "killed") < 120, "it was not killed on the way"
    first = (tmp_path / "killed/00000.npy").stat().st_ino
    with pytest.raises(BertJaxError, match="killed.*complete"):
        bert_jax.open_vectors("killed")
    embed(*given, "--output", "killed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert (tmp_path / "killed/00000.npy").stat().st_ino == first, "a finished shard was made again"


def resident(process: subprocess.Popen) -> int:
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
def test_a_million_texts_in_flat_memory(model, tmp_path):
    process = started(
        65_536,
        "--model",
        model,
        "--output",
        tmp_path / "out",
        "--quantize",
        "int8",
        stdin=subprocess.PIPE,
        text=True,
    )
    some, sizes = made_up(100_000), []
    with process.stdin as pipe:
        for n in range(1_000_000):
            pipe.write(f"{some[n % len(some)]} {n}\n")
            if n % 65_536 == 0 and n:
                sizes.append(resident(process))
    assert process.wait() == 0
    print([f"{size / 1e6:.0f} MB" for size in sizes])
    assert bert_jax.open_vectors(tmp_path / "out").shape == (1_000_000, 8)
    # The first parts bring in the programs that are compiled for new lengths.
    assert max(sizes[5:]) - sizes[4] < 20e6
