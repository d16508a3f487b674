"""Labels that a model was not trained for: the scores of transformers' pipeline, and cosines of an embedder."""

import json
import warnings
from itertools import product

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.command import main as cli
from bert_jax.core.errors import BertJaxError
from tests.support.optional_modules import transformers
from tests.support.small_models import edit_config

TEXTS = ["the cat sat", "on the mat .", "cats"]
CANDIDATES = ["cat", "mat", "the", "cats sat"]
NLI = ("contradiction", "neutral", "entailment")


@pytest.fixture(scope="module")
def nli_path(headed_model, tmp_path_factory):
    """labels -> a model with logits as small as those of trained models, so that float32 gives scores within 1e-6."""

    def save(labels=NLI):
        model = bert_jax.load(headed_model("classify", labels))
        path = tmp_path_factory.mktemp("nli")
        model.with_params(jax.tree.map(lambda leaf: leaf / 4, jax.device_get(model.params))).save(path)
        return path

    return save


@pytest.fixture(scope="module")
def entailment(nli_path):
    return bert_jax.load(nli_path())


def pipeline_of(path):
    return transformers.pipeline("zero-shot-classification", model=str(path), device="cpu")


@pytest.mark.parametrize(
    "labels",
    [
        NLI,
        ("entailment", "neutral", "contradiction"),
        ("contradiction", "entailment", "neutral"),
        ("ENTAILED", "not_entailment"),
        ("no", "yes", "maybe"),
        ("not_entailment", "entailment"),
    ],
)
@pytest.mark.slow
def test_scores_are_those_of_transformers(labels, nli_path):
    path = nli_path(labels)
    theirs = pipeline_of(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if "yes" in labels else "error")
        model = bert_jax.load(path)
        for multi_label, template, candidates in product(
            (False, True), ("{}", "the {} ."), (CANDIDATES, CANDIDATES[:1], "cat, mat")
        ):
            given = {"hypothesis_template": template, "multi_label": multi_label}
            ours = model.zero_shot(TEXTS, candidates, **given)
            for ranked, expected in zip(ours, theirs(TEXTS, candidates, **given), strict=True):
                assert [label.label for label in ranked] == expected["labels"]
                np.testing.assert_allclose([label.score for label in ranked], expected["scores"], atol=1e-6)


def test_a_contradiction_is_found_by_its_name(nli_path):
    """Transformers takes the last label for it here, which is neutral."""
    scores = []
    for labels in (("entailment", "contradiction", "neutral"), ("entailment", "neutral", "contradiction")):
        model = bert_jax.load(nli_path(labels))
        ranked = model.zero_shot("the cat", CANDIDATES, multi_label=True)
        logits = np.stack(
            [np.log(model.predict_proba(("the cat", f"This example is {c}."))) for c in CANDIDATES]
        )
        both = np.exp(logits[:, [0, labels.index("contradiction")]])
        expected = dict(zip(CANDIDATES, both[:, 0] / both.sum(1), strict=True))
        scores.append([label.score for label in ranked])
        np.testing.assert_allclose(scores[-1], [expected[label.label] for label in ranked], atol=1e-5)
    assert not np.allclose(*scores)


@pytest.mark.slow
def test_only_the_text_is_truncated(nli_path):
    path = nli_path()
    long = " ".join(TEXTS * 4)
    with pytest.warns(UserWarning, match="1 of 2 texts .* is longer than 16 tokens and was truncated"):
        ours = bert_jax.load(path).zero_shot(["cat", long], CANDIDATES, hypothesis_template="sat on {} .")
    theirs = pipeline_of(path)
    theirs.tokenizer.model_max_length = 16
    expected = theirs(long, CANDIDATES, hypothesis_template="sat on {} .")
    assert [label.label for label in ours[1]] == expected["labels"]
    np.testing.assert_allclose([label.score for label in ours[1]], expected["scores"], atol=1e-6)


def test_of_equal_labels_the_last_is_first(entailment):
    ranked = entailment.zero_shot("the cat", {"one": "cat", "two": "cat", "three": "mat"})
    assert [label.label for label in ranked if label.label != "three"] == ["two", "one"]
    best = ranked[0]
    assert best.margin == best.score - ranked[1].score and ranked[1].margin == ranked[1].score - best.score


def test_texts_may_be_a_stream(entailment):
    listed = entailment.zero_shot(TEXTS, CANDIDATES)
    assert [*entailment.zero_shot(iter(TEXTS), CANDIDATES)] == listed
    one = entailment.zero_shot(TEXTS[0], CANDIDATES)
    assert [label.score for label in one] == pytest.approx([label.score for label in listed[0]], abs=1e-6)
    assert entailment.zero_shot([], CANDIDATES) == []


@pytest.fixture(scope="module")
def embedder(headed_model):
    return bert_jax.Embedder.load(headed_model("classify", NLI), pooling="mean")


