"""`bert_jax.follow`: the measurements of a run, for Weights & Biases, MLflow, Trackio or a program of one's own."""

import time
from collections.abc import Iterator
from os import PathLike

from bert_jax.core.config import check_flag
from bert_jax.core.paths import require_path
from bert_jax.training.log import name_values, read_metrics
from bert_jax.training.workdir import Workdir

SECONDS = 2.0  # between two looks at the file


def follow(workdir: str | PathLike[str], *, wait: bool = True) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield (step, measurements) of the run in a directory: those that are there, then each as it is made.

    >>> for step, values in bert_jax.follow("run"):
    ...     print(step, values)
    10 {'train/loss': 2.5, 'train/tokens_per_second': 900.0}
    20 {'train/loss': 2.25, 'train/tokens_per_second': 950.0}
    20 {'validation/loss': 2.375}

    The names are those of TensorBoard. Steps never go back: what a resumed run measures again comes once, and what is
    known at the end about an earlier step, which became the model, is in `run.scores`. It ends when the run has
    finished, however often that is stopped and resumed before. With `wait=False` it ends with what is there, as for a
    run of a sweep.
    """
    directory = Workdir(require_path(workdir, "workdir"))
    check_flag(wait, "wait")
    if not directory.folds.exists():  # of a run that first measures methods
        directory.read_run()
    return follow_steps(directory, wait)


def follow_steps(directory: Workdir, wait: bool) -> Iterator[tuple[int, dict[str, float]]]:
    last, written = -1, set[str]()
    while True:
        ends = not wait or directory.finished.exists()  # looked for first, so that no line is missed
        for line in read_metrics(directory.metrics):
            if line["step"] > last:
                last, written = line["step"], set()
            if line["step"] == last and line["kind"] not in written:
                written.add(line["kind"])
                yield last, name_values(line)
        if ends:
            return
        time.sleep(SECONDS)
