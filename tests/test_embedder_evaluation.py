"""`evaluate` of an embedder: on documents and queries, and on pairs with scores."""

import json

import numpy as np
import pytest
from scipy import stats

from bert_jax.command.main import main
from bert_jax.data.examples.judged import read_judged
from bert_jax.errors import BertJaxError
from bert_jax.inference.model import load
from test_embed_task import table
from test_finetune import model, texts  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture
def folder(tmp_path):
    """Documents and queries of the same words; each query has two relevant documents."""
    words = texts(30, (6, 6), 1)
    corpus = [{"_id": f"d{n}", "title": text[:5], "text": text} for n, text in enumerate(words)]
    queries = [{"_id": f"q{n}", "text": " ".join(words[n].split()[:3])} for n in range(12)]
    place = tmp_path / "beir"
    (place / "qrels").mkdir(parents=True)
    table(place / "corpus.jsonl", [*corpus, {"_id": "empty", "title": "", "text": ""}])
    table(place / "queries.jsonl", queries)
    judged = [(f"q{n}", f"d{n}", 2) for n in range(10)] + [(f"q{n}", f"d{n + 1}", 1) for n in range(10)]
    write(place / "qrels/test.tsv", judged)
    return place


def write(path, judged) -> None:
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, line)) for line in judged)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def evaluated(capsys, *words) -> str:
    assert main(["evaluate", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_the_documents_of_queries_are_found_and_judged(folder, model, capsys):  # noqa: F811
    out = json.loads(evaluated(capsys, "--model", model, "--data", folder, "--json"))
    judged = read_judged(folder)
    assert len(judged.queries) == 10 and len(judged.documents) == 31
    ours = load(model)
    documents = ours.embed(list(judged.documents.values()))
    ideal, ndcg = 2 / np.log2(2) + 1 / np.log2(3), []
    for name, text in judged.queries.items():
        order = np.argsort(-(documents @ ours.embed(text)), kind="stable")[:10]
        grades = [judged.relevant[name].get(list(judged.documents)[i], 0) for i in order]
        ndcg.append(sum(grade / np.log2(place + 2) for place, grade in enumerate(grades)) / ideal)
    assert out["metrics"]["ndcg@10"]["value"] == pytest.approx(np.mean(ndcg), abs=1e-6)
    lines = evaluated(capsys, "--compare", model, model, "--data", folder, "--dimensions", 8)
    assert "10 queries and 31 documents" in lines and "+0.0000   +0.0000 to +0.0000" in lines


def test_pairs_with_scores_are_correlated(model, tmp_path, capsys):  # noqa: F811
    rows = [
        {"a": a, "b": b, "score": n % 7}
        for n, (a, b) in enumerate(zip(texts(40), texts(40, seed=1), strict=True))
    ]
    data = table(tmp_path / "pairs.jsonl", rows)
    out = json.loads(evaluated(capsys, "--model", model, "--data", data, "--json"))
    ours = load(model)
    likeness = [ours.similarity(row["a"], row["b"])[0, 0] for row in rows]
    expected = stats.spearmanr(likeness, [row["score"] for row in rows]).statistic
    assert out["metrics"]["spearman"]["value"] == pytest.approx(expected, abs=1e-6)
    few = ours.embed(["w30 w31", "w32"], dimensions=8)
    whole = ours.embed(["w30 w31", "w32"], normalize=False)[:, :8]
    np.testing.assert_allclose(few, whole / np.linalg.norm(whole, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        ([("q0", "d99", 1)], 'row 2 names "d99", which corpus.jsonl has not'),
        ([("q99", "d0", 1)], 'row 2 names "q99", which queries.jsonl has not'),
        ([("q0", "d0", 0.5)], "row 2 has the grade 0.5; grades are whole numbers"),
        ([("q0", "d0", 0)], "says of no document that it is relevant"),
    ],
)
def test_judgements_that_cannot_be_are_refused(judged, message, folder):
    write(folder / "qrels/test.tsv", judged)
    with pytest.raises(BertJaxError, match=message):
        read_judged(folder)


def test_the_split_is_chosen_and_ids_must_differ(folder):
    write(folder / "qrels/dev.tsv", [("q3", "d4", 1)])
    assert list(read_judged(folder, "dev").queries) == ["q3"]
    with pytest.raises(BertJaxError, match="judgements of dev, test; choose one, --split NAME"):
        read_judged(folder)
    with pytest.raises(BertJaxError, match=r'has no "tset.tsv"; did you mean "test"\?'):
        read_judged(folder, "tset")
    table(folder / "queries.jsonl", [{"_id": "q3", "text": "a"}, {"_id": "q3", "text": "b"}])
    with pytest.raises(BertJaxError, match='row 2 has the id "q3" of .*row 1; ids must differ'):
        read_judged(folder, "dev")


@pytest.mark.parametrize("flags", [["--report", "x"], ["--foreign", "x"]])
def test_what_is_for_predictions_alone_is_refused(flags, folder, model, capsys):  # noqa: F811
    assert main(["evaluate", "--model", str(model), "--data", str(folder), *flags]) == 1
    assert "are for predictions; leave them out" in capsys.readouterr().err
