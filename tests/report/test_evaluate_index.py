"""The legs of an index side by side, on documents and queries with judgements."""

import json
import random
from itertools import combinations

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.beir import read_beir
from bert_jax.inference import reranker
from bert_jax.metrics import retrieval
from bert_jax.report import evaluate_index
from bert_jax.report.evaluate_index import IndexEvalConfig, measure_index
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from tests.support.indexes import ENCODERS, change_index, random_document
from tests.support.small_models import write_model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Forty documents, and twelve queries of words of one of them."""
    monkeypatch.setattr(Index, "encoder_of", lambda index, rows: ENCODERS[rows])
    rng = random.Random(3)
    documents = [random_document(f"d{n}", rng) for n in range(40)]
    change_index(tmp_path / "index", documents)
    rows = [{"_id": one.id, "text": one.text} for one in documents]
    queries = [{"_id": f"q{n}", "text": " ".join(documents[n].text.split()[:3])} for n in range(12)]
    for name, some in (("corpus", rows), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(12)) + "q0\td20\t2\n"
    (tmp_path / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return tmp_path


@pytest.mark.slow
def test_each_leg_is_scored_by_the_documents_it_finds(folder, capsys):
    flags = ["--index", folder / "index", "--data", folder, "--report", folder / "r", "--json"]
    assert main(["evaluate", *map(str, flags)]) == 0
    found = json.loads(capsys.readouterr().out)
    alone = ["keywords", "vectors", "sparse", "late_interaction"]
    fused = [" + ".join(some) for size in (2, 3) for some in combinations(alone, size)]
    assert [*found["ways"]] == [*alone, *fused, "fusion"] and "vectors + late_interaction" in fused
    assert len(found["differences"]) == 105
    judged, index = read_beir(folder), Index.open(folder / "index")
    for name, way in found["ways"].items():
        asked = name.split(" + ") if name != "fusion" else None
        hits = [index.search(query, 300, asked) for query in judged.queries.values()]
        lists = [list(dict.fromkeys(hit.id for hit in of_query)) for of_query in hits]
        assert any(len(ids) < len(some) for ids, some in zip(lists, hits, strict=True)), (
            "or none has two passages"
        )
        scores = retrieval.ranking_metrics(lists, [*judged.relevant.values()]).scores
        assert {name: x["value"] for name, x in way["metrics"].items()} == pytest.approx(scores)
    page = (folder / "r/report.md").read_text()
    assert "## Better with keywords than with vectors" in page and "## Queries that all miss" in page
    assert (folder / "r/recall.png").is_file() and (folder / "r/quality.png").is_file()
    from_python = bert_jax.evaluate_index(index, folder)
    for of_way in (*found["ways"].values(), *from_python["ways"].values()):
        assert of_way.pop("milliseconds")["median"] > 0
    assert from_python == found


@pytest.mark.slow
def test_differences_have_a_heading_if_there_are_any(folder, capsys):
    """An index without a model has keywords alone, which differ from nothing."""
    assert main(["index", str(folder / "corpus.jsonl"), "--output", str(folder / "words")]) == 0
    for name, ways in (("words", 1), ("index", 15)):
        capsys.readouterr()
        assert main(["evaluate", "--index", str(folder / name), "--data", str(folder)]) == 0
        printed = capsys.readouterr().out
        assert printed.count("  keywords ") and printed.count(" - keywords: ") == ways - 1, name
        assert printed.count("  differences of ndcg@10") == (ways > 1), name


@pytest.mark.slow
def test_a_loaded_reranker_is_measured_as_its_directory(folder, monkeypatch):
    write_model(folder / "judge", heads=("classify",), labels=("LABEL_0",))

    def rank_by_length(model, query, documents, **_):
        order = sorted(range(len(documents)), key=lambda n: len(documents[n]))
        return [(n, 1 / (1 + len(documents[n]))) for n in order]

    monkeypatch.setattr(reranker, "rank_documents", rank_by_length)
    calls, measured = [], []
    monkeypatch.setattr(evaluate_index, "write_index_report", lambda *given: calls.append(given[-1]))
    for judge in (folder / "judge", reranker.Reranker.load(folder / "judge")):
        given = {"reranker": judge, "rerank_top": 7, "report": str(folder / "report")}
        measured.append(bert_jax.evaluate_index(folder / "index", folder, **given))
        written = "reranker" if calls[1:] else repr(str(judge))
        assert calls[-1] == (
            f"bert_jax.evaluate_index('{folder}/index', '{folder}', reranker={written}, "
            f"report='{folder}/report', rerank_top=7)"
        )
        assert measured[-1]["rerank_top"] == 7 and [*measured[-1]["ways"]][-1] == "reranked"
    assert [of_one["reranker"] for of_one in measured] == [str(folder / "judge"), "reranker"]
    first, second = (of_one["ways"]["reranked"]["metrics"] for of_one in measured)
    assert first == second != measured[0]["ways"]["fusion"]["metrics"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--index", "i", "--skip-bad"], "--skip-bad"),
        (["--index", "i", "--text", "a"], "--text"),
        (["--index", "i", "--long-texts", "windows"], "--long-texts"),
        (["--index", "i", "--rerank-top", "5"], "--rerank-top is for --rerank"),
        (["--model", "m", "--embedder", "e"], "--embedder"),
        (["--model", "m", "--rerank-top", "5"], "--rerank-top"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(flags, message, capsys):
    assert main(["evaluate", "--data", "d", *flags]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_documents_beyond_the_folder_keep_their_places(folder):
    queries = read_beir(folder).queries
    change_index(folder / "index", [Document(f"x{name}", "", text) for name, text in queries.items()])
    for way in measure_index(Index.open(folder / "index"), IndexEvalConfig(folder)).methods:
        scores, places = way.sums.scores, way.search.first_ranks
        assert [way.search.recall.scores[str(cut)] for cut in (1, 10, 100)] == pytest.approx(
            [scores[f"recall@{cut}"] for cut in (1, 10, 100)]
        )
        assert np.where(places <= 10, 1 / places, 0).mean() == pytest.approx(scores["mrr@10"])
        firsts = [way.search.top_document(n) for n in range(len(queries))]
        # The sparse weights here favour long documents, and the new ones are short.
        assert any(first.endswith(": (not in the folder)") for first in firsts) or "sparse" in way.name


@pytest.mark.slow
def test_documents_that_the_index_lacks_are_said(folder, tmp_path):
    change_index(folder / "index", remove=["d20"])
    measured = measure_index(Index.open(folder / "index"), IndexEvalConfig(folder))
    assert measured.notes == [
        f'1 of 13 relevant documents are not in the index {folder}/index (the first: "d20"), and count as not found'
    ]
    change_index(folder / "index", [random_document("d20", random.Random(20))])
    (folder / "qrels.tsv").open("a").write("q1\tgone\t3\nq2\tnowhere\t0\n")
    compared = measure_index(Index.open(folder / "index"), IndexEvalConfig(folder))
    assert "1 of 14 relevant documents" in compared.notes[0] and '"gone"' in compared.notes[0]
    for way in compared.methods:
        assert way.sums.scores["recall@100"] == pytest.approx(23 / 24)  # of q1, one of two is nowhere
        assert way.search.recall.scores["100"] == pytest.approx(23 / 24)
    change_index(tmp_path / "other", [random_document("x", random.Random(0))])
    with pytest.raises(BertJaxError, match='"d0"'):
        measure_index(Index.open(tmp_path / "other"), IndexEvalConfig(folder))
