"""The verbs index and search: what an index holds, what it leaves out and says so, and models that fit."""

import json
import os
import re
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.search.index_manifest import IndexManifest
from bert_jax.search.segment import search_text
from tests.support.document_files import read_documents
from tests.support.indexes import file_contents
from tests.support.small_models import write_model
from tests.support.tables import write_jsonl


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path, heads=("mlm",))
    return path


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a verb in a folder; what it printed, and what it said on standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*words, code: int = 0, notices: int = 0) -> tuple[str, str]:
        assert main([str(word) for word in words]) == code
        shown = capsys.readouterr()
        assert code == 0 or shown.err.count("\n") == 1 + notices
        return shown.out, shown.err

    return call


def test_an_index_of_keywords_alone(run, tmp_path):
    (tmp_path / "docs").mkdir()
    for n in range(5):
        (tmp_path / f"docs/{n}\n.txt").write_text(f"Cats\x1b[31m are {'very ' * n}nice.")
    (tmp_path / "ids.txt").write_text("a\n\nb\n")
    output = run("index", "docs", "--output", "index")[1]
    assert output.startswith(
        "no --model, so documents are found by keywords alone\n5 documents in 5 passages in index"
    )
    out = run("search", "index", "very nice", "--top-k", 2, "--explain")[0].splitlines()
    assert (
        out[0].endswith("  4\\n.txt, characters 0-39")
        and "keywords: rank 1" in out[1]
        and "very 0." in out[1]
    )
    assert out[2].strip() == "Cats\\x1b[31m are very very very very nice."
    assert (
        "no vectors because it was built without --model"
        in run("search", "index", "a", "--retrievers", "vectors", code=1)[1]
    )
    long = f"{'Birds fly. ' * 60}Fish swim."
    (tmp_path / "long.txt").write_text(long)
    run("index", "long.txt", "--output", "long")
    excerpt = run("search", "long", "fish")[0].splitlines()[1].strip()
    assert excerpt.startswith("… ") and excerpt.endswith("Fish swim.") and 200 < len(excerpt) <= 240
    assert run("search", "long", "fish", "--full")[0].splitlines()[1].strip() == long
    assert 'no document "a"' in run("index", "--output", "index", "--remove", "@ids.txt", code=1)[1]
    for flags in ([], ["--compact"]):
        assert "0 new, 0 changed, 5 unchanged" in run("index", "docs", "--output", "index", *flags)[1]
    (tmp_path / "docs/0\n.txt").write_text("Dogs.")
    assert "0 new, 1 changed, 4 unchanged" in run("index", "docs", "--output", "index")[1]
    assert "4 documents" in run("index", "--output", "index", "--remove", "1\n.txt", "--compact")[1]
    (tmp_path / "queries.txt").write_text("dogs\n \nfish\n")
    out, output = run("search", "index", "--queries", "queries.txt", "--json")
    lines = out.splitlines()
    assert output == "1 blank query of queries.txt left out\n"
    assert [[hit["id"] for hit in json.loads(line)["hits"]] for line in lines] == [["0\n.txt"], []]
    assert json.loads(run("search", "index", "dogs\udcff", "--json")[0])["query"] == "dogs\ufffd"
    (tmp_path / "blank.txt").write_text("\n \n")
    assert "files of an index of 4 documents; their hashes match" in run("check", "index")[0]
    for words, message in (
        (
            ["index", "docs", "--output", "index", "--passage-tokens", 99],
            "was built with --passage-tokens 256, not 99",
        ),
        (["index", "docs", "--output", "other", "--quantize", "binary"], "apply to vectors; add --model DIR"),
        (["index", "--output", "index"], "nothing to do: name DOCS to add"),
        (["index", "--output", "docs", "--compact"], "docs is not an index: it has no index.json"),
        (["index", "absent", "--output", "index"], "no file at absent"),
        (["search", "docs", "cat"], "docs is not an index: it has no index.json"),
        (["search", "index"], "give a query, or --queries FILE"),
        (["search", "index", "--queries", "blank.txt"], "blank.txt holds no query"),
        (["index", "--output", "index", "--remove", "@blank.txt"], "--remove @blank.txt names no id"),
        (["search", "index", "cat", "--rerank-top", 5], "--rerank-top is for --rerank"),
        (["search", "index", "x", "--weights", "a"], "--weights a is not NAME=WEIGHT"),
    ):
        assert message in run(*words, code=1)[1]
    for flags in ([], ["--replace"]):
        output = run("index", "blank.txt", "--output", "index", *flags, code=1, notices=1)[1]
        assert "blank.txt: no documents that can be read" in output
    assert not (tmp_path / "other").exists()


