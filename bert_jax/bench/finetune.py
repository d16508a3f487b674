"""`bert-jax bench finetune`: scores and seconds of a fine-tuning, compared with transformers.

Embedders and cross-encoders are compared with sentence-transformers. Both sides start from the same directory, train on
the same examples in the same order with the same recipe, take turns seed by seed, and are scored by the same metrics on
the validation set after the last step. `seconds` are those of the steps, without reading, tokenizing, scoring and
writing on either side; ours include compiling, which `compiling` gives separately. `turn_seconds` and `cpu_seconds` are
those of the whole turn, with all of this.
"""

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path

import numpy as np

from bert_jax.bench.torch_embedding import TorchEmbedding
from bert_jax.bench.torch_ranking import TorchRanking
from bert_jax.bench.torch_training import TorchModel, padded, quiet_transformers
from bert_jax.bench.turns import Limits, Machine, Ratio, Turn, compared, contending, describe, ratio
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.data.examples.arrange import Piece
from bert_jax.finetuning.embed_config import EmbedConfig
from bert_jax.finetuning.finetune_config import FinetuneConfig
from bert_jax.finetuning.rerank_config import RerankConfig
from bert_jax.tasks import load
from bert_jax.training import warm_start
from bert_jax.training.log import read
from bert_jax.training.loop import train

AUTO = {
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering",
}
# What transformers trains as well: the published head, not fitted as a probe first, without cross-validation.
AS_TRANSFORMERS = ("model.pooling=published", "head=kept", "data.folds=0")
IGNORED = -100  # label that torch's cross entropy ignores
OURS, AUTOCAST, SENTENCES = "bert_jax", "transformers-autocast", "sentence-transformers"
OF_SENTENCES = EmbedConfig, RerankConfig  # configs of what sentence-transformers trains


def measure(
    spec: str,
    overrides: Sequence[str],
    limits: Limits,
    against: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    as_json: bool = False,
) -> str:
    """Compare our fine-tuning in each of `dtypes` (by default that of the config) with the libraries `against`."""
    _, config = load(spec, overrides)
    if isinstance(config, FinetuneConfig):
        overrides = [*AS_TRANSFORMERS, *overrides]
    elif not isinstance(config, OF_SENTENCES):
        raise BertJaxError(
            f"{spec} is not a fine-tuning config; use `bert-jax bench pretrain` for pre-training"
        )
    if other := [name for name in against if (name == SENTENCES) != isinstance(config, OF_SENTENCES)]:
        trains = (
            "only embedders and cross-encoders"
            if other[0] == SENTENCES
            else "neither embedders nor cross-encoders"
        )
        raise BertJaxError(f"--against {other[0]} trains {trains}; leave it out for {spec}")
    if against and config.from_scratch:
        raise BertJaxError(
            "from_scratch=True starts from other values than transformers; leave --against out"
        )
    ours = {f"{OURS} {dtype}": dtype for dtype in dtypes or (config.model.dtype,)}
    makers: dict[str, tuple] = {
        name: (our_runs, spec, [*overrides, f"model.dtype={dtype}"]) for name, dtype in ours.items()
    }
    for name in against:
        makers[name] = (their_runs, spec, list(overrides), name == AUTOCAST)
    runs: dict[str, list[dict]] = {name: [] for name in makers}
    curves: dict[str, list[list[float]]] = {name: [] for name in makers}
    machine, turns, best = Machine(), list[Turn](), ""
    with contending(makers) as contenders:
        calls = ((seed,) for seed in count())
        for name, result, turn in compared(contenders, calls, limits, lambda result, _: result[1]["seconds"]):
            best, scores, losses = result
            curves[name].append(losses)
            runs[name].append(scores | {"turn_seconds": turn.seconds, "cpu_seconds": turn.cpu})
            turns.append(turn)
            if not as_json:
                print(f"seed {len(runs[name]) - 1} {name}: {in_words(runs[name][-1])}", flush=True)
    results = {
        "best": best,
        "runs": runs,
        "means": {name: mean_of(of_seeds) for name, of_seeds in runs.items()},
        "losses": curves,
        "against": {
            name: {
                other: comparison(best, runs[name], runs[other])
                | {"losses_apart": largest_difference(curves[name], curves[other])}
                for other in against
            }
            for name in ours
        },
        "machine": machine.during(turns),
    }
    return to_json(results) if as_json else summary(results)


def comparison(best: str, ours: list[dict], theirs: list[dict]) -> dict:
    """Return the ratio of their seconds to ours, their mean score, and our mean score minus theirs.

    With several seeds, also return the standard error of this difference.
    """
    scores = {
        name: np.array([run[best] for run in runs]) for name, runs in (("ours", ours), ("theirs", theirs))
    }
    return {
        "speedup": asdict(ratio([run["seconds"] for run in ours], [run["seconds"] for run in theirs])),
        "score": float(scores["theirs"].mean()),
        "difference": float(scores["ours"].mean() - scores["theirs"].mean()),
        # Standard error of the difference of the two means.
        "standard_error": float(sum(s.var(ddof=1) / len(s) for s in scores.values()) ** 0.5)
        if len(ours) > 1
        else None,
    }


