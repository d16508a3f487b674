"""Tags of a model whose training tags began each span with B-: no predicted I- lacks the span that it continues."""

import itertools

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.data.examples.example import Example
from bert_jax.metrics.tagged_spans import find_unstarted_spans
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration, softmax
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.kinds.tags import Tags
from bert_jax.predictions.strict_tags import PENALTY, begin_spans, decode_strictly
from tests.support.small_models import edit_config, write_model

IOB2 = ("O", "B-X", "I-X", "B-Y", "I-Y")
BIOES = ("O", "B-X", "I-X", "E-X", "S-X")


def value(scores: np.ndarray, tags: list[str], path: tuple[int, ...]) -> float:
    starts = sum(a != b for a, b in zip(tags, begin_spans(tags), strict=True))
    return scores[range(len(path)), path].sum() - PENALTY * starts


def test_decoding_finds_the_best_of_all_tags():
    rng, changed = np.random.default_rng(0), 0
    for labels, _ in itertools.product((IOB2, BIOES), range(20)):
        scores, paths = rng.normal(size=(4, 5)), itertools.product(range(5), repeat=4)
        values = {path: value(scores, [labels[i] for i in path], path) for path in paths}
        best = max(values, key=values.__getitem__)
        assert decode_strictly(scores, labels).tolist() == list(best)
        changed += list(best) != scores.argmax(-1).tolist()
        assert not find_unstarted_spans(begin_spans([labels[i] for i in best]))
    assert changed > 20, "single words alone would often break the rule"
    assert decode_strictly(np.zeros((0, 5)), IOB2).tolist() == []
    assert decode_strictly(np.array([[0, 9.0]]), ("O", "I-X")).tolist() == [0], (
        "there is no B-X to begin with"
    )


def tagged(*sentences: str) -> list[Example]:
    words = [tuple(tags.split()) for tags in sentences]
    return [Example(tags, tags, f"row {number}") for number, tags in enumerate(words, 1)]


def test_the_training_tags_decide_and_published_models_are_free():
    def vector_form_of(*sentences: str) -> Tags:
        return Tags.from_examples(tagged(*sentences))

    assert vector_form_of("O B-X I-X", "B-X O").strict
    assert not vector_form_of("O B-X I-X", "I-X O").strict, "IOB1"
    assert not vector_form_of("NOUN VERB NOUN").strict
    assert not Tags(IOB2).strict


@pytest.mark.parametrize(
    ("tags", "labels"),
    [
        ("O B-X B-Y I-Y", "B-X B-Y I-X I-Y O"),  # IOB2
        ("O B-X", "B-X I-X O"),
        ("I-X I-X B-X O I-Y", "B-X B-Y I-X I-Y O"),  # IOB1
        ("O I-X O I-Y", "I-X I-Y O"),  # of which it may be that types have no B-
        ("I-X E-X E-Y O", "E-X E-Y I-X I-Y O"),  # IOE
        ("S-X O B-Y E-Y", "B-X B-Y E-X E-Y I-X I-Y O S-X S-Y"),  # BIOES
        ("NOUN VERB", "NOUN VERB"),
        ("B-X O E-mail NAME", "B-X E-mail NAME O"),  # not all are of a scheme
        ("B I O", "B I O"),
    ],
)
def test_a_type_has_all_the_tags_of_its_scheme(tags, labels):
    examples = tagged(tags)
    assert Tags.from_examples(examples).labels == tuple(labels.split())
    assert Tags.from_examples(examples, tuple(tags.split())).labels == tuple(tags.split()), (
        "named in the config"
    )


def test_one_tag_is_refused_even_if_it_implies_another():
    with pytest.raises(BertJaxError, match='only the class "B-X"'):
        Tags.from_examples(tagged("B-X B-X"))


def test_tags_that_look_wrong_are_named_before_training():
    def hint(*sentences: str) -> str:
        examples = tagged(*sentences)
        return Tags.from_examples(examples).label_hint(examples, AUTODETECT)

    assert hint("B-X I-X O", "O B-X I-Y O", "S-Y") == (
        '1 of 4 spans do not begin with B-, first "I-Y", word 3 of row 2, so predicted spans need not either; correct '
        "the tags if all should"
    )
    assert "numbers" in hint("0 1 2 0")
    assert hint("B-X I-X O") == hint("I-X B-X I-X O") == hint("NOUN VERB") == ""


def test_probabilities_are_those_of_the_predicted_tags():
    kind = Tags(IOB2, strict=True)
    raw = np.array([[2.0, 1.8, 0, 0, 0], [0, 0, 3.0, 0, 0], [3.0, 0, 0, 0, 0], [0, 0, 0, 0, 5.0]])
    p, calibration = softmax(raw / 2), Calibration("tags", IOB2, (2.0,))
    tags = ["B-X", "I-X", "O", "B-Y"]
    assert kind.decoder.predict(raw, UNCALIBRATED) == kind.decoder.predict(raw, calibration) == tags
    outcomes = Outcomes(kind, [Example(("a", "b", "c", "d"), tuple(tags), "")], [raw], calibration)
    data = outcomes.report_data
    np.testing.assert_allclose(data.calibrated, [p[0, 1], p[1, 2], p[2, 0], p[3, 4]], rtol=1e-6)
    assert data.right.all()
    np.testing.assert_allclose(kind.decoder.confidence(raw, calibration), p[0, 1], rtol=1e-6)


@pytest.mark.slow
def test_a_model_directory_keeps_the_rule(tmp_path):
    labels = ("O", "I-X", "B-X", "B-Y", "I-Y")  # it predicts the second everywhere
    write_model(tmp_path, heads=("tag",), labels=labels)
    words = ["the", "cat", "sat", "on", "the", "mat", "."] * 20
    free = bert_jax.Tagger.load(tmp_path).tag_words(words)
    edit_config(tmp_path, strict_tags=True)
    model = bert_jax.Tagger.load(tmp_path)
    assert find_unstarted_spans(free) and not find_unstarted_spans(model.tag_words(words))
    model.save(tmp_path / "copy")
    assert bert_jax.load(tmp_path / "copy").kind.strict
