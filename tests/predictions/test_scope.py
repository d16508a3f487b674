"""Texts of no known class: the score by which they are refused, how it is learnt, and what tells how well it works."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

import bert_jax
from bert_jax.command import main as cli
from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.inference.computations import HiddenStates
from bert_jax.inference.row_predictor import PredictionOptions
from bert_jax.inference.text_outcomes import mean_state_vectors, predict_outcomes
from bert_jax.predictions import out_of_scope as scopes
from bert_jax.predictions.kind import KINDS
from bert_jax.predictions.out_of_scope import FILE, KEPT, OutOfScopeDetector
from bert_jax.predictions.prediction_input import read_out_of_scope
from bert_jax.report.evaluate_predictions import PredictionEvalConfig, evaluate_directory, run_evaluation
from bert_jax.report.out_of_scope_detection import area_under_curve
from bert_jax.report.prediction_page import evaluate_with_report
from bert_jax.runs.run import FinishedRun
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tables import read_table_rows
from bert_jax.training.task import FinishInputs
from tests.support.prediction_rows import predict_rows
from tests.support.small_models import SMALL_TEXTS, write_model
from tests.support.tables import write_jsonl

RNG = np.random.default_rng(0)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def random_scope(texts: int = 30, known: int = 50) -> OutOfScopeDetector:
    scope = OutOfScopeDetector.from_vectors(unit(RNG.normal(size=(texts, 8))))
    return OutOfScopeDetector.from_vectors(scope.vectors, scope.similarity(unit(RNG.normal(size=(known, 8)))))


# The score


def test_a_share_is_that_of_known_texts_that_are_as_unlike():
    """Of texts that are drawn as the known ones are, a share of p has p or less, exactly."""
    drawn_alike = RNG.normal(size=40)
    shares = [
        float(OutOfScopeDetector.from_vectors(np.eye(2), np.delete(drawn_alike, i)).p_value(drawn_alike[i]))
        for i in range(40)
    ]
    np.testing.assert_allclose(np.sort(shares), np.arange(1, 41) / 40)
    equal = OutOfScopeDetector.from_vectors(np.eye(2), np.full(9, 0.5))
    assert [equal.p_value(value) for value in (0.4, 0.5, 0.6)] == [0.1, 1, 1]


def test_a_share_that_no_text_can_have_is_refused():
    scope = OutOfScopeDetector.from_vectors(np.eye(2), np.linspace(0, 1, 99))
    with pytest.raises(BertJaxError, match="99.*0.01"):
        scope.check_usable(0.01)
    scope.check_usable(0.0101)
    assert scope.p_value(-1) < 0.0101


def test_quantiles_stand_for_many_known_texts():
    known, new = RNG.normal(size=30_000), RNG.normal(size=2000)
    scope = OutOfScopeDetector.from_vectors(np.eye(2), known)
    assert len(scope.known) == KEPT
    whole = (1 + (known <= new[:, None]).sum(1)) / (1 + len(known))
    np.testing.assert_allclose(scope.p_value(new), whole, atol=0.002)


@pytest.mark.parametrize("texts", [1, 60])
def test_a_similarity_is_the_mean_of_the_nearest(texts, monkeypatch):
    monkeypatch.setattr(scopes, "AT_ONCE", 7)  # of 16: in three parts
    learnt, new = unit(RNG.normal(size=(texts, 5))), unit(RNG.normal(size=(16, 5)))
    nearest = [sorted((float(a @ b) for b in learnt), reverse=True)[:10] for a in new]
    np.testing.assert_allclose(
        OutOfScopeDetector.from_vectors(learnt).similarity(new), [np.mean(n) for n in nearest], atol=2e-3
    )
    assert OutOfScopeDetector.from_vectors(learnt).similarity(new[:0]).shape == (0,)


# The file


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A model that knows sentences with cats, and that most texts are about as near to them as its own are."""
    path = tmp_path_factory.mktemp("model") / "m"
    write_model(path, heads=("classify",), labels=("no", "yes"))
    opened = bert_jax.load(path)
    scope = OutOfScopeDetector.from_vectors(
        opened.encode(["the cat sat", "cats", "the cat", "cat mat"], normalize_embeddings=True)
    )
    known = np.quantile(
        scope.similarity(opened.encode(SMALL_TEXTS, normalize_embeddings=True)), np.linspace(0, 1, 40)
    )
    opened.scope = OutOfScopeDetector.from_vectors(scope.vectors, known)
    opened.save(path.with_name("scoped"))
    return path.with_name("scoped")


