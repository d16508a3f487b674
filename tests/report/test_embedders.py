"""`evaluate` of an embedder: on documents and queries, pairs with scores, parallel texts."""

import json
import shutil

import numpy as np
import pytest
from scipy import stats

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.beir import read_beir
from bert_jax.hub import sentence_transformers
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS
from bert_jax.report.embedders.bitext import Translations
from bert_jax.report.embedders.evaluate_embedders import read_evaluation_data
from bert_jax.report.embedders.evaluated_embedder import BM25, EmbedderEvalConfig, EvaluatedEmbedder
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts


@pytest.fixture
def folder(tmp_path):
    """Documents and queries of the same words; each query has two relevant documents."""
    words = random_texts(30, (6, 6), 1)
    corpus = [{"_id": f"d{n}", "title": text[:5], "text": text} for n, text in enumerate(words)]
    queries = [{"_id": f"q{n}", "text": " ".join(words[n].split()[:3])} for n in range(12)]
    place = tmp_path / "beir"
    (place / "qrels").mkdir(parents=True)
    write_jsonl(place / "corpus.jsonl", [*corpus, {"_id": "empty", "title": "", "text": ""}])
    write_jsonl(place / "queries.jsonl", queries)
    judged = [(f"q{n}", f"d{n}", 2) for n in range(10)] + [(f"q{n}", f"d{n + 1}", 1) for n in range(10)]
    write(place / "qrels/test.tsv", judged)
    return place


