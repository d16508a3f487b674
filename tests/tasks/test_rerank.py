"""Cross-encoders: candidates as tables hold them, training, and what the finished directory gives."""

import json
import random
import re

import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.command.train import start_training
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.candidates import CandidateColumns, add_random_negatives, read_candidates
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.kinds.relevance import Judgement, Relevance
from bert_jax.tasks import load_config as load_task
from bert_jax.tasks.rerank import describe_relevance_scores
from bert_jax.training.log import read_metrics
from tests.support.pretraining_runs import assert_resumes
from tests.support.small_models import SMALL_CONFIG, write_model
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

pytestmark = pytest.mark.usefixtures("shared_steps")

CONFIG = "configs/rerank.py"
TUPLE = {"query": "q", "positive": "a", "negative_1": "b", "negative_2": "c"}
TAUGHT = {"query": "q", "positive": "p", "negatives": ["n", "m"], "scores": [9.1, 2, -3]}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([{"query": "q", "document": "a", "label": 1}, {"query": "r", "document": "b", "label": 0},
          {"query": "q", "document": "c", "label": 0}], [("q", "ac", (1, 0), ()), ("r", "b", (0,), ())]),
        ([TUPLE, TUPLE | {"positive": "d"}], [("q", "abcd", (1, 0, 0, 1), ())]),
        ([TUPLE | {"scores": [3, -1, 0.5]}], [("q", "abc", (1, 0, 0), (3, -1, 0.5))]),
        ([{"query": "q", "documents": ["a", "b", "c"], "labels": [0, 2, 1]}], [("q", "abc", (0, 2, 1), ())]),
        ([{"query": "q", "positive": "a", "negatives": []}, {"query": "r", "positive": "b", "negatives": ["c"]}],
         [("q", "a", (1,), ()), ("r", "bc", (1, 0), ())]),
        ([{"question": "q", "passages": ["a"]}], [("q", "a", (1,), ())]),
        ([{"document": "a", "query": "q", "label": 1}, {"document": "b", "query": "q", "label": 0}],
         [("q", "ab", (1, 0), ())]),
        ([{"Passages": ["a", "b"], "Question": "q", "labels": [0, 1]}], [("q", "ab", (0, 1), ())]),
        ([{"negative": "b", "note": "q", "positive": "a"}], [("q", "ab", (1, 0), ())]),
        ([{"note": "q", "text": "a"}], [("q", "a", (1,), ())]),
    ],
)  # fmt: skip
def test_the_documents_of_a_query_come_together(rows, found, tmp_path):
    lists = read_candidates(write_jsonl(tmp_path / "t.jsonl", rows), CandidateColumns())
    assert [(c.query, "".join(c.documents), c.grades, c.scores) for c in lists] == found


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"query": "q", "document": "a", "label": 1}, {"query": "q", "document": "a", "label": 0}],
         'row 2.*"a".*row 1'),
        ([{"query": "q", "document": "a", "label": -1}], "-1"),
        ([{"query": "q", "documents": ["a", "b"], "labels": [1]}], "2 documents"),
        ([{"query": "q", "document": "a", "label": 0}], "t.jsonl"),
        ([TAUGHT, TAUGHT | {"query": "r", "negatives": [], "scores": [7.3]}],
         'row 2.*"negatives"'),
        ([TUPLE | {"negative_1": "a"}], "positive"),
    ],
)  # fmt: skip
def test_bad_tables_are_one_clear_line(rows, message, tmp_path, encoder_path):
    train = write_jsonl(tmp_path / "t.jsonl", rows)
    with pytest.raises(BertJaxError, match=message):
        open_task(encoder_path, train)


