"""All sides of a comparison compute the same."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.predictions import calibration
from bert_jax.predictions.calibration import Calibration
from tests.bench import families, tokenizers
from tests.bench.__main__ import main
from tests.bench.finetune import TorchFinetuning
from tests.bench.pretrain import compare_pretraining
from tests.bench.search import KINDS, Size, measure_search
from tests.bench.texts import CONTENDERS, compare_texts
from tests.bench.turns import Limits
from tests.support.pretraining_runs import make_corpus, train_command
from tests.support.project import ROOT
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, write_model

LABELS = "no", "yes", "maybe"
ONCE = ["--rounds", "1", "--seconds", "0", "--json"]


@pytest.mark.slow
def test_everyone_gives_the_same_logits(tmp_path):
    for library in ("onnx", "onnxruntime", "transformers"):
        pytest.importorskip(library)
    write_model(tmp_path, heads=("classify",), labels=LABELS)
    # Neither transformers nor the comparison of logits minds a calibration.
    calibration.save_calibration(tmp_path, Calibration("classes", LABELS, (2.0,)))
    logits = [contender(str(tmp_path))(SMALL_TEXTS) for contender in CONTENDERS["predict"].values()]
    assert len(logits) == 3 and logits[0].shape == (len(SMALL_TEXTS), 3)
    for others in logits[1:]:
        np.testing.assert_allclose(others, logits[0], atol=1e-5)


@pytest.mark.ci
def test_a_model_is_compared_with_another_one_of_ours(tmp_path):
    for name, layers in (("whole", 2), ("half", 1)):
        write_model(
            tmp_path / name,
            SMALL_CONFIG.replace(num_hidden_layers=layers),
            heads=("classify",),
            labels=LABELS,
        )
    whole, half = (str(tmp_path / name) for name in ("whole", "half"))
    comparison = compare_texts("predict", whole, SMALL_TEXTS, ["float32"], [half], Limits(1, 0))
    assert [row.other.split()[0] for row in comparison.rows] == [half] * 3
    assert all(row.ratios["float32"].median > 0 for row in comparison.rows)
    with pytest.raises(BertJaxError, match="neither a library nor a model directory"):
        compare_texts("predict", whole, SMALL_TEXTS, ["float32"], ["transformer"], Limits(1, 0))


@pytest.mark.long
def test_a_fine_tuning_and_that_of_transformers(tmp_path, capsys):
    torch, _ = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for autocast, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        with TorchFinetuning.computing(SimpleNamespace(torch=torch, autocast=autocast)):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    write_model(tmp_path / "model", heads=("mlm",))
    rows = [f"the {('cat', 'mat')[n % 2]} sat {n},{('no', 'yes')[n % 2]}" for n in range(64)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    flags = ["--config", f"{ROOT}/configs/classify.py", f"--config.init={tmp_path / 'model'}",
             f"--config.data.train={tmp_path / 'train.csv'}", "--config.data.max_length=8",
             "--config.data.calibration_ratio=0", "--config.epochs=3", *ONCE]  # fmt: skip
    others = ["transformers", "transformers-autocast"]
    assert main(["finetune", *flags, "--rounds", "2", "--against", *others]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["other"].split()[0] for row in result["rows"]] == others
    assert all(list(row["ours"]) == ["float32", "bfloat16"] for row in result["rows"])
    assert all(row["ratios"]["bfloat16"]["rounds"] == 2 for row in result["rows"])
    assert "losses of a step differ" in result["notes"][-1]


@pytest.mark.long
def test_a_size_beside_that_of_transformers(tmp_path):
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    families.write_classifier("tiny", str(tmp_path))
    sides = [side(str(tmp_path), {"states": 2, "step": 2}, 16) for side in (families.Ours, families.Theirs)]
    ours, theirs = (side.states() for side in sides)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert ours.shape == (2, 16, 128)
    before = sides[0].model.params["classify"]["dense"]["kernel"]
    assert all(side.step() > 0 for side in sides)
    weight = sides[1].classifier.classifier.weight.detach().numpy().T
    for after in (sides[0].state.params["classify"]["dense"]["kernel"], weight):
        rate = families.RUN.optimizer.learning_rate
        assert np.abs(after - before).max() == pytest.approx(rate, rel=0.05)  # Adam's first step


@pytest.mark.long
def test_a_step_beside_that_of_torch(capsys):
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    settings = ["data.batch_size=2", "data.lengths=16", "data.length_ratios=1"]
    flags = ["--config", f"{ROOT}/configs/pretrain.py:tiny", *(f"--config.{s}" for s in settings)]
    assert main(["step", *flags, *ONCE, "--against", "torch", "torch-autocast"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["other"].split()[0] for row in result["rows"]] == ["torch", "torch-autocast"]
    assert all(float(seconds) > 0 for row in result["rows"] for seconds in row["ours"].values())


@pytest.mark.long
def test_a_pre_training_and_that_of_transformers_reach_the_same(tmp_path, capsys):
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    settings = train_command(
        make_corpus(tmp_path), tmp_path / "run", steps=40,
        **{"log.evaluate_every": 20, "model.hidden_dropout_prob": 0, "model.attention_probs_dropout_prob": 0},
    )  # fmt: skip
    flags = settings[settings.index("train") + 1 :]
    assert main(["pretrain", *flags, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["what"].split()[1] for row in rows] == ["20", "40"]
    for row in rows:
        ours, theirs = (
            np.array(text.split(": ")[-1].split(", "), float)
            for text in (row["ours"]["float32"], row["other"])
        )
        np.testing.assert_allclose(ours[[0, 2]], theirs[[0, 2]], rtol=1e-4)  # losses, and then accuracies
        np.testing.assert_allclose(ours[[1, 3]], theirs[[1, 3]], atol=0.02)


@pytest.mark.parametrize(
    ("init", "message"), [("model", "does not pre-train from random values"), ("", "corpus")]
)
def test_a_pre_training_that_cannot_be_compared_is_refused(init, message, tmp_path):
    write_model(tmp_path / "model", heads=("mlm",))
    settings = [f"init={tmp_path / init if init else ''}", f"data.corpora={tmp_path}/corpus"]
    with pytest.raises(BertJaxError, match=message):
        compare_pretraining(f"{ROOT}/configs/pretrain.py:tiny", settings, str(tmp_path))


@pytest.mark.slow
def test_a_corpus_beside_the_bare_tokenizer(tmp_path, capsys, monkeypatch):
    make_corpus(tmp_path)
    monkeypatch.setattr("tests.bench.prepare.CHUNK", 1000)
    inputs = ["--input", str(tmp_path / "text.txt"), "--layout", "sentences", "--megabytes", "0.05"]
    assert main(["prepare", *inputs, "--tokenizer", str(tmp_path / "vocabulary"), *ONCE]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert row["ratios"]["float32"]["rounds"] == 1 and float(row["ours"]["float32"]) > 0


@pytest.mark.long
def test_every_kind_of_index_is_measured(tmp_path):
    size = Size(12_000, 64, 100)
    figures, adding, _ = measure_search(str(tmp_path), size)
    assert figures.keys() == set(KINDS) and figures["float32"]["recall"] == 1
    assert all(row["recall"] > 0.9 and row["p50_ms"] <= row["p99_ms"] for row in figures.values())
    assert adding["queries"] > 1 and adding["found"] == 1000
    with pytest.raises(BertJaxError, match="holds an index already; name a new --output"):
        measure_search(str(tmp_path), size)


def test_texts_with_other_ids_are_all_printed(monkeypatch, capsys):
    texts = [f"text {n}" for n in range(30)]
    counts = {"tokens": 60, "ids": 30, "offsets": 0, "first": texts}
    monkeypatch.setattr(tokenizers, "reference_pairs", lambda path: [(str(path), None, None)])
    monkeypatch.setattr(tokenizers, "compare", lambda ours, theirs, corpus: counts)
    with pytest.raises(BertJaxError, match="30 differences from transformers; the texts are above"):
        tokenizers.compare_tokenizers(["vocab"], [])
    printed = capsys.readouterr().err
    assert all(repr(text) in printed for text in texts)
