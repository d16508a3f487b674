"""`bert-jax bench quality`: models beside each other by score and by speed."""

import json

import pytest

from bert_jax.bench.quality import compare
from bert_jax.bench.turns import Limits
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.model import load
from bert_jax.report.compare import compare as compare_pair
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, write_model
from tests.support.tables import write_jsonl

LABELS = "no", "yes", "maybe"


@pytest.mark.long
def test_scores_are_those_of_evaluate_and_parameters_are_counted(tmp_path, capsys):
    """A model, and one with half of its layers; the labels are what the first predicts, but for the last one."""
    models = [tmp_path / "whole/model", tmp_path / "half/model"]
    for path, layers in zip(models, (2, 1), strict=True):
        write_model(path, SMALL_CONFIG.replace(layers=layers), heads=("classify",), labels=LABELS)
    labels = [prediction.label for prediction in load(models[0]).classify(SMALL_TEXTS)]
    labels[-1] = next(label for label in LABELS if label != labels[-1])
    rows = [{"text": text, "label": label} for text, label in zip(SMALL_TEXTS, labels, strict=True)]
    data, picture = write_jsonl(tmp_path / "test.jsonl", rows), tmp_path / "quality.png"
    names = [str(path) for path in models]
    asked = ["bench", "quality", *names, "--data", str(data), "--rounds", "1", "--seconds", "0"]
    assert main([*asked, "--picture", str(picture), "--json"]) == 0
    whole, half = (result := json.loads(capsys.readouterr().out))["models"]
    assert result["score"] == "accuracy"
    assert whole["score"]["value"] == pytest.approx(1 - 1 / len(SMALL_TEXTS))
    known = json.loads(compare_pair(*names, str(data), as_json=True))
    assert half["score"]["value"] == known["scores"][1]["accuracy"]
    assert half["difference"] == known["differences"]["accuracy"] and whole["difference"] is None
    width, inner = SMALL_CONFIG.hidden_size, SMALL_CONFIG.feed_forward
    attention, feed_forward = 4 * (width * width + width), 2 * width * inner + inner + width
    layer = attention + feed_forward + 2 * 2 * width  # and two normalisations
    assert whole["parameters"] - half["parameters"] == layer
    assert whole["speed"]["median"] == 1 and half["speed"]["median"] > 0
    assert picture.stat().st_size > 10_000

    assert main(asked) == 0
    table = capsys.readouterr().out
    assert f"| {names[0]} | {whole['parameters']:,} |" in table and f"{names[1]} - {names[0]}" in table


def test_other_labels_and_a_model_named_twice_are_refused(tmp_path):
    write_model(tmp_path / "a", heads=("classify",), labels=LABELS)
    write_model(tmp_path / "b", heads=("classify",), labels=("no", "yes"))
    data = write_jsonl(tmp_path / "test.jsonl", [{"text": text, "label": "no"} for text in SMALL_TEXTS])
    limits = Limits(1, 0)
    for models, message in (
        (("a", "b"), "compare models that have the same labels"),
        (("a", "a"), "named twice"),
    ):
        with pytest.raises(BertJaxError, match=message):
            compare([str(tmp_path / name) for name in models], str(data), limits)