def largest_difference(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """Return the largest difference between the two losses of a step; a discarded step has no loss and does not count.

    It is small if the head comes from the directory and there is no dropout.
    """
    return float(np.nanmax(np.abs(np.array(ours, float) - np.array(theirs, float))))


def summary(results: dict) -> str:
    best, means = results["best"], results["means"]
    lines = [
        f"{name}: mean of {len(results['runs'][name])} seeds: {in_words(mean)}"
        for name, mean in means.items()
    ]
    for ours, others in results["against"].items():
        for name, other in others.items():
            error = other["standard_error"]
            lines.append(
                f"{ours}: {best} {means[ours][best]:.4f}, {name} {other['score']:.4f} (standard error of the "
                f"difference {'unknown' if error is None else f'{error:.4f}'}); {name} takes "
                f"{Ratio(**other['speedup'])} times as long, our compilation included; the losses of a step differ by "
                f"at most {other['losses_apart']:.1e}"
            )
    return "\n".join([*lines, describe(results["machine"])])


def our_runs(spec: str, overrides: list[str]) -> Callable:
    """Return a function that trains with bert_jax and a given seed.

    It returns (the name of the metric that chooses the best model, all metrics and seconds, the loss of each step).
    """

    def run(seed: int) -> tuple[str, dict[str, float], list[float]]:
        task, data, config = opened(spec, overrides, seed)
        steps = config.steps
        config = dataclasses.replace(
            config,
            # Log every step, which shows the ones that compiled; evaluate once, at the end.
            log=dataclasses.replace(config.log, every=1, evaluate_every=steps),
            checkpoints=dataclasses.replace(config.checkpoints, every=steps),
        )
        with tempfile.TemporaryDirectory() as workdir:
            begin = (
                None if config.from_scratch else lambda: warm_start.read(config.init, task, config.seed)[0]
            )
            train(task, data, config, workdir, begin)
            lines = read(Path(workdir) / "metrics.jsonl")
        steps_taken = [line for line in lines if line["kind"] == "train"]
        seconds = np.array([line["time"]["seconds"] for line in steps_taken])
        losses = [line["loss"] for line in steps_taken]
        usual = np.median(seconds)
        compiling = float((seconds[seconds > 4 * usual] - usual).sum())
        scores = {name: value for name, value in lines[-1].items() if name not in ("step", "kind", "time")}
        totals = {"seconds": float(seconds.sum()), "compiling": compiling}
        return config.checkpoints.best_metric, scores | totals, losses

    return run


def their_runs(spec: str, overrides: list[str], autocast: bool) -> Callable:
    """Return the counterpart of `our_runs` for the other library: the usual loop, each batch padded to its longest."""

    def run(seed: int) -> tuple[str, dict[str, float], list[float]]:
        with contextlib.redirect_stdout(io.StringIO()):  # our run prints the same
            task, data, config = opened(spec, overrides, seed)
        pad = data.tokenizer.special.pad
        torch: TorchEmbedding | TorchRanking | TorchFinetuning
        if isinstance(config, EmbedConfig):
            torch = TorchEmbedding(task, config, pad)
        elif isinstance(config, RerankConfig):
            torch = TorchRanking(task, config, pad)
        else:
            torch = TorchFinetuning(task.layout, config, pad, autocast)
        seconds, losses = torch.train(data)
        return (
            config.checkpoints.best_metric,
            data.judge(torch.predict(data.held)) | {"seconds": seconds},
            losses,
        )

    return run


def opened(spec: str, overrides: list[str], seed: int) -> tuple:
    module, config = load(spec, [*overrides, f"seed={seed}"])
    return module.open(config)


class TorchFinetuning(TorchModel):
    """A model of transformers, trained from the same directory with the same pieces, order and recipe.

    A head that the directory lacks has other initial values than ours.
    """

    def __init__(self, layout, config: FinetuneConfig, pad: int, autocast: bool = False):
        self.torch, transformers = quiet_transformers(config.seed)
        self.config, self.pad, self.autocast = config, pad, autocast
        problem = layout.published.get("problem_type")
        settings: dict[str, int | str] = {"num_labels": len(layout.labels)} if layout.labels else {}
        settings |= {"problem_type": problem} if problem else {}
        auto = getattr(transformers, AUTO[layout.heads[0]])
        self.model = auto.from_pretrained(config.init, **settings).float()

    def loss_of(self, pieces: Sequence[Piece]):
        with self.computing():
            return self.model(**self.tokens(pieces), **self.targets(pieces)).loss

    def computing(self):
        """Return a context in which torch chooses the operations that it computes in bfloat16, if `autocast` is set."""
        return self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.autocast)

    def outputs(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
        """Return the logits of each piece, without those of padding."""
        with self.computing():
            outputs = self.model(**self.tokens(pieces))
        if "start_logits" in outputs:
            logits = self.torch.stack([outputs.start_logits, outputs.end_logits], -1)
        else:
            logits = outputs.logits
        rows = zip(logits.float().numpy(), pieces, strict=True)
        return [row[: len(piece)] if row.ndim == 2 else row for row, piece in rows]

    def targets(self, pieces: Sequence[Piece]) -> dict:
        """Return our targets as arguments of transformers' model."""
        targets = [piece.targets for piece in pieces]
        if "starts" in targets[0]:
            names = {"start_positions": "starts", "end_positions": "ends"}
            return {theirs: self.torch.tensor([t[ours] for t in targets]) for theirs, ours in names.items()}
        if np.ndim(targets[0]["weight"]):
            rows = [np.where(np.asarray(t["weight"]) > 0, t["labels"], IGNORED) for t in targets]
            return {"labels": padded(self.torch, rows, IGNORED)}
        labels = np.array([t["labels"] for t in targets])
        kind = np.int64 if labels.ndim == 1 and labels.dtype.kind == "i" else np.float32
        return {"labels": self.torch.from_numpy(labels.astype(kind))}


def mean_of(runs: list[dict]) -> dict[str, float]:
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def in_words(run: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in run.items())