@pytest.fixture(scope="module")
def scoped(classifier):
    return bert_jax.load(classifier)


def same(a: OutOfScopeDetector, b: OutOfScopeDetector) -> bool:
    return np.array_equal(a.vectors, b.vectors) and np.array_equal(a.known, b.known)


@pytest.mark.slow
def test_a_model_carries_its_scope(scoped, classifier, tmp_path):
    scoped.save(tmp_path / "copy")
    copy = bert_jax.load(tmp_path / "copy")
    assert scoped.scope.is_fitted and len(scoped.scope.vectors) == 4
    assert same(copy.scope, scoped.scope) and copy.scope.vectors.dtype == np.float16
    assert not list(hashes.find_damaged_files(tmp_path / "copy", hashes.read_hashes(tmp_path / "copy")))
    assert not bert_jax.load(classifier, head="tag", labels=("O", "X")).scope.is_fitted
    assert FILE in hashes.read_hashes(tmp_path / "copy")


def test_a_damaged_file_is_named_in_a_line_with_a_remedy(tmp_path):
    scope = random_scope()
    path = tmp_path / FILE

    def refusal() -> str:
        with pytest.raises(BertJaxError, match=rf"{FILE}.*; delete it, or train again") as refused:
            scopes.read_detector(tmp_path, 8)
        return str(refused.value)

    scopes.save_detector(tmp_path, scope)
    assert same(scopes.read_detector(tmp_path, 8), scope)
    with pytest.raises(BertJaxError, match="8.*16"):
        scopes.read_detector(tmp_path, 16)
    whole = path.read_bytes()
    for content in (b"", b"{}", whole[:-20], whole[:10], b"\xff" * 100):
        path.write_bytes(content)
        assert "safetensors" in refusal()
    sound = {"vectors": scope.vectors, "known": scope.known}
    for change, output in (
        ({"known": sound["known"].astype(np.float64)}, "vectors"),
        ({"known": sound["known"][None]}, "vectors"),
        ({"more": sound["known"]}, "vectors"),
        ({"known": sound["known"][:0]}, "it is empty"),
        ({"known": sound["known"][::-1].copy()}, "not in order"),
        ({"known": np.where(np.arange(50) == 3, np.nan, sound["known"]).astype(np.float32)}, "not finite"),
        ({"vectors": sound["vectors"] * np.float16(np.inf)}, "not finite"),
    ):
        save_file(sound | change, path)
        assert output in refusal()
    save_file({"vectors": sound["vectors"]}, path)
    assert "vectors" in refusal()


# Texts


@pytest.mark.slow
def test_one_text_a_list_and_a_stream_are_answered_alike(scoped):
    shares = scoped.in_distribution_p_value(SMALL_TEXTS)
    expected = scoped.scope.p_value(
        scoped.scope.similarity(scoped.encode(SMALL_TEXTS, normalize_embeddings=True))
    )
    np.testing.assert_allclose(shares, expected, atol=0.03)  # a place among 40
    assert len(set(shares.tolist())) > 3
    assert scoped.in_distribution_p_value(SMALL_TEXTS[0]) == shares[0]
    assert list(scoped.in_distribution_p_value(iter(SMALL_TEXTS))) == shares.tolist()
    assert scoped.in_distribution_p_value([]).shape == (0,)


