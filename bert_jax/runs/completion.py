"""`finished.json` in the directory of a run: what its finished model was made from, so that the same command, repeated,
does not make it again."""

import math
from typing import Any, TypedDict

from bert_jax import __version__
from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.workdir import Workdir, flatten_config, round_trip_json


class Completion(TypedDict):
    inputs: dict[str, Any]
    step: int  # the last one
    scores: dict[str, float]


def completion_inputs(run: OpenedRun) -> dict[str, Any]:
    """Return all that decides what a run writes; `run` is as it was opened, before a method was chosen."""
    finishing = run.task.finish_inputs
    texts = [example.text for example in finishing.out_of_scope] if finishing else []
    return round_trip_json(
        {
            "version": __version__,
            "config": dict(flatten_config(run.config)),
            "data": run.data.identity(),
            "out_of_scope": hashes.json_digest(texts),
        }
    )


def record_completion(run: OpenedRun, directory: Workdir, scores: dict[str, float]) -> None:
    if not all(map(math.isfinite, scores.values())):  # which JSON cannot hold
        return
    steps = Checkpoints(directory.checkpoints, run.config.checkpoints).steps()
    completion = Completion(inputs=completion_inputs(run), step=max(steps, default=0), scores=scores)
    write_json(directory.finished, hashes.sealed(completion))


def find_completion(run: OpenedRun, directory: Workdir) -> Completion | None:
    """Return the record of a finished run whose outputs are all there; None if something is to be done."""
    try:
        completion: Completion = read_json(directory.finished, Completion)
        is_same = hashes.is_sealed(completion) and completion["inputs"] == completion_inputs(run)
        is_whole = is_same and all(hashes.is_whole(directory.model / name) for name in run.task.layouts)
    except (BertJaxError, FileNotFoundError):  # it is made anew
        return None
    return completion if is_whole and (directory.page.exists() or not run.config.writes_report) else None
