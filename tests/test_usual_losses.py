"""Where losses usually are: the band, the line that says that a run left it, and its picture."""

import json
import math

import numpy as np
import pytest
from matplotlib.image import imread

import runs
from bert_jax import tasks
from bert_jax.data.corpus.config import DataConfig
from bert_jax.models.config import EncoderConfig
from bert_jax.report.curves import draw
from bert_jax.tasks import usual_losses
from bert_jax.tasks.usual_losses import FILE, MARGIN, Recipe, UsualLosses, known_curves, usual
from bert_jax.train.loop import train

DATA = DataConfig(lengths=(64,), shares=(1.0,), examples="full_sentences", batch=64, rate=0.4)
TINY = EncoderConfig(layers=2, hidden_size=128, heads=2, feed_forward=512, vocab_size=8192)


def test_the_band_is_around_all_runs_and_grows_with_the_vocabulary():
    band = UsualLosses(1000, (((50, 0.9), (150, 0.7)), ((50, 0.8), (100, 0.8))))
    for step, low, high in ((50, 0.8, 0.9), (100, 0.8, 0.8), (125, 0.75, 0.75)):
        assert band.at(step) == pytest.approx(
            (math.log(1000) * low * (1 - MARGIN), math.log(1000) * high * (1 + MARGIN))
        )
    assert band.at(49) is band.at(151) is None
    larger = UsualLosses(1_000_000, band.curves).at(50)
    assert larger == pytest.approx([2 * edge for edge in band.at(50)])


def test_known_runs_are_whole_and_learn():
    for recipe, curves in known_curves().items():
        assert recipe.examples == "full_sentences" and len(curves) > 1, "a band needs several sorts of text"
        for curve in curves:
            steps, shares = zip(*curve, strict=True)
            assert steps == tuple(range(50, steps[-1] + 1, 50)) and 600 <= steps[-1] <= 2000
            # What is read off the corpus is known before the first step.
            begun = 0.85 if recipe.embeddings == "random" else 0.6
            assert begun < shares[0] < 1.05 and min(shares) > 0.4
            assert np.polyfit(np.log(steps), shares, 1)[0] < -0.02


def test_what_is_known_of_tiny_and_of_no_other_recipe():
    for embeddings in ("cooccurrences", "random"):
        assert usual(TINY, DATA, embeddings) is not None
    for model, data in (
        (TINY.replace(layers=3), DATA),
        (TINY, DataConfig()),
        (TINY, DataConfig(lengths=(64,), shares=(1.0,), examples="full_sentences", batch=64, rate=0.15)),
    ):
        assert usual(model, data, "random") is None


@pytest.mark.slow
def test_a_run_that_leaves_the_band_is_told_of_it_once(tmp_path, monkeypatch, capsys):
    corpus = runs.small_corpus(tmp_path)
    settings = {
        "data.corpora": corpus, "data.lengths": 24, "data.shares": 1, "data.batch": 8, "steps": 30, "log.every": 5,
        "data.examples": "full_sentences", "model.layers": 1, "model.hidden_size": 32, "model.heads": 2,
        "model.feed_forward": 64, "optimizer.warmup": 5,
    }  # fmt: skip
    overrides = [f"{name}={value}" for name, value in settings.items()]
    spec = f"{runs.ROOT}/configs/pretrain.py:tiny"
    told = {}
    for name, share in (("high", 0.5), ("usual", 1.0), ("low", 1.5)):
        recipe = Recipe(1, 32, "full_sentences", 24, 8, 0.15, "random")
        monkeypatch.setattr(usual_losses, "known_curves", lambda s=share, r=recipe: {r: (((5, s), (20, s)),)})
        module, config = tasks.load(spec, overrides)
        task, data, config = module.open(config)
        train(task, data, config, tmp_path / name)
        told[name] = [line for line in capsys.readouterr().err.splitlines() if "usually have" in line]
    assert not told["usual"]
    for name, word in (("high", "above the"), ("low", "below the")):
        assert len(told[name]) == 1 and word in told[name][0]
        assert told[name][0].startswith("step 6: mlm_loss 6.9")
    # A run that goes on from a model is another one.
    _, config = tasks.load(spec, [*overrides, f"init={tmp_path / 'usual/model'}", "first_step=0"])
    assert module.open(config)[0].usual(5) == {}


def test_the_band_is_drawn(tmp_path):
    lines = [{"step": step, "kind": "train", "mlm_loss": 7.0} for step in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shades = []
    for name, usual_of in (("with", lambda step: {"mlm_loss": (6.5, 7.5)}), ("without", lambda step: {})):
        draw(tmp_path / "metrics.jsonl", tmp_path / name, usual_of)
        pixels = imread(tmp_path / name)[..., :3]
        shades.append((np.abs(pixels - 0.88).max(-1) < 0.01).mean())
    assert shades[0] > 0.2 > shades[1]


def test_the_table_ships_with_the_package():
    assert FILE.name in (runs.ROOT / "pyproject.toml").read_text()