@pytest.mark.slow
def test_texts_of_every_kind_are_compared_by_their_beginning(tmp_path):
    write_model(tmp_path, heads=("tag",), labels=("O", "B-X"))
    tagger = bert_jax.load(tmp_path)
    words = [tuple(text.split()) for text in SMALL_TEXTS] + [("the", "cat", "sat") * 9]
    vectors = mean_state_vectors(tagger, words)
    tagger.scope = OutOfScopeDetector.from_vectors(vectors[:3], np.array([0.5]))
    given = predict_outcomes(tagger, [Example(text, ("O",) * len(text), "") for text in words], compares=True)
    np.testing.assert_allclose(given.similarities, tagger.scope.similarity(vectors), atol=1e-5)
    (windows,) = tagger.kind.reader.encode(
        tagger.tokenizer, words[-1:], EncodingOptions(tagger.config.max_position_embeddings)
    )
    (first, *others) = windows.encodings
    assert others, "the last one is read in several windows"
    states = tagger.run([first], HiddenStates())[0][: len(first.input_ids)]
    np.testing.assert_allclose(vectors[-1], unit(states.mean(0)), atol=1e-5)


# predict


@pytest.mark.slow
def test_predictions_tell_which_texts_are_foreign(scoped, classifier, tmp_path, capsys):
    data = write_jsonl(tmp_path / "in.jsonl", [{"id": i, "text": text} for i, text in enumerate(SMALL_TEXTS)])
    plain = list(predict_rows(scoped, data))
    shares = np.round(scoped.in_distribution_p_value(SMALL_TEXTS), 6).tolist()
    middle = float(np.median(shares))
    found = list(predict_rows(scoped, data, options=PredictionOptions(out_of_scope=middle)))
    expected = [
        row | {"in_distribution_p_value": share, "out_of_scope": share < middle}
        for row, share in zip(plain, shares, strict=True)
    ]
    assert found == expected and {row["out_of_scope"] for row in found} == {True, False}
    arguments = ["predict", "--model", str(classifier), "--input", data, "--out-of-scope", str(middle)]
    assert cli.main([*arguments, "--output", str(tmp_path / "out.csv")]) == 0
    cells = [row for _, row in read_table_rows(str(tmp_path / "out.csv"))]
    assert [row["predicted_out_of_scope"] for row in cells] == [
        str(share < middle).lower() for share in shares
    ]


@pytest.mark.slow
def test_foreign_texts_on_a_pipe_are_told_at_once(scoped, stdin_pipe):
    found = predict_rows(scoped, "-", options=PredictionOptions(out_of_scope=0.3))
    for text in SMALL_TEXTS[:3]:
        stdin_pipe.write(text + "\n")
        row, share = next(found), scoped.in_distribution_p_value(text)
        assert (row["in_distribution_p_value"], row["out_of_scope"]) == (round(share, 6), share < 0.3)
        assert not stdin_pipe.closed
    stdin_pipe.close()
    assert list(found) == []


# evaluate


@pytest.fixture
def files(tmp_path):
    """A test set, and a file of out-of-scope texts that has another column."""
    rows = [{"review": text, "label": "no"} for text in SMALL_TEXTS]
    data = write_jsonl(tmp_path / "dev.jsonl", rows)
    return data, write_jsonl(tmp_path / "out_of_scope.jsonl", [{"text": ". . on ."}, {"text": "on on . ."}])


