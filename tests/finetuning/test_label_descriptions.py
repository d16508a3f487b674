"""Texts that describe labels are further examples for a probe, if folds show that they help."""

import itertools
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.finetuning import cross_validation
from bert_jax.finetuning.label_descriptions import describe_labels, encode_descriptions
from bert_jax.predictions.kind import KINDS
from tests.support.finetuning_runs import finetune
from tests.support.tables import write_csv
from tests.support.texts import random_texts
from tests.support.tiny_encoder import TOKENIZER

LABELS = ("w10 w11", "w20 w21")
FEW = [Example(f"w{n}", LABELS[n % 2], "") for n in range(20)]


@pytest.mark.parametrize(
    ("given", "labels", "examples", "expected"),
    [
        ("auto", ("PlayMusic", "rate_book"), FEW, {"PlayMusic": "play music", "rate_book": "rate book"}),
        ("none", ("PlayMusic", "rate_book"), FEW, {}),
        ("auto", ("0", "1"), FEW, {}),
        ("auto", ("LABEL_0", "LABEL_1"), FEW, {}),
        ("auto", ("sad", "glad"), FEW * 7, {}),
        ("auto", ("sad", "glad"), [Example(("a", "b"), "sad", "")], {}),
        ('{"sad": "full of sorrow"}', ("sad", "glad"), FEW * 7, {"sad": "full of sorrow"}),
    ],
)
def test_names_are_tried_where_they_may_help(given, labels, examples, expected):
    assert describe_labels(given, KINDS["classes"](labels), examples) == expected


def test_descriptions_are_examples_of_their_labels_apart_from_the_others():
    kind = KINDS["classes"](LABELS)
    encoded_windows = encode_descriptions({"w20 w21": "w5 w6 w7"}, kind, TOKENIZER, 16)
    assert [TOKENIZER.decode(window.encoding.input_ids) for window in encoded_windows] == ["w5 w6 w7"]
    assert [int(window.targets["labels"]) for window in encoded_windows] == [1]
    assert all(window.example < 0 for window in encoded_windows)


def run(tmp_path, encoder_path, name: str, **changes):
    """The head that a run makes; what its labels mean is in no text."""
    rows = [(text, LABELS[n % 2]) for n, text in enumerate(random_texts(30))]
    given = {
        "label_descriptions": json.dumps(dict(zip(LABELS, LABELS, strict=True))),
        "data.train": write_csv(tmp_path / "t.csv", rows), "data.folds": 3, "method": "linear_probe",
        "head_init": "linear_probe", "optimizer.learning_rate": 0,
    }  # fmt: skip
    finetune("classify", encoder_path, tmp_path / name, **given | changes)
    return load_file(tmp_path / name / "model/model.safetensors")["classifier.weight"]


@pytest.mark.long
def test_folds_keep_or_drop_descriptions_and_a_resumed_run_knows(tmp_path, encoder_path, monkeypatch, capsys):
    plain = run(tmp_path, encoder_path, "plain", label_descriptions="none")
    assert "descriptions" not in capsys.readouterr().err
    heads = {}
    for word, losses in {"kept": (0.5, 0.6), "left out": (0.6, 0.5)}.items():
        judged = []

        def loss_of(outcomes, judged=judged, losses=losses):
            judged.append(np.stack(outcomes.raw_outputs))
            return losses[(len(judged) - 1) % 2]  # folds are predicted again where a run is resumed

        monkeypatch.setattr(cross_validation, "class_loss", loss_of)
        heads[word] = run(tmp_path, encoder_path, word)
        assert np.abs(judged[0] - judged[1]).max() > 1e-3
        assert (
            f"the probe's log loss out of fold is {losses[0]:.3f}, without {losses[1]:.3f}, so they are {word}"
            in (capsys.readouterr().err)
        )
    assert np.abs(heads["kept"] - plain).max() > 1e-3
    np.testing.assert_array_equal(heads["left out"], plain)
    recorded = json.loads((tmp_path / "left out/run.json").read_text())["config"]
    assert recorded["label_descriptions"] == "none"
    (tmp_path / "left out/finished.json").unlink()
    np.testing.assert_array_equal(run(tmp_path, encoder_path, "left out"), plain)


@pytest.mark.slow
def test_descriptions_may_be_a_mapping_or_a_file(tmp_path, encoder_path, monkeypatch):
    losses = itertools.cycle((0.5, 0.6))  # they are kept
    monkeypatch.setattr(cross_validation, "class_loss", lambda _: next(losses))
    texts, labels = random_texts(20), list(LABELS) * 10
    described = {LABELS[0]: "w1 w2", LABELS[1]: "w3"}
    (tmp_path / "labels.json").write_text(json.dumps(described))
    settings = {"method": "linear_probe", "report": False, "data": {"folds": 2, "max_length": 32}}
    heads = [
        bert_jax.finetune(encoder_path, texts, labels, label_descriptions=given, **settings).model.params[
            "classify"
        ]
        for given in (described, str(tmp_path / "labels.json"), "none")
    ]
    kernels = [np.asarray(head["dense"]["kernel"]) for head in heads]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert np.abs(kernels[0] - kernels[2]).max() > 1e-3


WRONG = {
    "no file": ("nowhere.json", {}, "is neither a file nor a JSON object"),
    "not JSON": ('{"a"', {}, "is not valid JSON"),
    "not texts": ('{"a": 3}', {}, '"a" is a number, not a text'),
    "an unknown label": ('{"w10 w12": "x"}', {}, 'no label "w10 w12"'),
    "several labels": (
        '{"a": "x"}',
        {"problem_type": "multi_label_classification"},
        "for one class per text",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_descriptions_are_said_in_one_line(fault, tmp_path, encoder_path):
    given, changes, message = WRONG[fault]
    with pytest.raises(BertJaxError) as error:
        run(tmp_path, encoder_path, "run", label_descriptions=given, **changes)
    assert message in str(error.value) and "\n" not in str(error.value)