def write(path, judged) -> None:
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, line)) for line in judged)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def evaluated(capsys, *words) -> str:
    assert main(["evaluate", *map(str, words)]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_the_documents_of_queries_are_found_and_judged(folder, encoder_path, capsys):
    out = json.loads(evaluated(capsys, "--model", encoder_path, "--data", folder, "--json"))
    judged = read_beir(folder)
    assert len(judged.queries) == 10 and len(judged.documents) == 31
    ours = Embedder.load(encoder_path, pooling="mean")
    documents = ours.encode(list(judged.documents.values()))
    ideal, ndcg = 2 / np.log2(2) + 1 / np.log2(3), []
    for name, text in judged.queries.items():
        order = np.argsort(-(documents @ ours.encode(text)), kind="stable")[:10]
        grades = [judged.relevant[name].get(list(judged.documents)[i], 0) for i in order]
        ndcg.append(sum(grade / np.log2(place + 2) for place, grade in enumerate(grades)) / ideal)
    assert out["metrics"]["ndcg@10"]["value"] == pytest.approx(np.mean(ndcg), abs=1e-6)
    assert out["recall_by_depth"][9] == pytest.approx(out["metrics"]["recall@10"]["value"])
    assert "1 of 31 documents are empty" in out["notes"]
    lines = evaluated(capsys, "--compare", encoder_path, encoder_path, "--data", folder, "--dimensions", 8)
    assert "10 queries and 31 documents" in lines and "+0.0000   +0.0000 to +0.0000" in lines


def test_bm25_finds_nothing_by_stop_words_and_other_forms_of_words_by_their_stems():
    queries = ["To be or not to be", "wings"]
    documents = ["It was one of the birds that had a wing.", "He is on the winding road that they built."]
    nothing, found = BM25().nearest(queries, documents, ["a", "b"])
    assert [len(some) for some in nothing] == [0, 0] and list(found[0]) == [0]


@pytest.mark.slow
def test_bm25_stands_beside_an_embedder(folder, encoder_path, tmp_path, capsys):
    report = tmp_path / "report"
    words = ["--compare", "bm25", encoder_path, "--data", folder, "--report", report]
    assert f"A bm25, B {encoder_path}, on 10 queries" in evaluated(capsys, *words)
    page = (report / "report.md").read_text(encoding="utf-8")
    assert {path.name for path in report.iterdir()} == {"report.md", "recall.png", "cosines_b.png"}
    out = json.loads(evaluated(capsys, *words[:-2], "--json"))
    values = [side["metrics"]["ndcg@10"]["value"] for side in out["models"]]
    assert f"| ndcg@10 | {values[0]:.4f} | {values[1]:.4f} | {values[1] - values[0]:+.4f} |" in page


@pytest.mark.slow
def test_a_report_shows_the_worst_queries_and_what_was_truncated(folder, encoder_path, tmp_path, capsys):
    with open(folder / "corpus.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"_id": "long", "text": "w30 " * 999}) + "\n")
    report = tmp_path / "report"
    out = json.loads(
        evaluated(capsys, "--model", encoder_path, "--data", folder, "--report", report, "--json")
    )
    assert any(note.startswith("1 of 32 documents (number 32) is longer than") for note in out["notes"])
    assert len(out["worst"]) == 10 and out["worst"] == sorted(out["worst"], key=lambda row: row["ndcg@10"])
    page = (report / "report.md").read_text(encoding="utf-8")
    assert all(
        f"| {row['query']} | {row['relevant document']} | {row['its place']} |" in page
        for row in out["worst"]
    )
    assert {path.name for path in report.iterdir()} == {"report.md", "recall.png", "cosines.png"}
    for note in out["notes"]:
        assert f"- {note}" in page


@pytest.mark.slow
def test_translations_are_found_both_ways(encoder_path, tmp_path, capsys):
    first, second = random_texts(20), random_texts(20, seed=1)
    data = write_jsonl(tmp_path / "x.jsonl", [{"en": a, "de": b} for a, b in zip(first, second, strict=True)])
    out = json.loads(evaluated(capsys, "--model", encoder_path, "--data", data, "--json"))
    cosines = Embedder.load(encoder_path, pooling="mean").similarity(first, second)
    for direction, found in (("forward", cosines.argmax(1)), ("backward", cosines.argmax(0))):
        right = found == np.arange(20)
        f1 = [2 * right[n] / (1 + (found == n).sum()) for n in range(20)]
        assert 0 < right.mean() < 1
        for name, expected in (("accuracy", right.mean()), ("f1", np.mean(f1))):
            assert out["metrics"][f"{name}_{direction}"]["value"] == pytest.approx(expected)


def test_any_translation_of_a_text_is_right():
    target = Translations(["a", "a", "b"], ["x", "y", "z"])
    search = target.rank_translations(
        ["1", "2", "3"], np.eye(2)[[0, 0, 1]], np.array([[1, 0], [0.6, 0.8], [0, 1]]), ""
    )
    assert target.score_rows(search).tolist() == [[1, 1]] * 3 and search.first_ranks.tolist() == [1, 1, 1]


@pytest.mark.slow
def test_pairs_with_scores_are_correlated(encoder_path, tmp_path, capsys):
    rows = [
        {"a": a, "b": b, "score": n % 7}
        for n, (a, b) in enumerate(zip(random_texts(40), random_texts(40, seed=1), strict=True))
    ]
    data = write_jsonl(tmp_path / "pairs.jsonl", rows)
    out = json.loads(evaluated(capsys, "--model", encoder_path, "--data", data, "--json"))
    ours = Embedder.load(encoder_path, pooling="mean")
    likeness = [ours.similarity(row["a"], row["b"])[0, 0] for row in rows]
    expected = stats.spearmanr(likeness, [row["score"] for row in rows]).statistic
    assert out["metrics"]["spearman"]["value"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        ([("q99", "d0", 1)], 'row 2.*"q99".*queries.jsonl'),
        ([("q0", "d0", 0.5)], "row 2.*0.5"),
        ([("q0", "d0", 0)], "relevant"),
        ([("q0", "d0", 1), ("q0", "d0", 1), ("q0", "d0", 0)], "row 4.* 0 .*row 2.* 1"),
    ],
)
def test_judgements_that_cannot_be_are_refused(judged, message, folder):
    write(folder / "qrels/test.tsv", judged)
    with pytest.raises(BertJaxError, match=message):
        read_beir(folder)
    with pytest.raises(BertJaxError, match="qrels.*corpus.jsonl"):
        read_beir(folder / "qrels")


@pytest.mark.slow
def test_a_relevant_document_that_is_nowhere_counts_as_missed(folder, encoder_path, capsys):
    whole = json.loads(evaluated(capsys, "--model", encoder_path, "--data", folder, "--json"))
    with open(folder / "qrels/test.tsv", "a", encoding="utf-8") as file:
        file.write("q0\td99\t3\nq1\td98\t0\n")
    out = json.loads(evaluated(capsys, "--model", encoder_path, "--data", folder, "--json"))
    assert any(
        '1 of 12 relevant documents are not in corpus.jsonl (the first: "d99")' in n for n in out["notes"]
    )
    found = [side["metrics"]["recall@100"]["value"] for side in (whole, out)]
    assert found == pytest.approx([1, (9 + 2 / 3) / 10])
    assert out["metrics"]["ndcg@10"]["value"] < whole["metrics"]["ndcg@10"]["value"]
    write(folder / "qrels/test.tsv", [("q0", "d99", 1)])
    assert main(["evaluate", "--model", str(encoder_path), "--data", str(folder)]) == 1
    assert 'corpus.jsonl has none of the 1 relevant documents, such as "d99"' in capsys.readouterr().err


@pytest.mark.slow
def test_an_index_has_the_vectors_of_documents_that_are_one_passage(
    folder, encoder_path, capsys, monkeypatch
):
    with open(folder / "corpus.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"_id": "long", "text": "w30 w31. " * 40}) + "\n")
    index, embedder = str(folder / "index"), str(encoder_path)
    built = ["index", str(folder), "--output", index, "--model", embedder, "--passage-tokens", "24"]
    assert main(built) == 0
    encoded = []
    encode = EvaluatedEmbedder.encode_texts

    def counting(self, texts, noun="texts", prompts=()):
        encoded.append((type(self).__name__, noun, len(texts)))
        return encode(self, texts, noun, prompts)

    monkeypatch.setattr(EvaluatedEmbedder, "encode_texts", counting)
    plain = json.loads(evaluated(capsys, "--model", embedder, "--data", folder, "--json"))
    both = json.loads(evaluated(capsys, "--compare", index, embedder, "--data", folder, "--json"))
    measured = bert_jax.compare(index, bert_jax.Index.open(index), folder)
    for side in (*both["models"], *measured["models"]):
        for name, value in side["metrics"].items():
            assert value["value"] == pytest.approx(plain["metrics"][name]["value"], abs=1e-6)
    assert both["models"][0]["notes"][0] == "30 of 32 vectors of documents come from the index"
    documents = [how for how in encoded if how[1] == "documents"]
    assert documents == [
        ("EvaluatedEmbedder", "documents", 32), ("EvaluatedIndex", "documents", 2),
        ("EvaluatedEmbedder", "documents", 32), *[("EvaluatedIndex", "documents", 2)] * 2,
    ]  # fmt: skip


def test_the_split_is_chosen_and_ids_must_differ(folder):
    write(folder / "qrels/dev.tsv", [("q3", "d4", 1)])
    assert list(read_beir(folder, "dev").queries) == ["q3"]
    for split, message in (("", "--split"), ("tset", 'did you mean "test"')):
        with pytest.raises(BertJaxError, match=message):
            read_beir(folder, split)
    write_jsonl(folder / "queries.jsonl", [{"_id": "q3", "text": "a"}, {"_id": "q3", "text": "b"}])
    with pytest.raises(BertJaxError, match='row 2.*"q3".*row 1'):
        read_beir(folder, "dev")


def test_what_is_for_predictions_alone_is_refused(folder, encoder_path, capsys):
    assert main(["evaluate", "--model", str(encoder_path), "--data", str(folder), "--out-of-scope", "x"]) == 1
    assert "predictions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a", "label": "x"}] * 2, "texts in a row: 1"),
        ([{"text": t, "kind": "x"} for t in "abc"], "1 values"),
        ([{"a": "a", "b": "b", "c": "c"}], "texts in a row: 3"),
    ],
)
def test_tables_that_measure_nothing_are_refused(rows, message, tmp_path):
    with pytest.raises(BertJaxError, match=message):
        read_evaluation_data(EmbedderEvalConfig(write_jsonl(tmp_path / "rows.jsonl", rows)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["document", "passage"])
def test_documents_are_embedded_with_their_prompt(name, encoder_path, tmp_path):
    prompted = shutil.copytree(encoder_path, tmp_path / "model")
    embedder = sentence_transformers.EmbedderSettings(prompts={"query": "w1 ", name: "w2 "})
    sentence_transformers.write_embedder(prompted, embedder, 32)
    vectors, _ = EvaluatedEmbedder(prompted, EmbedderEvalConfig("")).encode_texts(
        ["w3 w4"], "documents", DOCUMENT_PROMPTS
    )
    assert np.array_equal(vectors, Embedder.load(prompted).encode(["w3 w4"], name, normalize_embeddings=True))
