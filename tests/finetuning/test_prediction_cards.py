"""The model cards of what predicts labels, numbers, tags or answers."""

import pytest

from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.finetuning.finetune_config import ExamplesConfig
from bert_jax.finetuning.model_cards import prediction_card
from bert_jax.predictions.calibration import UNCALIBRATED
from tests.support.families import FAMILY_CONFIGS, family_layout
from tests.support.made_up_outcomes import make_outcomes

DATA = ExamplesConfig(train="t.csv", columns=ExampleColumns(text="review", label="stars"))


def card_of(given, head: str):
    published = FAMILY_CONFIGS["nomic_bert"] | {"vocab_size": 61}
    layout = family_layout("nomic_bert", published, (head,), given.kind.labels)
    return prediction_card(layout, given.kind, DATA, given.examples, "t.csv: 60 examples")


@pytest.mark.parametrize(
    ("kind", "head", "ours", "theirs"),
    [("classes", "classify", 'Classifier.load("DIR").predict("a text")', '("a text", return'),
     ("number", "classify_mean", 'Classifier.load("DIR").predict("a text")', '"DIR", trust_remote_code=True)'),
     ("tags", "tag", 'Tagger.load("DIR").tag("a text")', 'AutoModelForTokenClassification.from_pretrained("DIR")'),
     ("answers", "answer", 'QuestionAnswerer.load("DIR").answer("a question", "a passage")', "trust_remote_code")],
)  # fmt: skip
def test_a_card_says_how_a_model_is_used_and_what_it_learnt_from(kind, head, ours, theirs):
    given = make_outcomes(kind)
    card = card_of(given, head)
    assert f"bert_jax.{ours}\n" in card.usage and theirs in card.usage
    assert ("modeling_bert_jax.py" in " ".join(card.about)) is ("trust_remote_code" in card.usage)
    assert card.data[:2] == [
        "t.csv: 60 examples.",
        "Columns: text `review`, label `stars`; others by their usual names.",
    ]
    for label, count in given.kind.targets.count_labels(given.examples).items():
        assert f"| {label} | {count} |" in card.data
    worth = card.describe_calibration(UNCALIBRATED)
    assert worth.startswith(
        "The model gives a number" if kind == "number" else "Probabilities were not calib"
    )
    if kind in ("classes", "tags"):
        assert card.describe_calibration(given.kind.decoder.calibrate(given)).startswith(
            "Calibrated on 60 examples: "
        )
