"""`bert-jax bench finetune`: the scores of a fine-tuning and its seconds, beside transformers' own, or those of the
training of an embedder or cross-encoder beside sentence-transformers.

Both begin from one directory, learn from the same examples in the same order by the same recipe, take turns seed by
seed, and are scored by the same metrics on the validation set after the last step. Seconds are those of the steps:
reading, tokenizing, scoring and writing are left out on both sides; ours hold the compiling, which is given apart, too.
`turn_seconds` and CPU seconds are of the whole turn on both sides, with all of that.
"""

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path

import numpy as np

from bert_jax.bench.torch_embedding import TorchEmbedding
from bert_jax.bench.torch_ranking import TorchRanking
from bert_jax.bench.torch_training import TorchModel, padded, quiet_transformers
from bert_jax.bench.turns import Limits, Machine, Ratio, Turn, compared, contending, describe, ratio
from bert_jax.data.examples.arrange import Piece
from bert_jax.errors import BertJaxError
from bert_jax.files import to_json
from bert_jax.tasks import load, warm_start
from bert_jax.tasks.embed_config import EmbedConfig
from bert_jax.tasks.finetune_config import FinetuneConfig
from bert_jax.tasks.rerank_config import RerankConfig
from bert_jax.train.log import read
from bert_jax.train.loop import train

AUTO = {
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering",
}
# What transformers trains, too: the published head, with initial values, on one part of the data.
AS_TRANSFORMERS = ("model.pooling=published", "head=kept", "data.folds=0")
IGNORED = -100  # label that torch's cross entropy leaves out
OURS, AUTOCAST, SENTENCES = "bert_jax", "transformers-autocast", "sentence-transformers"
OF_SENTENCES = EmbedConfig, RerankConfig  # what sentence-transformers trains
ROWS = 32  # texts of a batch of torch's evaluation


def measure(
    spec: str,
    overrides: Sequence[str],
    limits: Limits,
    against: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    as_json: bool = False,
) -> str:
    """`dtypes` are what ours computes in, each a contender; by default the config's alone."""
    _, config = load(spec, overrides)
    if isinstance(config, FinetuneConfig):
        overrides = [*AS_TRANSFORMERS, *overrides]
    elif not isinstance(config, OF_SENTENCES):
        raise BertJaxError(f"{spec} is not a fine-tuning; `bert-jax bench train` measures pre-training")
    if other := [name for name in against if (name == SENTENCES) != isinstance(config, OF_SENTENCES)]:
        trains = (
            "embedders and cross-encoders alone"
            if other[0] == SENTENCES
            else "neither embedders nor cross-encoders"
        )
        raise BertJaxError(f"--against {other[0]} trains {trains}; leave it out for {spec}")
    if against and config.scratch:
        raise BertJaxError("scratch=True begins with other values than transformers; leave --against out")
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
                other: beside(best, runs[name], runs[other])
                | {"losses_apart": apart(curves[name], curves[other])}
                for other in against
            }
            for name in ours
        },
        "machine": machine.during(turns),
    }
    return to_json(results) if as_json else summary(results)


def beside(best: str, ours: list[dict], theirs: list[dict]) -> dict:
    """The ratio of their seconds to ours, and how far the scores are apart."""
    scores = {
        name: np.array([run[best] for run in runs]) for name, runs in (("ours", ours), ("theirs", theirs))
    }
    return {
        "speedup": asdict(ratio([run["seconds"] for run in ours], [run["seconds"] for run in theirs])),
        "score": float(scores["theirs"].mean()),
        "difference": float(scores["ours"].mean() - scores["theirs"].mean()),
        # Of the difference of two means.
        "standard_error": float(sum(s.var(ddof=1) / len(s) for s in scores.values()) ** 0.5)
        if len(ours) > 1
        else None,
    }


def apart(ours: list[list[float]], theirs: list[list[float]]) -> float:
    """The largest difference of a step's losses; small where the head is the directory's and nothing is dropped. A step
    that was discarded has none."""
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
                f"{ours}: {best} {means[ours][best]:.4f} beside {other['score']:.4f} of {name} (standard error of the "
                f"difference {'unknown' if error is None else f'{error:.4f}'}); {name} takes "
                f"{Ratio(**other['speedup'])} times as long, compiling counted; the losses of a step differ by "
                f"{other['losses_apart']:.1e} at most"
            )
    return "\n".join([*lines, describe(results["machine"])])


def our_runs(spec: str, overrides: list[str]) -> Callable:
    """seed -> (the metric that counts, all of them and the seconds of a run by bert_jax, each step's loss)."""

    def run(seed: int) -> tuple[str, dict[str, float], list[float]]:
        task, data, config = opened(spec, overrides, seed)
        steps = config.steps
        config = dataclasses.replace(
            config,
            # A line per step shows which steps compiled; one evaluation, at the end.
            log=dataclasses.replace(config.log, every=1, evaluate_every=steps),
            checkpoints=dataclasses.replace(config.checkpoints, every=steps),
        )
        with tempfile.TemporaryDirectory() as workdir:
            begin = None if config.scratch else lambda: warm_start.read(config.init, task, config.seed)[0]
            train(task, data, config, workdir, begin)
            lines = read(Path(workdir) / "metrics.jsonl")
        steps_taken = [line for line in lines if line["kind"] == "train"]
        seconds = np.array([line["time"]["seconds"] for line in steps_taken])
        losses = [line["loss"] for line in steps_taken]
        usual = np.median(seconds)
        compiling = float((seconds[seconds > 4 * usual] - usual).sum())
        scores = {name: value for name, value in lines[-1].items() if name not in ("step", "kind", "time")}
        totals = {"seconds": float(seconds.sum()), "compiling": compiling}
        return config.checkpoints.best, scores | totals, losses

    return run


def their_runs(spec: str, overrides: list[str], autocast: bool) -> Callable:
    """As `our_runs`, by the other library: the usual loop, each batch padded to its longest."""

    def run(seed: int) -> tuple[str, dict[str, float], list[float]]:
        with contextlib.redirect_stdout(io.StringIO()):  # ours shows it already
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
        return config.checkpoints.best, data.judge(torch.predict(data.held)) | {"seconds": seconds}, losses

    return run


def opened(spec: str, overrides: list[str], seed: int) -> tuple:
    module, config = load(spec, [*overrides, f"seed={seed}"])
    return module.open(config)


class TorchFinetuning(TorchModel):
    """From the same directory, pieces, order and recipe; its head has other initial values."""

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
        """Where torch decides for itself which products it computes in bfloat16, if it may."""
        return self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.autocast)

    def predict(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
        """Each piece's logits, in the order of the pieces."""
        logits: list = [None] * len(pieces)
        order = np.argsort([len(piece) for piece in pieces])
        self.model.eval()
        with self.torch.no_grad(), self.computing():
            for numbers in np.split(order, range(ROWS, len(order), ROWS)):
                for i, row in zip(numbers, self.logits([pieces[i] for i in numbers]), strict=True):
                    logits[i] = row[: len(pieces[i])] if row.ndim == 2 else row
        return logits

    def logits(self, pieces: Sequence[Piece]) -> Iterator[np.ndarray]:
        outputs = self.model(**self.tokens(pieces))
        if "start_logits" in outputs:
            return self.torch.stack([outputs.start_logits, outputs.end_logits], -1).float().numpy()
        return outputs.logits.float().numpy()

    def targets(self, pieces: Sequence[Piece]) -> dict:
        """Our targets as transformers' arguments."""
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