def open_task(model, train, *overrides):
    module, config = load_task(
        CONFIG, [f"init={model}", f"data.train={train}", "data.max_length=32", *overrides]
    )
    return module.open(config, ModelDirectories())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "overrides", "share", "rate"),
    [
        ((), (), 0.0, 3e-4),
        (("a", "b"), (), 0.0, 3e-4),
        (("LABEL_0",), (), 0.5, 1.8e-4),
        (("LABEL_0",), ("init_share=0", "optimizer.learning_rate=1e-3"), 0.0, 1e-3),
    ],
)
def test_a_reranker_goes_on_gently_and_is_averaged(tmp_path, labels, overrides, share, rate):
    sizes = SMALL_CONFIG.replace(hidden_size=128, max_position_embeddings=64)
    write_model(tmp_path / "init", sizes, heads=("classify",) * bool(labels), labels=labels)
    rows = [{"query": f"w{n}", "document": f"w1{n}", "label": n % 2} for n in range(30)]
    train = write_jsonl(tmp_path / "t.jsonl", rows)
    config = open_task(tmp_path / "init", train, *overrides)[2]
    assert (config.init_share, config.optimizer.learning_rate) == (share, pytest.approx(rate))


@pytest.mark.slow
def test_the_verb_ranks_documents_for_queries_wherever_they_stand(tmp_path, capsys):
    write_model(tmp_path / "judge", heads=("classify",), labels=("relevant",))
    path = write_jsonl(
        tmp_path / "t.jsonl", [{"document": text, "query": "cat"} for text in ("a mat", "cats sat")]
    )
    command = ["rerank", "--model", str(tmp_path / "judge"), "--input", path]
    assert main(command) == 0
    out, output = capsys.readouterr()
    (row,) = map(json.loads, out.splitlines())
    assert row["query"] == "cat" and {one["document"] for one in row["ranked"]} == {"a mat", "cats sat"}
    assert output == f'{path}: query "query", document "document"\n'
    assert main([*command, "--text", "document", "--text-pair", "query"]) == 0
    out, output = capsys.readouterr()
    assert [json.loads(line)["query"] for line in out.splitlines()] == ["a mat", "cats sat"]
    assert output == f'{path}: query "document", document "query"\n'


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["loss.name=margin_mse"], "teacher.*row 1"),
        (["loss.name=binary"], "labels.*2"),
        (["loss.name=list-net"], "list-net.*list_net"),
        (["data.max_length=5000"], "--config.data.max_length=64"),
        (["loss.name=lambda_rank"], "no query has documents with different labels"),
    ],
)
def test_losses_that_do_not_fit_are_refused(changes, message, tmp_path, encoder_path):
    rows = [{"query": f"w{n}", "document": f"w1{n}", "label": n % 3} for n in range(30)]
    with pytest.raises(BertJaxError, match=message):
        open_task(encoder_path, write_jsonl(tmp_path / "t.jsonl", rows), *changes)


def test_documents_that_no_teacher_scored_are_for_a_loss_of_labels(encoder_path, tmp_path):
    rows = [TAUGHT | {name: f"{name}{n}" for name in ("query", "positive")} for n in range(30)]
    rows = [row | {"negatives": [f"n{n}", f"m{n}"]} for n, row in enumerate(rows)]
    train = write_jsonl(tmp_path / "t.jsonl", rows)
    with pytest.raises(BertJaxError, match="data.num_random_negatives=2"):
        open_task(encoder_path, train, "data.num_random_negatives=2")
    task, _, _ = open_task(
        encoder_path,
        train,
        "data.num_random_negatives=2",
        "loss.name=binary",
        "data.max_documents_per_query=4",
    )
    assert task.max_documents == 4 and open_task(encoder_path, train)[0].loss.name == "teacher_ranking"


def test_documents_of_other_queries_are_none_of_its_own(tmp_path):
    rows = [{"query": f"q{n}", "document": f"d{n // 2}"} for n in range(12)]
    lists = read_candidates(write_jsonl(tmp_path / "t.jsonl", rows), CandidateColumns())
    for found in add_random_negatives(lists, 4):
        assert len(set(found.documents)) == 5 and found.grades == (1, 0, 0, 0, 0)
    assert all(len(found.documents) == 6 for found in add_random_negatives(lists, 40)), "there are no more"