def test_a_dry_run_counts_and_estimates_and_writes_nothing(run, tmp_path):
    rows = [
        {"id": n, "title": f"t{n}", "text": f"Cats w{n} land on w{n % 7} feet. " * (n % 9)}
        for n in range(900)
    ]
    write_jsonl(tmp_path / "docs.jsonl", rows)
    words = ["index", "docs.jsonl", "--output", "index", "--passage-tokens", 20]
    output = run(*words, "--dry-run")[1].splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["docs.jsonl"]
    assert output[1].startswith("900 new, 0 changed, 0 unchanged; ") and "0 to encode" in output[1]
    run(*words)
    size = sum(path.stat().st_size for path in (tmp_path / "index/segments").rglob("*.npy"))
    counts = json.loads(run("info", "index", "--json")[0])
    assert f"; {counts['passages']:,} passages to add" in output[1]
    estimate = float(re.search(r"and ([\d.]+) MB; nothing was written to index", output[1])[1])
    assert estimate == pytest.approx(size / 1e6, rel=0.35)
    before = file_contents(tmp_path / "index")
    write_jsonl(
        tmp_path / "docs.jsonl", [rows[0] | {"text": "Dogs bark."}, *rows[1:800], {"id": "x", "text": " "}]
    )
    output = run(*words, "--dry-run", "--remove-missing")[1]
    assert output.startswith("0 new, 1 changed, 799 unchanged, 100 removed; 1 passage to add")
    assert "1 document without text left out" in output and file_contents(tmp_path / "index") == before
    for flags in (["--compact"], ["--export", "a.parquet"]):
        assert "--dry-run" in run(*words, "--dry-run", *flags, code=1)[1] or "--export" in flags
    assert (
        "--dry-run is for adding DOCS"
        in run("index", "--output", "index", "--dry-run", "--remove", "1", code=1)[1]
    )


@pytest.mark.slow
def test_a_dry_run_counts_what_is_to_be_encoded(run, model, tmp_path):
    write_jsonl(
        tmp_path / "docs.jsonl", [{"text": f"the cat sat {'on the mat ' * (n % 3)}"} for n in range(9)]
    )
    words = ["index", "docs.jsonl", "--output", "index"]
    assert "; 9 passages to add, 3 to encode; about " in run(*words, "--model", model, "--dry-run")[1]
    run(*words, "--model", model)
    write_jsonl(
        tmp_path / "docs.jsonl", [{"text": "the mat"}, *[{"text": f"the cat sat {'on the mat ' * 2}"}] * 4]
    )
    assert "1 to encode" in run(*words, "--dry-run")[1]


