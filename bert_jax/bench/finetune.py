"""`bert-jax bench finetune`: what a fine-tuning reaches and how long it takes, beside transformers' own.

Both begin from one directory, learn from the same examples in the same order by the same recipe, take turns seed by
seed, and are judged by the same metrics on what is held out after the last step. Seconds are those of the steps:
reading, tokenizing, judging and writing are left out on both sides, compiling is in ours and said apart.
"""

import dataclasses
import gc
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_jax.bench.torch_finetune import TorchFinetuning
from bert_jax.errors import BertJaxError
from bert_jax.tasks import load, warm_start
from bert_jax.tasks.finetune import FinetuneConfig
from bert_jax.train.log import read
from bert_jax.train.loop import train


def report(spec: str, overrides: Sequence[str], seeds: int, against: str | None, as_json: bool) -> str:
    runs: dict[str, list[dict]] = {name: [] for name in ("bert_jax", against) if name}
    for seed in range(seeds):
        module, config = load(spec, [*overrides, f"seed={seed}"])
        if not isinstance(config, FinetuneConfig):
            raise BertJaxError(f"{spec} is no fine-tuning; `bert-jax bench train` measures pre-training")
        if against and config.scratch:
            raise BertJaxError(
                "scratch=True has nothing in common with transformers' own; leave --against away"
            )
        task, data, config = module.open(config)
        best = config.checkpoints.best
        runs["bert_jax"].append(ours(task, data, config))
        if against:
            runs[against].append(theirs(task, data, config))
        for name, found in runs.items():
            print(f"seed {seed} {name}: {line(found[-1])}", flush=True)
    means = {name: mean_of(found) for name, found in runs.items()}
    if as_json:
        return json.dumps({"runs": runs, "means": means})
    lines = [f"{name}: mean of {seeds} seeds: {line(found)}" for name, found in means.items()]
    if against:
        scores = np.array([found[best] for found in runs[against]])
        error = scores.std(ddof=1) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
        mine, other = means["bert_jax"], means[against]
        ratios = [b["seconds"] / a["seconds"] for a, b in zip(runs["bert_jax"], runs[against], strict=True)]
        lines.append(
            f"{best} {mine[best]:.4f} beside {other[best]:.4f} (standard error {error:.4f}); "
            f"{against} takes {np.median(ratios):.2f} times as long"
        )
    return "\n".join(lines)


def ours(task, data, config: FinetuneConfig) -> dict[str, float]:
    config = dataclasses.replace(
        config,
        # A line a step, so that compiling can be told apart; one evaluation, at the end.
        log=dataclasses.replace(config.log, every=1, evaluate_every=config.steps),
        checkpoints=dataclasses.replace(config.checkpoints, every=config.steps),
    )
    with tempfile.TemporaryDirectory() as directory:
        begin = None if config.scratch else lambda: warm_start.read(config.init, task.layout, config.seed)[0]
        train(task, data, config, directory, begin)
        lines = read(Path(directory) / "metrics.jsonl")
    seconds = np.array([each["time"]["seconds"] for each in lines if each["kind"] == "train"])
    usual = np.median(seconds)
    found = {name: value for name, value in lines[-1].items() if name not in ("step", "kind", "time")}
    compiling = float((seconds[seconds > 4 * usual] - usual).sum())
    return found | {"seconds": float(seconds.sum()), "compiling": compiling}


def theirs(task, data, config: FinetuneConfig) -> dict[str, float]:
    layout = task.layout
    torch = TorchFinetuning(
        config,
        layout.heads[0],
        len(layout.labels),
        layout.published.get("problem_type"),
        data.tokenizer.special.pad,
    )
    seconds = torch.fit(data.train)
    found = data.judge(torch.predict(data.held)) | {"seconds": seconds}
    gc.collect()
    return found


def mean_of(runs: list[dict]) -> dict[str, float]:
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def line(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in found.items())
