"""What a run shows while it goes: lines and a progress bar, and its curves afterwards, however short it is."""

import io
import json
import sys
from functools import partial
from time import sleep

import numpy as np
import pytest
from matplotlib.image import imread
from tqdm import tqdm

from bert_jax.core.terminal import log_file
from bert_jax.inference.streaming import stream_results
from bert_jax.report.training_curves import draw_training_curves
from bert_jax.runs.run import draw_training
from bert_jax.training.log import BAR, NARROWEST, drop_to_fit, format_metrics, free_columns
from bert_jax.training.run_config import FEWEST_LINES, LogConfig, RunConfig
from bert_jax.training.workdir import Workdir


@pytest.mark.parametrize(("first", "steps"), [(0, 1), (0, 9), (0, 40), (7, 46), (0, 990), (0, 100_000)])
def test_every_run_has_ten_lines_or_one_for_each_step(first, steps):
    config = RunConfig(steps=steps, first_step=first, init="model" if first else "", log=LogConfig(every=100))
    lines = sum(step % config.log_interval == 0 or step == steps for step in range(first + 1, steps + 1))
    assert lines >= min(FEWEST_LINES, steps - first)
    assert config.log_interval <= 100


@pytest.mark.parametrize("steps", [40, 1_000_000])
def test_a_progress_bar_of_80_columns_shows_the_loss_and_how_far_the_run_is(steps):
    values = {
        "loss": 7.6034,
        "mlm_loss": 6.9,
        "mlm_accuracy": 0.0015886,
        "tokens_per_second": 17432.1,
        "mfu": 0.41,
    }
    screen = io.StringIO()
    with tqdm(total=steps, initial=steps // 2, unit="step", file=screen, ncols=80) as bar:
        bar.set_postfix_str(drop_to_fit(format_metrics(values, BAR), free_columns(bar)))
        line = str(bar)
    assert len(line) <= 80 and "loss 7.603" in line
    between = line.split("|")[1]
    assert len(between) >= NARROWEST and set(between) > {" "}


def test_nothing_is_drawn_of_a_run_without_steps(tmp_path):
    directory = Workdir(tmp_path)
    for step in (0, 3):
        line = {"step": step, "kind": "validation", "accuracy": 0.5}
        directory.metrics.write_text(json.dumps(line) + "\n")
        draw_training(directory)
        assert directory.curves.exists() == (step > 0)


def test_a_single_point_is_seen_in_the_curves(tmp_path):
    line = {"step": 40, "kind": "train", "loss": 7.6}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    draw_training_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png")
    red, _, blue = np.moveaxis(imread(tmp_path / "curves.png")[..., :3], -1, 0)
    middle = (slice(red.shape[0] // 3, None), slice(red.shape[1] // 3, red.shape[1] * 2 // 3))
    assert (blue - red)[middle].max() > 0.3, "where the point is, not in the legend alone"


@pytest.mark.slow
def test_a_notebook_shows_lines_as_output_and_no_bar_for_a_single_batch(monkeypatch, capsys):
    assert log_file() is sys.stderr
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert log_file() is sys.stdout
    slow = partial(map, lambda text: sleep(2.1) or text)
    assert list(stream_results(["a"], slow, total=1)) == ["a"]
    assert "texts" not in capsys.readouterr().err
    assert list(stream_results(["a", "b", "c"], slow, total=3, at_once=1)) == ["a", "b", "c"]
    assert "3/3" in capsys.readouterr().err
