"""Runs of the tiny pre-training, and what becomes of their files."""

import numpy as np

from bert_jax.training.log import read_metrics
from bert_jax.training.loop import train
from tests.support.pretraining_runs import checkpoint_arrays
from tests.support.tiny_pretraining import Batches, tiny_pretraining


def metric_lines(workdir):
    return [
        {name: value for name, value in line.items() if name != "time"}
        for line in read_metrics(workdir / "metrics.jsonl")
    ]


def continue_run(workdir, capsys, **changes) -> str:
    """Goes on with the run and returns what it said."""
    task, config = tiny_pretraining(checkpoint_keep=9, **changes)
    train(task, Batches(), config, workdir)
    output = capsys.readouterr()
    return output.out + output.err


def assert_same_run(one, other):
    assert metric_lines(one) == metric_lines(other)
    ours, theirs = checkpoint_arrays(one / "checkpoints/20"), checkpoint_arrays(other / "checkpoints/20")
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def flip_bit(path, where=0.5):
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 4
    path.write_bytes(content)


def largest_file(directory):
    return max(
        (path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