def test_a_table_without_a_column_of_texts_is_left_out_of_a_folder_and_named(run, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/prices.csv").write_text("item,price\ncup,3\n")
    (tmp_path / "docs/rows.csv").write_text("text\nThe cat sat.\n")
    output = run("index", "docs", "--output", "index")[1]
    assert "docs/prices.csv" in output
    assert "1 document in 1 passage in index" in output
    for given in (["docs/prices.csv"], ["docs/*.csv", "docs/prices.csv"]):
        with pytest.raises(BertJaxError, match="columns: item"):
            read_documents(*given)
    output = run("index", "docs", "--text", "item", "--output", "items")[1]
    assert "docs/rows.csv" in output and "1 document in" in output


def test_documents_that_are_no_longer_among_the_files_are_said_and_removed(run, tmp_path):
    (tmp_path / "docs").mkdir()
    for name in "abc":
        (tmp_path / f"docs/{name}.txt").write_text(f"The cat {name}.")
    (tmp_path / "d.txt").write_text("The dog.")
    run("index", "docs", "--output", "index")
    (tmp_path / "docs/a.txt").unlink()
    again = ["index", f"{tmp_path}/docs", "--output", "index"]
    assert "1 document of the index is not among these files: a.txt; --remove-missing" in run(*again)[1]
    assert "not among" not in run("index", "d.txt", "--output", "index")[1], "it adds to the folder"
    output = run(*again)[1]
    assert "2 documents" in output and "d.txt)" in output
    output = run(*again, "--remove-missing", code=1)[1]
    assert f"--remove-missing would also remove the documents of {tmp_path}/d.txt; name all sources" in output
    (tmp_path / "docs/b.txt").unlink()
    output = run("index", "docs", "d.txt", "--output", "index", "--remove-missing")[1]
    assert "2 documents in 2 passages" in output and "2 removed" in output and "not among" not in output
    assert run("info", "index", "--ids")[0].splitlines() == ["c.txt", "d.txt"]
    shown = run("info", "index")[0]
    assert "256" in shown and "keywords" in shown and "c.txt, d.txt" in shown
    assert json.loads(run("info", "index", "--json")[0])["sources"] == [
        f"{tmp_path}/docs",
        f"{tmp_path}/d.txt",
    ]
    assert (
        "every document that is not among DOCS; give DOCS"
        in run("index", "--output", "index", "--remove-missing", "--compact", code=1)[1]
    )


def test_documents_of_a_glob_and_of_the_hub_are_not_taken_for_missing(run, tmp_path):
    for name in "ad":
        (tmp_path / f"{name}.txt").write_text(f"The cat {name}.")
    run("index", "[a-c].txt", "--output", "index")
    run("index", "d.txt", "--output", "index")
    output = run("index", "d.txt", "--output", "index", "--remove-missing", code=1)[1]
    assert f"would also remove the documents of {tmp_path}/[a-c].txt; name all sources" in output
    (tmp_path / "a.txt").unlink()
    assert "1 removed" in run("index", "d.txt", "--output", "index", "--remove-missing")[1]
    hub = "hf://datasets/owner/name/*.jsonl"
    assert IndexManifest(None, 12, 3, sources=(hub, "/absent/*.txt")).other_sources([]) == [hub]


@pytest.mark.slow
def test_a_reranker_shows_its_scores_and_says_once_what_it_truncated(run, model, tmp_path):
    write_model(tmp_path / "judge", heads=("classify",), labels=("relevant",))
    for n in range(2):
        (tmp_path / f"{n}.txt").write_text("The cat sat. " + "the mat " * (150 * n))
    run("index", "0.txt", "1.txt", "--output", "index")
    out, output = run("search", "index", "cat", "--rerank", "judge", "--explain")
    scores = [line.split()[1] for line in out.splitlines() if ", characters " in line]
    lines = [line.strip() for line in out.splitlines() if "reranker:" in line]
    assert lines == [f"reranker: rank {n}, score {score}" for n, score in enumerate(scores, 1)] and lines
    shown = [line for line in out.splitlines() if ", characters " in line]
    out = run("search", "index", "cat", "--rerank", "judge", "--rerank-top", 1, "--explain")[0]
    assert len([line for line in out.splitlines() if ", characters " in line]) == len(shown) == 2
    assert out.count("reranker:") == 1
    pairs = [{"query": q, "documents": ["the cat " * 200, "a mat"]} for q in ("cat", "mat")]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    output = run("rerank", "--model", "judge", "--input", "pairs.jsonl", "--output", "out.jsonl")[1]
    assert "2 of 4" in output and output.count("truncated") == 1
    assert "windows" not in output
    refused = f"{model} is not a cross-encoder; `bert-jax train --config rerank` makes one"
    assert refused in run("search", "index", "cat", "--rerank", model, code=1)[1]
    assert refused in run("rerank", "--model", model, "--input", "pairs.jsonl", code=1)[1]
    write_model(tmp_path / "classes", heads=("classify",), labels=("a", "b", "c"))
    refused = "classes gives 3 numbers for a pair of texts, and a cross-encoder gives one (num_labels: 1);"
    assert refused in run("search", "index", "cat", "--rerank", "classes", code=1)[1]
    assert refused in run("rerank", "--model", "classes", "--input", "pairs.jsonl", code=1)[1]
    for top in (0, -1):
        with pytest.raises(BertJaxError, match=f"top_k must be 1 or more, not {top}"):
            bert_jax.Reranker.load("judge").rank("cat", ["a mat", "cats"], top_k=top)
    assert "not both" in run("search", "index", "cat", "--queries", "0.txt", code=1)[1]


def test_an_index_without_documents_is_none(run, tmp_path):
    """A first build that fails leaves nothing, and what has lost all its documents is not searched."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 5}\n')
    (tmp_path / "blank.txt").write_text(" ")
    output = run("index", "docs", "--output", "index", code=1)[1]
    assert output == "bert-jax index: the folder docs holds no files that can be read; name another\n"
    assert main(["index", "blank.txt", "--output", "index"]) == 1
    assert main(["index", "bad.jsonl", "--output", "index"]) == 1
    assert not (tmp_path / "index").exists()
    (tmp_path / "a.txt").write_text("The cat sat.")
    run("index", "a.txt", "--output", "index")
    assert "--remove with DOCS" in run("index", "docs", "--output", "index", "--remove", "a.txt", code=1)[1]
    run("index", "--output", "index", "--remove", "a.txt")
    assert "index holds no documents" in run("search", "index", "cat", code=1)[1]


@pytest.mark.slow
def test_documents_that_are_broken_or_huge_are_found_by_what_can_be_read(run, tmp_path):
    script = b"<script>hidden('</p>')</script><style>hidden {}</style><noscript>hidden</noscript>"
    contents = {
        b"caf\xe9.txt": b"alpha",
        b"latin.html": "<meta charset=latin-1><title>beta</title><p>caf\xe9".encode("latin-1"),
        b"script.html": b"<p>gamma " + script + b" delta<script>hidden, and never closed",
        b"line\nand\ttab.md": b"# Epsilon\n",
        b"huge.txt": b"zeta " * 100_000 + b"x" * 1_000_000 + b" kappa",
        b"control.txt": b"eta\x1b[2J\x07 bell\n",
        b"empty.html": b"<script>hidden</script>",
        b"nothing.txt": b"",
        b"nul.txt": b"theta\0",
    }
    (tmp_path / "docs").mkdir()
    for name, content in contents.items():
        (tmp_path / "docs" / os.fsdecode(name)).write_bytes(content)
    output = run("index", "docs", "--output", "index")[1]
    assert "2 documents without text left out" in output and "latin.html) not entirely UTF-8" in output
    assert "nul.txt) with NUL bytes left out" in output and "6 documents in" in output
    for word, name in {
        "alpha": "caf\ufffd.txt", "beta": "latin.html", "gamma": "script.html", "delta": "script.html",
        "epsilon": "line\nand\ttab.md", "zeta": "huge.txt", "kappa": "huge.txt", "bell": "control.txt",
    }.items():  # fmt: skip
        hits = json.loads(run("search", "index", word, "--json")[0])["hits"]
        assert {hit["id"] for hit in hits} == {name}
    assert not json.loads(run("search", "index", "hidden", "--json")[0])["hits"]
    assert "\x1b" not in run("search", "index", "bell epsilon")[0]
    assert "files of an index of 6 documents; their hashes match" in run("check", "index")[0]
    assert "6 unchanged" in run("index", "docs", "--output", "index")[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*were truncated")
def test_an_index_knows_its_model(run, model, tmp_path):
    """Of a passage no more is cut than fits, and another model, or one in the index's way, is refused."""
    rows = [
        {"id": n, "title": "the mat" * (n % 2), "text": "the cat sat on the mat . " * n} for n in range(1, 7)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(model, tmp_path / "model")
    output = run("index", "rows.jsonl", "--output", "index", "--model", "model", "--quantize", "binary")[1]
    assert "6 documents in" in output and "truncated" not in output and "recall@10 1.000" in output
    index = bert_jax.Index.open(tmp_path / "index")
    (segment,) = index.segments
    embedder = bert_jax.Embedder.load(model, pooling="mean")
    texts = [search_text(*segment.read_passage(n)) for n in range(len(segment.texts))]
    vectors = embedder.encode(texts)
    np.testing.assert_allclose(segment.vectors, vectors, atol=1e-6)
    (first, *_), *_ = index.search(["the cat", "mat"], retrievers=["vectors"])
    assert first.score == pytest.approx(max(vectors @ embedder.encode("the cat")), abs=1e-6)
    assert (
        first.text == next(row for row in rows if str(row["id"]) == first.id)["text"][first.start : first.end]
    )

    write_model(tmp_path / "judge", heads=("classify",), labels=("relevant",))
    ranked = [json.loads(run("search", "index", "cat", "--json", *flags)[0])["hits"] for flags in (
        ["--top-k", 20], ["--rerank", "judge", "--rerank-top", 6],
    )]  # fmt: skip
    texts = [" ".join(filter(None, (hit["title"], hit["text"]))) for hit in ranked[0][:6]]
    order = bert_jax.Reranker.load(tmp_path / "judge").rank("cat", texts)
    assert [(hit["text"], hit["score"]) for hit in ranked[1][:6]] == [
        (ranked[0][one["corpus_id"]]["text"], pytest.approx(one["score"])) for one in order
    ]
    assert ranked[1][6:] == ranked[0][6:10]

    output = run("search", "index", "cat", "--engine", "onnxruntime", "--dtype", "int8", code=1)[1]
    assert (
        "--quantize auto --output OUT` writes it; name OUT with --model, or after the index for `serve`"
        in output
    )
    shutil.copytree(model, tmp_path / "other")
    (tmp_path / "other/config.json").write_text((model / "config.json").read_text() + "\n")
    refused = "other is not the model that index was built with"
    assert refused in run("search", "index", "cat", "--model", "other", code=1)[1]
    assert refused in run("index", "rows.jsonl", "--output", "index", "--model", "other", code=1)[1]
    (tmp_path / "model").rename(tmp_path / "moved")
    assert "is no longer at" in run("search", "index", "cat", code=1)[1]
    assert (
        run("search", "index", "cat", "--model", "moved")[0]
        == run("search", "index", "cat", "--model", model)[0]
    )
    output = run("index", "rows.jsonl", "--output", "moved/index", "--model", "moved", code=1)[1]
    assert "moved/index" in output
    assert (
        "both choose the candidates to rescore"
        in run("index", "--output", "index", "--compact", "--approximate", "hnsw", code=1)[1]
    )
    output = run("index", "--output", "index", "--compact", "--approximate", "hnsw", "--quantize", "none")[1]
    assert "0 passages encoded" in output
