"""The legs of an index side by side, on documents and queries with judgements."""

import json
import random

import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.beir import read_beir
from bert_jax.metrics import retrieval
from bert_jax.report import evaluate_index
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from tests.support.indexes import QueryEncoder, change_index, random_document


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Forty documents, and twelve queries of words of one of them."""
    monkeypatch.setattr(Index, "encoder", QueryEncoder)
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


def test_each_leg_is_scored_by_the_documents_it_finds(folder, capsys):
    main(
        [
            "evaluate",
            "--index",
            str(folder / "index"),
            "--data",
            str(folder),
            "--report",
            str(folder / "r"),
            "--json",
        ]
    )
    found = json.loads(capsys.readouterr().out)
    assert [*found["ways"]] == ["keywords", "vectors", "fusion"] and len(found["differences"]) == 3
    judged, index = read_beir(folder), Index.open(folder / "index")
    for name, way in found["ways"].items():
        asked = [name] if name != "fusion" else None
        hits = [index.search(query, 300, asked) for query in judged.queries.values()]
        lists = [list(dict.fromkeys(hit.id for hit in of_query)) for of_query in hits]
        assert any(len(ids) < len(some) for ids, some in zip(lists, hits, strict=True)), (
            "or none has two passages"
        )
        scores = retrieval.ranking_metrics(lists, [*judged.relevant.values()]).scores
        assert {name: x["value"] for name, x in way["metrics"].items()} == pytest.approx(scores)
    page = (folder / "r/report.md").read_text()
    assert "## Better with keywords than with vectors" in page and "## Queries that all miss" in page
    assert (folder / "r/recall.png").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--index", "i", "--skip-bad"], "--skip-bad"),
        (["--index", "i", "--text", "a"], "--text"),
        (["--model", "m", "--embedder", "e"], "--embedder"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused(flags, message, capsys):
    assert main(["evaluate", "--data", "d", *flags]) == 1
    assert message in capsys.readouterr().err


def test_documents_beyond_the_folder_keep_their_places(folder):
    queries = read_beir(folder).queries
    change_index(folder / "index", [Document(f"x{name}", "", text) for name, text in queries.items()])
    for way in evaluate_index.measure_index(
        evaluate_index.IndexEvalConfig(str(folder / "index"), str(folder))
    ).methods:
        scores, places = way.sums.scores, way.search.first_ranks
        assert [way.search.recall.scores[str(cut)] for cut in (1, 10, 100)] == pytest.approx(
            [scores[f"recall@{cut}"] for cut in (1, 10, 100)]
        )
        assert np.where(places <= 10, 1 / places, 0).mean() == pytest.approx(scores["mrr@10"])
        firsts = [way.search.top_document(n) for n in range(len(queries))]
        assert any(first.endswith(": (not in the folder)") for first in firsts)


def test_documents_that_the_index_lacks_are_said(folder, tmp_path):
    change_index(folder / "index", remove=["d20"])
    assert evaluate_index.measure_index(
        evaluate_index.IndexEvalConfig(str(folder / "index"), str(folder))
    ).notes == ['1 of 13 relevant documents are not in the index (the first: "d20")']
    change_index(tmp_path / "other", [random_document("x", random.Random(0))])
    with pytest.raises(BertJaxError, match='"d0"'):
        evaluate_index.measure_index(evaluate_index.IndexEvalConfig(str(tmp_path / "other"), str(folder)))
