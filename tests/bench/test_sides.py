"""All sides of a comparison compute the same."""

import json

import numpy as np
import pytest

from bert_jax.predictions import calibration
from bert_jax.predictions.calibration import Calibration
from tests.bench import families
from tests.bench.__main__ import main
from tests.bench.texts import CONTENDERS
from tests.support.embedding_tasks import random_pairs
from tests.support.pretraining_runs import make_corpus, train_command
from tests.support.small_models import SMALL_TEXTS, write_model
from tests.support.tables import write_jsonl

LABELS = "no", "yes", "maybe"


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


@pytest.mark.slow
def test_a_sparse_embedder_and_that_of_sentence_transformers_learn_the_same(encoder_path, tmp_path, capsys):
    pytest.importorskip("sentence_transformers")
    pairs = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    settings = (
        f"init={encoder_path}", f"data.train={pairs}", "data.max_length=16", "data.batch_size=8", "steps=9",
        "optimizer.learning_rate=0.0003", "loss.document_regularizer_weight=0.1", "model.hidden_dropout_prob=0.0",
        "model.attention_probs_dropout_prob=0.0",
    )  # fmt: skip
    command = ["finetune", "--config", "configs/sparse.py", *(f"--config.{setting}" for setting in settings)]
    sides = ["--dtype", "float32", "--against", "sentence-transformers", "--rounds", "2", "--json"]
    assert main([*command, *sides]) == 0
    notes = json.loads(capsys.readouterr().out.splitlines()[-1])["notes"]
    _, apart, *seeds, ours, _, theirs, _ = notes
    assert float(apart.rsplit(" ", 1)[1]) < 1e-4
    assert len(seeds) == 2 and all("+0.0000 ± 0.0000 on the same 6 queries" in seed for seed in seeds)
    assert ours.removeprefix("bert_jax float32: ") == theirs.removeprefix("sentence-transformers: ")


@pytest.mark.slow
def test_a_late_interaction_model_and_that_of_sentence_transformers_learn_the_same(
    encoder_path, tmp_path, capsys
):
    pytest.importorskip("sentence_transformers")
    pairs = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    settings = (
        f"init={encoder_path}", f"data.train={pairs}", "data.max_length=16", "data.batch_size=8", "steps=9",
        "optimizer.learning_rate=0.0003", "model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0",
        "model.query_expansion=fixed", "model.query_length=9",
    )  # fmt: skip
    keys = [f"--config.{setting}" for setting in settings]
    sides = ["--dtype", "float32", "--against", "sentence-transformers", "--rounds", "1", "--json"]
    assert main(["finetune", "--config", "configs/late_interaction.py", *keys, *sides]) == 0
    _, apart, seed = json.loads(capsys.readouterr().out.splitlines()[-1])["notes"]
    assert float(apart.rsplit(" ", 1)[1]) < 1e-4
    assert "+0.0000 ± 0.0000 on the same 6 queries" in seed