def test_rankings_are_scored_by_query():
    truth = [Judgement(q, grade) for q, grade in [("a", 1), ("a", 0), ("b", 0), ("b", 2), ("b", 1), ("c", 0)]]
    scores = Relevance().targets.score_sums([0.2, 0.9, 0.5, 0.4, 0.3, 1.0], truth).scores
    assert scores["mrr@10"] == 0.5  # of a and b; none is relevant for c
    graded = (2 / np.log2(3) + 1 / np.log2(4)) / (2 + 1 / np.log2(3))
    assert scores["ndcg@10"] == pytest.approx((1 / np.log2(3) + graded) / 2)


def marked(count: int, seed: int) -> list[dict]:
    """Those documents are relevant that hold w10."""
    rng, rows = random.Random(seed), []
    for query in random_texts(count, (2, 4), seed):
        documents = random_texts(4, (4, 9), rng.randrange(10**6))
        right = rng.randrange(4)
        documents[right] += " w10"
        rows += [
            {"query": f"{query} w{seed}", "document": text, "label": int(n == right)}
            for n, text in enumerate(documents)
        ]
    return rows


@pytest.fixture(scope="module")
def train(encoder_path, tmp_path_factory):
    """Train in a directory, on data that stand beside it."""
    root = tmp_path_factory.mktemp("rerank")
    data = [write_jsonl(root / f"{n}.jsonl", marked(count, n)) for n, count in ((1, 240), (2, 40))]
    settings = {
        "init": encoder_path, "data.train": data[0], "data.validation": data[1], "data.max_length": 32, "epochs": 12,
        "data.calibration_ratio": 0.15, "optimizer.learning_rate": 3e-3, "checkpoints.every": 140,
        "checkpoints.keep": 9,
    }  # fmt: skip
    overrides = [f"{key}={value}" for key, value in settings.items()]

    def start(name: str):
        start_training(CONFIG, overrides, str(root / name))
        return root

    return start


@pytest.fixture(scope="module")
def trained(train):
    return train("run")


@pytest.mark.ci
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(train, trained):
    assert_resumes(lambda again: train(again.name), trained / "run")


@pytest.mark.ci
def test_a_cross_encoder_ranks_and_says_how_sure_it_is(trained, capsys):
    lines = [line for line in read_metrics(trained / "run/metrics.jsonl") if line["kind"] == "validation"]
    assert lines[-1]["mrr@10"] > 0.95
    reranker = bert_jax.load(trained / "run/model")
    documents = ["w20 w21 w22 w23", "w24 w25 w26 w27 w28 w10", "w27 w28 w29"]
    best, *others = reranker.rank("w30 w31", documents, return_documents=True)
    assert (best["corpus_id"], best["text"]) == (1, documents[1])
    assert best["score"] > 0.9 > 0.5 > others[0]["score"]
    precise = reranker.rank("w30 w31", documents, top_k=2, min_precision=0.8)
    assert [one["corpus_id"] for one in precise] == [1]
    assert reranker.calibration.is_fitted and reranker.calibration.kind == "relevance"
    assert (trained / "run/report/reliability.png").is_file()

    main(["evaluate", "--model", str(trained / "run/model"), "--data", str(trained / "2.jsonl"), "--json"])
    scored = json.loads(capsys.readouterr().out)
    assert scored["metrics"]["mrr@10"] == pytest.approx(lines[-1]["mrr@10"])
    asked = write_jsonl(trained / "asked.jsonl", [{"query": "w30 w31", "documents": documents}])
    main(["rerank", "--model", str(trained / "run/model"), "--input", asked, "--top-k", "1"])
    (row,) = json.loads(capsys.readouterr().out)["ranked"]
    assert row == {"index": 1, "score": round(best["score"], 6), "document": documents[1]}
    pair = write_jsonl(trained / "pairs.jsonl", [{"query": "w30 w31", "document": documents[1]}])
    main(["predict", "--model", str(trained / "run/model"), "--input", pair])
    assert json.loads(capsys.readouterr().out)["relevance"] == row["score"]


