"""Training and validation: labels that both know, documents that stand in one of them."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example, check_labels, label_names
from bert_jax.data.examples.split import assign_folds, text_key, train_validation_split
from bert_jax.finetuning.finetune_task import duplicate_warnings
from bert_jax.predictions.kind import KINDS
from bert_jax.report.data_facts import collect_data_facts
from bert_jax.text.wordpiece import WordPiece
from tests.support.small_models import SMALL_VOCABULARY


def examples(labels, document=lambda i: ""):
    return [
        Example(f"text {i}", label, f"a.csv row {i + 2}", "", document(i)) for i, label in enumerate(labels)
    ]


def test_names_and_unknown_labels():
    assert label_names(examples(["10", "9", "-1", "9"])) == ("-1", "9", "10")
    assert label_names(examples([("O", "I-PER"), ("B-LOC",)])) == ("B-LOC", "I-PER", "O")
    assert label_names(examples(["a", "b"]), ("b", "c", "a")) == ("b", "c", "a")
    assert label_names(examples([1.5, 2.5])) == ()
    check_labels(examples(["good", "bad"]), ("bad", "good"))
    with pytest.raises(BertJaxError, match='a.csv.*row 3.*"god".*"good"'):
        check_labels(examples(["good", "god"]), ("bad", "good"))
    with pytest.raises(BertJaxError, match='a.csv.*row 2.*"I-PRE".*"I-PER"'):
        check_labels(examples([("O", "I-PRE")]), ("I-PER", "O"))
    with pytest.raises(BertJaxError, match='a.csv.*row 2.*"good"'):
        check_labels(examples(["good", "good"]), ("good",))


def test_a_split_keeps_documents_and_labels_apart():
    labels = ["rare" if i % 50 == 0 else "often" for i in range(1000)]
    train, held = train_validation_split(examples(labels), 0.1, seed=1)
    assert Counter(e.label for e in held) == {"often": 98, "rare": 2}
    assert sorted(e.where for e in train + held) == sorted(e.where for e in examples(labels))
    assert (train, held) == train_validation_split(examples(labels), 0.1, seed=1)
    other = train_validation_split(examples(labels), 0.1, seed=2)[1]
    assert len(other) == 100 and len({e.text for e in other} & {e.text for e in held}) < 50

    train, held = train_validation_split(examples(labels, document=lambda i: f"document {int(i**0.5)}"), 0.2)
    assert not {e.document for e in train} & {e.document for e in held}
    assert 150 < len(held) < 250

    twice = examples(["a", "b"] * 50) + examples(["a", "b"] * 50)
    train, held = train_validation_split(twice, 0.2)
    assert len(held) == 40 and not {e.text for e in train} & {e.text for e in held}

    train, held = train_validation_split(examples([float(37 * i % 100) for i in range(100)]), 0.1)
    assert [int(label // 10) for label in sorted(e.label for e in held)] == list(range(10))
    assert train_validation_split(examples(labels), 0)[1] == []
    # A run that goes on is judged by the examples that it began with.
    mixed = [
        Example(f"text {i}", "rare" if i % 7 == 0 else "often", "", "", f"d{i // 3}" * (i % 2))
        for i in range(200)
    ]
    held = repr([e.text for e in train_validation_split(mixed, 0.2, 3)[1]])
    assert hashlib.sha256(held.encode()).hexdigest()[:16] == "2c452e153b899bc3"
    for few, share in ((examples(labels, document=lambda i: "one"), 0.2), (examples(labels)[:3], 0.1)):
        with pytest.raises(BertJaxError, match="cannot be split"):
            train_validation_split(few, share)


def test_texts_that_differ_only_in_case_and_spaces_stay_together_and_count_as_the_report_counts_them():
    texts = [f"Text {i}" for i in range(20)]
    several = [Example(text, "x", "") for text in [*texts, *(f"  {text.upper()}" for text in texts[:5])]]
    train, held = train_validation_split(several, 0.3)
    assert not {text_key(e.text) for e in train} & {text_key(e.text) for e in held}
    folds = assign_folds(several, 5)
    assert np.array_equal(folds[:5], folds[20:])
    (warning,) = duplicate_warnings(several)
    kind = KINDS["classes"](("x",))
    facts = collect_data_facts({"all": several}, WordPiece.from_vocabulary(SMALL_VOCABULARY), 6, kind)
    assert warning.startswith(f"{facts['all'].repeated} of 25 training texts are duplicates")
