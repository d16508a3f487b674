"""Figures against what others compute: scikit-learn 1.9, scipy 1.17, seqeval 1.2, SQuAD's scripts."""

import random

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.metrics.classification import score_multi_label, score_single_label
from bert_jax.metrics.regression import score_numbers
from bert_jax.metrics.squad import score_answers
from bert_jax.metrics.tagged_spans import count_spans, extract_spans, score_spans


def is_close(found: dict, **expected) -> bool:
    return {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(
    ("labels", "seed", "expected"),
    [
        (("no", "yes"), 1, (0.816666666667, 0.816615726591, 0.637326795407, 0.819672131148)),
        (("no", "yes"), 2, (0.7, 0.694570135747, 0.41502867832, 0.735294117647)),
        (("a", "b", "c", "d"), 3, (0.65, 0.651483129403, 0.538090263774)),
    ],
)
def test_classes(labels, seed, expected):
    drawn = random.Random(seed)
    truth = [drawn.choice(labels) for _ in range(60)]
    predicted = [label if drawn.random() < 0.6 else drawn.choice(labels) for label in truth]
    found = score_single_label(predicted, truth, labels).scores
    names = ("accuracy", "f1_macro", "matthews", "f1")[: len(expected)]
    assert found.keys() == set(names) and is_close(found, **dict(zip(names, expected, strict=True)))


@pytest.mark.parametrize(
    ("predicted", "truth", "expected"),
    [
        ("nnnn", "nnny", {"accuracy": 0.75, "f1_macro": 0.428571428571, "matthews": 0, "f1": 0}),
        ("nn", "nn", {"accuracy": 1, "f1_macro": 1, "matthews": 0, "f1": 0}),
        ("yn", "ny", {"accuracy": 0, "f1_macro": 0, "matthews": -1, "f1": 0}),
        ("cca", "aba", {"accuracy": 0.333333333333, "f1_macro": 0.222222222222, "matthews": 0.25}),
    ],
)
def test_classes_that_never_come(predicted, truth, expected):
    assert is_close(score_single_label(predicted, truth, ("n", "y")).scores, **expected)


def test_several_labels_at_once():
    labels = ("a", "b", "c", "d", "e")  # the last one is never true
    drawn = random.Random(5)
    truth = [{label for label in labels[:4] if drawn.random() < 0.4} for _ in range(50)]
    predicted = [{label for label in labels if (label in t) != (drawn.random() < 0.2)} for t in truth]
    found = score_multi_label(predicted, truth, labels).scores
    assert is_close(found, accuracy=0.28, f1_micro=0.697142857143, f1_macro=0.597851267416)
    nothing = score_multi_label([set()] * 50, truth, labels).scores
    assert nothing == {"accuracy": 0.14, "f1_micro": 0, "f1_macro": 0}


def test_numbers():
    drawn = random.Random(6)
    truth = [drawn.randrange(26) / 5 for _ in range(80)]
    free = [number * 0.7 + drawn.gauss(1, 1) for number in truth]
    names = ("pearson", "spearman", "mean_squared_error")
    for predicted, expected in (
        (free, (0.791822310693, 0.793763280303, 1.060291562307)),
        ([round(number) for number in free], (0.776766807983, 0.785364471244, 1.1435)),
        ([-number for number in truth], (-1, -1, 43.034)),
        ([0.1] * 80, (0, 0, sum((t - 0.1) ** 2 for t in truth) / 80)),
    ):
        assert is_close(score_numbers(predicted, truth).scores, **dict(zip(names, expected, strict=True)))


TAGS = {
    "iob": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    "bioes": ("O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y"),
    "odd": ("O", "B", "I", "E", "S", "B-X-Y", "I-X-Y", "I-X", "B-"),
}


@pytest.mark.parametrize(
    ("tags", "seed", "f1", "precision", "recall", "accuracy"),
    [
        ("iob", 0, 0.836363636364, 0.824372759857, 0.848708487085, 0.863636363636),
        ("iob", 1, 0.783783783784, 0.777777777778, 0.789883268482, 0.848563968668),
        ("bioes", 0, 0.869426751592, 0.866666666667, 0.872204472843, 0.850899742931),
        ("bioes", 1, 0.875219683656, 0.870629370629, 0.879858657244, 0.848396501458),
        ("odd", 0, 0.844155844156, 0.846905537459, 0.84142394822, 0.850899742931),
        ("odd", 1, 0.857142857143, 0.849462365591, 0.86496350365, 0.848396501458),
    ],
)
def test_spans_of_random_tags(tags, seed, f1, precision, recall, accuracy):
    drawn, tags = random.Random(seed), TAGS[tags]
    truth = [[drawn.choice(tags) for _ in range(drawn.randrange(9))] for _ in range(100)]
    predicted = [[tag if drawn.random() < 0.8 else drawn.choice(tags) for tag in one] for one in truth]
    found = score_spans(predicted, truth).scores
    assert is_close(found, f1=f1, precision=precision, recall=recall, accuracy=accuracy)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A O", "A02"),
        ("B-A B-A I-A", "A01 A13"),
        ("I-A B-A I-A", "A01 A13"),
        ("B-A I-B I-B", "A01 B13"),
        ("I-A I-B", "A01 B12"),
        ("B-A I-A I-B B-B", "A02 B23 B34"),
        ("B-A O I-A", "A01 A23"),
        ("E-A E-A", "A01 A12"),
        ("S-A I-A", "A01 A12"),
        ("B-A E-A I-A", "A02 A23"),
        ("S-A S-A E-A", "A01 A12 A23"),
        ("I-A E-A B-A", "A02 A23"),
        ("B I O I", "02 34"),
        ("O O", ""),
        ("", ""),
        # Not as seqeval, to which a name without mark is its first letter and the rest: there this is "RG02 ER34".
        ("ORG ORG O PER", "ORG02 PER34"),
    ],
)
def test_spans_of_tags(tags, expected):
    found = " ".join(f"{kind}{start}{stop}" for kind, start, stop in extract_spans(tags.split()))
    assert found == expected