def scores_by_index(reranker, documents: list[str]) -> dict[int, float]:
    """The score of each document, best first."""
    return {one["corpus_id"]: one["score"] for one in reranker.rank("w30 w31", documents)}


@pytest.mark.slow
def test_its_card_tells_what_it_learnt_and_what_its_scores_are(trained, capsys):
    directory = trained / "run/model"
    card = (directory / "README.md").read_text()
    for part in (
        "pipeline_tag: text-ranking\ntags: [sentence-transformers, cross-encoder, reranker, bert_jax]",
        "reads at most 64 tokens of both together, and was trained on at most 32; longer documents are truncated.",
        'bert_jax.Reranker.load("DIR").rank(', 'CrossEncoder("DIR")',
        f"204 queries with up to 4 documents each, from `{trained / '1.jsonl'}`; 40 for validation, from "
        f"`{trained / '2.jsonl'}`, and 36 for calibration",
        "| loss | binary |", "| queries per step | 16 |", "| learning rate | 0.003, ",
    ):  # fmt: skip
        assert part in card
    lines = [line for line in read_metrics(trained / "run/metrics.jsonl") if line["kind"] == "validation"]
    assert f"| ndcg@10 | {max(line['ndcg@10'] for line in lines):.4f} |" in card
    slope, sign, offset = re.search(r"sigmoid\((\S+) \* logit ([+-]) (\S+)\)", card).groups()
    ours, documents = bert_jax.load(directory), random_texts(5, (2, 20), 9)
    calibrated = scores_by_index(ours, documents)
    ours.calibration = calibrations.UNCALIBRATED
    for index, plain in scores_by_index(ours, documents).items():
        logit = np.log(plain / (1 - plain))
        score = 1 / (1 + np.exp(-(float(slope) * logit + float(sign + offset))))
        assert calibrated[index] == pytest.approx(score, abs=2e-3) != plain
    assert main(["check", str(directory)]) == 0
    capsys.readouterr()
    (directory / "README.md").write_text(card + "more")
    assert main(["check", str(directory)]) == 1 and "README.md" in capsys.readouterr().err
    (directory / "README.md").write_text(card)


@pytest.mark.slow
def test_sentence_transformers_gives_the_same_scores(trained, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    ours = bert_jax.load(trained / "run/model")
    ours.calibration = calibrations.UNCALIBRATED
    documents = random_texts(12, (2, 20), 9)
    expected = scores_by_index(ours, documents)
    theirs = library.CrossEncoder(str(trained / "run/model"), device="cpu")
    pairs = [("w30 w31", text) for text in documents]
    scores = theirs.predict(pairs)
    np.testing.assert_allclose([expected[n] for n in range(12)], scores, atol=1e-6)
    np.testing.assert_allclose(ours.predict(pairs), scores, atol=1e-6)
    # And what it saves, in its new layout, is known here as what it is.
    theirs.save_pretrained(str(tmp_path / "theirs"))
    again = bert_jax.load(tmp_path / "theirs")
    assert again.kind.name == "relevance"
    assert [*scores_by_index(again, documents)] == [*expected]


def test_probabilities_are_those_of_the_calibration():
    assert "not calibrated" in describe_relevance_scores(calibrations.UNCALIBRATED)
    assert "need no other calibration" in describe_relevance_scores(
        Calibration("relevance", ("LABEL_0",), (1.0,))
    )
    fitted = Calibration("relevance", ("LABEL_0",), (2.0,), offset=-1.0)
    assert Relevance().decoder.predict(4.0, fitted) == pytest.approx(1 / (1 + np.exp(-1.0)))
    assert Relevance().decoder.to_record(4.0, fitted, 0.9) == {"relevance": 0.731059, "relevant": False}