def test_an_embedder_compares_texts_with_labels(embedder):
    model = embedder
    cosines = model.similarity(TEXTS, ["cat", "mat"]) / 0.1
    expected = np.exp(cosines) / np.exp(cosines).sum(1, keepdims=True)
    for ranked, scores in zip(model.zero_shot(TEXTS, ["cat", "mat"], temperature=0.1), expected, strict=True):
        by_label = {label.label: label.score for label in ranked}
        np.testing.assert_allclose([by_label["cat"], by_label["mat"]], scores, atol=1e-5)
    described = model.zero_shot(TEXTS, {"c": "the cat", "m": "the mat"})
    same = model.zero_shot(TEXTS, ["cat", "mat"], hypothesis_template="the {}")
    assert [[label.score for label in one] for one in described] == [
        [label.score for label in one] for one in same
    ]


@pytest.mark.parametrize(
    "labels, settings, message",
    [
        ([], {}, "labels must hold at least one label, and each once"),
        ("a, a", {}, "each once"),
        (["a", " "], {}, "a label must be a text that is not blank"),
        ({"a": ""}, {}, "a label must be a text that is not blank"),
        (3, {}, "labels must be a list of labels, not a number"),
        (["a"], {"hypothesis_template": "about cats"}, "hypothesis_template must hold {} once"),
        (["a"], {"hypothesis_template": "{} {}"}, "hypothesis_template must hold {} once"),
        (["a"], {"multi_label": "yes"}, "multi_label must be"),
        (["cat " * 20], {}, "the second text of a pair has"),
    ],
)
def test_what_cannot_be_a_label_is_refused(labels, settings, message, entailment):
    with pytest.raises(BertJaxError) as error:
        entailment.zero_shot("cat", labels, **settings)
    assert message in str(error.value)


def test_other_models_are_refused(headed_model, embedder):
    with pytest.raises(
        BertJaxError, match="needs a model that predicts entailment, and this one predicts number"
    ):
        path = headed_model("classify", ("LABEL_0",))
        edit_config(path, problem_type="regression")
        bert_jax.Classifier.load(path).zero_shot("cat", ["a", "b"])
    with pytest.raises(BertJaxError, match="which of several labels is nearest"):
        embedder.zero_shot("cat", ["a"])
    with pytest.raises(BertJaxError, match="temperature must be"):
        embedder.zero_shot("cat", ["a", "b"], temperature=0)
    for model in (embedder, bert_jax.load(headed_model("classify", NLI))):
        with pytest.raises(BertJaxError, match="reads single texts"):
            model.zero_shot([("cat", "mat")], ["a", "b"])


def test_the_verb_predicts_the_labels(nli_path, tmp_path, capsys):
    path, texts = nli_path(), tmp_path / "texts.txt"
    texts.write_text("".join(text + "\n" for text in TEXTS))
    verb = ["predict", "--model", str(path), "--input", str(texts), "--labels", ",".join(CANDIDATES)]
    ranked = bert_jax.load(path).zero_shot(TEXTS, CANDIDATES)

    def rows(*flags) -> list[dict]:
        assert cli.main([*verb, *flags]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    for row, labels in zip(rows("--probabilities"), ranked, strict=True):
        assert row["label"] == labels[0].label and row["score"] == pytest.approx(labels[0].score, abs=1e-6)
        assert row["probabilities"] == pytest.approx({label.label: label.score for label in labels}, abs=1e-6)
    ranked = bert_jax.load(path).zero_shot(TEXTS, CANDIDATES, multi_label=True, hypothesis_template="the {}")
    for row, labels in zip(rows("--multi-label", "--hypothesis-template", "the {}"), ranked, strict=True):
        assert [label["label"] for label in row["labels"]] == [one.label for one in labels if one.score > 0.5]

    for flags, message in (
        (["--min-precision", "0.9"], "--min-precision is for labels that the model was trained for"),
        (["--long-texts", "windows"], "--long-texts windows is for labels"),
        (["--out-of-scope", "0.1"], "--out-of-scope is for labels"),
        (["--rank-for-labelling"], "--rank-for-labelling is for labels"),
        (["--allow-no-answer"], "--allow-no-answer is for models that answer questions"),
    ):
        assert cli.main([*verb, *flags]) == 1
        assert message in capsys.readouterr().err
    assert cli.main([*verb[:-2], "--multi-label"]) == 1
    assert "are for --labels; name some" in capsys.readouterr().err


def test_the_verb_compares_vectors_of_an_embedder(embedder, tmp_path, capsys):
    path = tmp_path / "embedder"
    embedder.save(path)
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat\nthe mat\n")
    assert (
        cli.main(["predict", "--model", str(path), "--input", str(texts), "--labels", "the mat, the cat"])
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == ["the cat", "the mat"]