def test_spans_by_kind_and_without_any():
    truth, predicted = [["B-A", "I-A", "O", "B-B"]], [["B-A", "O", "B-C", "B-B"]]
    assert count_spans(predicted, truth) == {"A": (0, 1, 1), "B": (1, 1, 1), "C": (0, 1, 0)}
    assert score_spans([["O"]], [["O"]]).scores == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 1}
    assert score_spans([[]], [[]]).scores["accuracy"] == 0


ANSWERS = [
    # What is said, what is right, exact and f1: of SQuAD 2.0's script, and of 1.1's where that differs.
    ("the Normans", ["Normans"], 1, 1),
    ("Norman's", ["Normans"], 1, 1),
    ("The U.S. Army!", ["US army", "Army"], 1, 1),
    ("Über die Straße", ["über die straße", "Straße"], 1, 1),
    ("10,000 men", ["10000", "10,000 men and women"], 0, 0.666666666667),
    ("«naïve» café", ["naïve café"], 0, 0.5),
    ("the the cat cat", ["cat"], 0, 0.666666666667),
    ("an apple a day", ["apple day", "day"], 1, 1),
    ("one-two", ["one two", "onetwo"], 1, 1),
    ("theatre", ["atre"], 0, 0),
    ("in 1066 , in", ["in in 1066"], 0, 1),
    ("  spaced\tout ", ["spaced out"], 1, 1),
    ("A–an–the", ["–"], 0, 0.666666666667),
    ("İstanbul", ["i̇stanbul"], 1, 1),
    ("", ["x"], 0, 0),
    ("…", ["."], 0, 0),
    ("a", ["the"], 1, 1, 1, 0),
    ("A", ["B", "."], 0, 0, 1, 0),
]


@pytest.mark.parametrize("case", ANSWERS, ids=str)
def test_answers(case):
    output, right, exact, f1, *first = case
    assert is_close(
        score_answers([output], [right]).scores,
        **dict(zip(("exact", "f1"), first or (exact, f1), strict=True)),
    )
    # One question without an answer, which is left unanswered, makes it SQuAD 2.0.
    found = score_answers([output, ""], [right, []]).scores
    assert is_close(found, exact=(exact + 1) / 2, f1=(f1 + 1) / 2, unanswerable=1)


def test_answers_that_are_missing():
    found = score_answers(["", "x", "a cat", "dog"], [[], [], ["the cat"], ["dog cat"]]).scores
    assert is_close(found, exact=0.5, f1=(1 + 0 + 1 + 2 / 3) / 4, unanswerable=0.5)
    assert is_close(found, answerable_exact=0.5, answerable_f1=5 / 6)
    assert score_answers(["a"], [["a"]]).scores.keys() == {"exact", "f1"}


def test_what_cannot_be_scored():
    with pytest.raises(BertJaxError, match="1 predictions"):
        score_single_label(["a"], ["a", "b"], "ab")
    with pytest.raises(BertJaxError, match="example"):
        score_numbers([], [])
    with pytest.raises(BertJaxError, match="sequence 1"):
        score_spans([["O"], ["O"]], [["O"], ["O", "O"]])
