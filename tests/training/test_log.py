"""What a run shows while it goes: lines and a progress bar, and its curves afterwards, however short it is."""

import json
import sys
from functools import partial
from time import sleep

import pytest

from bert_jax.core.terminal import log_file
from bert_jax.inference.streaming import stream_results
from bert_jax.runs.run import draw_training
from bert_jax.training.run_config import FEWEST_LINES, LogConfig, RunConfig
from bert_jax.training.workdir import Workdir


@pytest.mark.parametrize(("first", "steps"), [(0, 1), (0, 9), (0, 40), (7, 46), (0, 990), (0, 100_000)])
def test_every_run_has_ten_lines_or_one_for_each_step(first, steps):
    config = RunConfig(steps=steps, first_step=first, init="model" if first else "", log=LogConfig(every=100))
    lines = sum(step % config.log_interval == 0 or step == steps for step in range(first + 1, steps + 1))
    assert lines >= min(FEWEST_LINES, steps - first)
    assert config.log_interval <= 100


def test_nothing_is_drawn_of_a_run_without_steps(tmp_path):
    directory = Workdir(tmp_path)
    for step in (0, 3):
        line = {"step": step, "kind": "validation", "accuracy": 0.5}
        directory.metrics.write_text(json.dumps(line) + "\n")
        draw_training(directory)
        assert directory.curves.exists() == (step > 0)


def test_a_notebook_shows_lines_as_output_and_no_bar_for_a_single_batch(monkeypatch, capsys):
    assert log_file() is sys.stderr
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert log_file() is sys.stdout
    monkeypatch.setattr("bert_jax.core.progress.BAR_AFTER", 0.1)
    slow = partial(map, lambda text: sleep(0.2) or text)
    assert list(stream_results(["a"], slow, total=1)) == ["a"]
    assert "texts" not in capsys.readouterr().err
    assert list(stream_results(["a", "b", "c"], slow, total=3, at_once=1)) == ["a", "b", "c"]
    assert "3/3" in capsys.readouterr().err