@pytest.mark.slow
def test_evaluate_measures_how_well_foreign_texts_are_told(scoped, classifier, files, tmp_path, capsys):
    data, out_of_scope = files
    given = (SMALL_TEXTS, [". . on .", "on on . ."])
    shares, others = map(scoped.in_distribution_p_value, given)
    likely, other = (scoped.predict_proba(texts).max(-1) for texts in given)
    arguments = ["evaluate", "--model", str(classifier), "--data", data, "--text", "review"]
    assert cli.main([*arguments, "--out-of-scope", out_of_scope, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["out_of_scope"]
    assert (found["known"], found["out_of_scope"]) == (8, 2)
    assert found["auroc"] == pytest.approx(area_under_curve(shares, others), abs=0.02)
    assert found["auroc_of_probability"] == pytest.approx(area_under_curve(likely, other))
    for row in found["rates"]:
        assert row["false_alarm_rate"] == (shares < row["p_value"]).mean()
        assert row["detection_rate"] == (others < row["p_value"]).mean()
    assert [row["p_value"] for row in found["rates"]] == [0.01, 0.05, 0.1]
    assert cli.main([*arguments, "--out-of-scope", out_of_scope]) == 0
    told = capsys.readouterr().out
    assert "out-of-scope detection: 2 out-of-scope and 8 in-distribution texts" in told
    assert re.search(rf"area under the curve of the p-value +{found['auroc']:.4f}\n", told)
    (tmp_path / "empty.txt").write_text("")
    assert cli.main([*arguments, "--out-of-scope", str(tmp_path / "empty.txt")]) == 1
    assert "empty.txt" in capsys.readouterr().err


@pytest.mark.slow
def test_a_report_shows_what_is_out_of_scope(scoped, classifier, files, tmp_path):
    trial = PredictionEvalConfig(files[0], ExampleColumns(text="review"), out_of_scope=files[1])
    told = evaluate_with_report(tmp_path / "r", classifier, trial)
    assert told == evaluate_directory(classifier, trial)
    assert "out-of-scope detection" in told.format(as_json=False)
    page = (tmp_path / "r" / "report.md").read_text()
    section = page.split("## Out of scope")[1].split("\n## ")[0]
    scores = run_evaluation(scoped, trial)[1].scores
    assert f"| of the p-value | {scores.auroc:.4f} |" in section and "(scope.png)" in section
    assert (
        f"| 0.05 | {scores.rates[1].false_alarm_rate:.4f} | {scores.rates[1].detection_rate:.4f} |" in section
    )
    assert (tmp_path / "r" / "scope.png").read_bytes().startswith(b"\x89PNG")


# Learning it


def examples(count: int, seed: int = 0) -> list[Example]:
    rng = np.random.default_rng(seed)
    words = ["the", "cat", "sat", "mat", "on", "."]
    return [Example(" ".join(rng.choice(words, rng.integers(3, 9))), "no", f"row {i}") for i in range(count)]


@pytest.fixture
def bare(tmp_path):
    write_model(tmp_path / "run" / "model", heads=("classify",), labels=("no", "yes"))
    return tmp_path / "run" / "model"


@pytest.mark.slow
def test_it_is_learnt_from_what_was_held_out_and_kept_for_calibration(bare, capsys):
    train, validation, calibration = examples(60), examples(20, 1), examples(12, 2)
    FinishedRun(bare, FinishInputs(train, validation, calibration)).fit_scope()
    assert "calibrated on 32 validation texts" in capsys.readouterr().err
    found = bert_jax.load(bare)
    vectors = found.encode([example.text for example in train], normalize_embeddings=True)
    np.testing.assert_allclose(found.scope.vectors, vectors, atol=1e-3)
    known = OutOfScopeDetector.from_vectors(vectors).similarity(
        found.encode([e.text for e in [*validation, *calibration]], normalize_embeddings=True)
    )
    np.testing.assert_allclose(found.scope.known, np.sort(known), atol=1e-5)


@pytest.mark.slow
def test_few_texts_leave_no_file(bare, capsys):
    FinishedRun(bare, FinishInputs(examples(60), examples(20, 1), examples(4, 2))).fit_scope()
    assert not (bare / FILE).exists()
    why = "out-of-scope detection needs 25 validation texts, got "
    assert f"{why}24; label more texts" in capsys.readouterr().err
    few_folds = SimpleNamespace(outcomes=SimpleNamespace(examples=examples(20)))
    FinishedRun(bare, FinishInputs(examples(60), (), ()), few_folds).fit_scope()
    assert f"{why}20; give the folds more time, --config.minutes=M" in capsys.readouterr().err


def test_a_folder_of_out_of_scope_texts_is_refused_before_any_of_its_files_is_looked_at(tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n")
    for name in ("classes", "tags"):
        with pytest.raises(BertJaxError, match="is a folder; out-of-scope texts are read from one file"):
            read_out_of_scope(str(tmp_path), ExampleColumns(), KINDS[name](("no", "yes")))
