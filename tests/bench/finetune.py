"""`finetune`: scores and seconds of a fine-tuning, compared with transformers.

Cross-encoders, sparse embedders and late-interaction models are compared with sentence-transformers. Both sides start
from the same directory, train on the same examples in the same order with the same recipe, take turns seed by seed, and
are scored by the same metrics on the validation set after the last step. Seconds are those of the steps, without
reading, tokenizing, scoring and writing on either side; ours include compiling.
"""

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from bert_jax.bench.timing import Machine, Turn
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.epochs import Score
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.finetuning.finetune_config import FinetuneConfig
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.losses.sparse import ACTIVE_DIMS
from bert_jax.metrics.retrieval import MAIN_METRIC
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.tasks import load_config
from bert_jax.tasks.late_interaction import Config as LateInteractionConfig
from bert_jax.tasks.rerank import Config as RerankConfig
from bert_jax.tasks.sparse import Config as SparseConfig
from bert_jax.training import warm_start
from bert_jax.training.log import read_metrics
from bert_jax.training.loop import train
from tests.bench.comparison import Comparison, Row, dtype_of, dtype_ratios
from tests.bench.torch_late_interaction import TorchLateInteraction
from tests.bench.torch_ranking import TorchRanking
from tests.bench.torch_sparse import TorchSparse
from tests.bench.torch_training import TorchModel, pad_rows, quiet_transformers
from tests.bench.turns import OURS, Limits, interleaved, is_ours, running_processes

AUTO = {
    "classify": "AutoModelForSequenceClassification",
    "tag": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering",
}
# What transformers trains as well: the published head, not fitted as a probe first, without cross-validation.
AS_TRANSFORMERS = ("model.pooling=native", "head_init=pretrained", "data.folds=0")
IGNORED = -100  # label that torch's cross entropy ignores
AUTOCAST, SENTENCES = "transformers-autocast", "sentence-transformers"
# By sentence-transformers.
GROUP_TRAINERS = {
    RerankConfig: TorchRanking, SparseConfig: TorchSparse, LateInteractionConfig: TorchLateInteraction,
}  # fmt: skip


def compare_finetuning(
    spec: str, overrides: Sequence[str], dtypes: Sequence[str], against: Sequence[str], limits: Limits
) -> Comparison:
    """Compare our fine-tuning, in each of the dtypes, with the libraries `against`."""
    _, config = load_config(spec, overrides)
    if isinstance(config, FinetuneConfig):
        overrides = [*AS_TRANSFORMERS, *overrides]
    elif isinstance(config, SparseConfig):
        overrides = [f"checkpoints.best_metric={MAIN_METRIC}", *overrides]
    elif type(config) not in GROUP_TRAINERS:
        raise BertJaxError(
            f"{spec} trains neither on labels nor a cross-encoder, sparse embedder or late-interaction model; name "
            "another config"
        )
    if other := [name for name in against if (name == SENTENCES) != (type(config) in GROUP_TRAINERS)]:
        trained = "cross-encoders, sparse embedders and late-interaction models alone"
        if other[0] != SENTENCES:
            trained = "neither cross-encoders nor sparse embedders nor late-interaction models"
        raise BertJaxError(f"--against {other[0]} trains {trained}; leave it out for {spec}")
    makers: dict[str, tuple] = {
        f"{OURS} {dtype}": (our_runs, spec, [*overrides, f"model.dtype={dtype}"]) for dtype in dtypes
    }
    makers |= {name: (their_runs, spec, list(overrides), name == AUTOCAST) for name in against}
    runs: Runs = {name: [] for name in makers}
    queries: dict[str, list[np.ndarray]] = {name: [] for name in makers}
    machine, turns, best = Machine(), list[Turn](), ""
    with running_processes(makers) as contenders:
        seeds = ((seed,) for seed in count())
        for name, result, turn in interleaved(
            contenders, seeds, limits, lambda result, _: result[1]["seconds"]
        ):
            best, scores, losses, of_queries = result
            runs[name].append((scores, losses))
            queries[name].append(of_queries)
            turns.append(turn)
    title = f"{spec}, {len(runs[name])} seeds: {best}"
    notes = [*finetuning_notes(runs), *query_notes(best, queries), *sparsity_notes(runs)]
    return Comparison(finetuning_rows(title, best, runs), machine.load_during(turns), notes)


Runs = dict[str, list[tuple[dict[str, float], list[float]]]]  # contender -> scores and losses of each seed


def finetuning_rows(title: str, best: str, runs: Runs) -> list[Row]:
    scores = {name: [scores[best] for scores, _ in seeds] for name, seeds in runs.items()}
    seconds = {name: [scores["seconds"] for scores, _ in seeds] for name, seeds in runs.items()}
    figures = {name: f"{np.mean(scores[name]):.4f} in {np.mean(seconds[name]):.0f} s" for name in runs}
    ours = {dtype_of(name): figure for name, figure in figures.items() if is_ours(name)}
    others = [name for name in runs if not is_ours(name)]
    rows = []
    for name in others:
        error = difference_error(next(iter(scores.values())), scores[name])
        rows.append(Row(title, ours, f"{name} {figures[name]}{error}", dtype_ratios(seconds, name)))
    return rows or [Row(title, ours)]


def difference_error(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the standard error of the difference of two means; nothing if there is one value of each."""
    if len(ours) < 2:
        return ""
    return f" ± {sum(np.var(some, ddof=1) / len(some) for some in (ours, theirs)) ** 0.5:.4f}"


def finetuning_notes(runs: Runs) -> list[str]:
    """Say how long our compilation took, and how far apart the losses of a step are.

    They are close if the head comes from the directory and there is no dropout. A discarded step has no loss.
    """
    notes = [
        f"{name}: {np.mean([scores['compiling'] for scores, _ in seeds]):.0f} s of compilation"
        for name, seeds in runs.items()
        if is_ours(name)
    ]
    first, ours = next(iter(runs.items()))
    for name, seeds in runs.items():
        if not is_ours(name):
            apart = [np.subtract(a, b, dtype=float) for (_, a), (_, b) in zip(ours, seeds, strict=True)]
            notes.append(
                f"{name}: losses of a step differ from {first}'s by at most {np.nanmax(np.abs(apart)):.1e}"
            )
    return notes


def query_notes(best: str, queries: dict[str, list[np.ndarray]]) -> list[str]:
    """Compare the rankings of each query with ours, seed by seed."""
    (first, ours), *others = queries.items()
    return [
        f"seed {seed}: {best} {describe_mean(a)}; {name} {describe_mean(b)}, {describe_mean(b - a, '+')} on the same "
        f"{len(a):,} queries"
        for name, theirs in others
        for seed, (a, b) in enumerate(zip(ours, theirs, strict=True))
        if len(a)
    ]


def describe_mean(values: np.ndarray, sign: str = "") -> str:
    return f"{values.mean():{sign}.4f} ± {values.std(ddof=1) / len(values) ** 0.5:.4f}"


def sparsity_notes(runs: Runs) -> list[str]:
    return [
        f"{name}: " + "; ".join(f"{scores[key]:,.0f} {key}" for key in ACTIVE_DIMS)
        for name, seeds in runs.items()
        for scores, _ in seeds
        if ACTIVE_DIMS[0] in scores
    ]


Result = tuple[str, dict[str, float], list[float], np.ndarray]


def our_runs(spec: str, overrides: list[str]) -> Callable[[int], Result]:
    """Return a function that trains with bert_jax and a given seed.

    It returns (the name of the metric that chooses the best model, all metrics and seconds, the loss of each step, the
    metric of each query if it is one of rankings).
    """

    def run(seed: int) -> Result:
        task, data, config = open_run(spec, overrides, seed)
        data.evaluator = kept = KeptScores(data.evaluator)
        steps = config.steps
        config = dataclasses.replace(
            config,
            # Log every step, which shows the ones that compiled; evaluate once, at the end.
            log=dataclasses.replace(config.log, every=1, evaluate_every=steps),
            checkpoints=dataclasses.replace(config.checkpoints, every=steps),
        )
        with tempfile.TemporaryDirectory() as workdir:
            train(
                task,
                data,
                config,
                workdir,
                lambda: warm_start.read_initial_params(ModelDirectories(), config.init, task, config.seed)[0],
            )
            lines = read_metrics(Path(workdir) / "metrics.jsonl")
        steps_taken = [line for line in lines if line["kind"] == "train"]
        seconds = np.array([line["time"]["seconds"] for line in steps_taken])
        losses = [line["loss"] for line in steps_taken]
        usual = np.median(seconds)
        compiling = float((seconds[seconds > 4 * usual] - usual).sum())
        scores = {name: value for name, value in lines[-1].items() if name not in ("step", "kind", "time")}
        totals = {"seconds": float(seconds.sum()), "compiling": compiling}
        best = config.checkpoints.best_metric
        return best, scores | totals, losses, scores_of_queries(kept.last, best)

    return run


class KeptScores:
    """An evaluator that keeps what it has computed last."""

    def __init__(self, evaluator: Score):
        self.evaluator = evaluator
        self.last: ScoreSums | None = None

    def __call__(self, predictions: list) -> ScoreSums | None:
        self.last = self.evaluator(predictions)
        return self.last


def scores_of_queries(sums: ScoreSums | None, best: str) -> np.ndarray:
    """Return the score of each query, whose mean is that of all; empty if `best` is no such mean."""
    if sums is None or best != MAIN_METRIC:
        return np.empty(0)
    return sums.compute_scores(sums.rows)[best]


def their_runs(spec: str, overrides: list[str], autocast: bool) -> Callable[[int], Result]:
    """Return the counterpart of `our_runs` for the other library: the usual loop, each batch padded to its longest."""

    def run(seed: int) -> Result:
        with contextlib.redirect_stderr(io.StringIO()):  # our run prints the same
            task, data, config = open_run(spec, overrides, seed)
        pad = data.tokenizer.special.pad
        if trainer := GROUP_TRAINERS.get(type(config)):
            torch = trainer(task, config, pad)
        else:
            torch = TorchFinetuning(task.layout, config, pad, autocast)
        seconds, losses = torch.train(data)
        best, sums = config.checkpoints.best_metric, data.evaluator(torch.predict(data.validation))
        return best, sums.scores | {"seconds": seconds}, losses, scores_of_queries(sums, best)

    return run


def open_run(spec: str, overrides: list[str], seed: int) -> tuple:
    module, config = load_config(spec, [*overrides, f"seed={seed}"])
    return module.open(config, ModelDirectories())


class TorchFinetuning(TorchModel):
    """A model of transformers, trained from the same directory with the same pieces, order and recipe.

    A head that the directory lacks has other initial values than ours.
    """

    def __init__(self, layout, config: FinetuneConfig, pad: int, autocast: bool = False):
        self.torch, transformers = quiet_transformers(config.seed)
        self.config, self.pad, self.autocast = config, pad, autocast
        problem = layout.hf_config.get("problem_type")
        settings: dict[str, int | str] = {"num_labels": len(layout.labels)} if layout.labels else {}
        settings |= {"problem_type": problem} if problem else {}
        auto = getattr(transformers, AUTO[layout.heads[0]])
        self.model = auto.from_pretrained(config.init, **settings).float()

    def loss_of(self, pieces: Sequence[EncodedWindow]):
        with self.computing():
            return self.model(**self.tokens(pieces), **self.targets(pieces)).loss

    def computing(self):
        """Return a context in which torch chooses the operations that it computes in bfloat16, if `autocast` is set."""
        return self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.autocast)

    def outputs(self, pieces: Sequence[EncodedWindow]) -> list[np.ndarray]:
        """Return the logits of each piece, without those of padding."""
        with self.computing():
            outputs = self.model(**self.tokens(pieces))
        if "start_logits" in outputs:
            logits = self.torch.stack([outputs.start_logits, outputs.end_logits], -1)
        else:
            logits = outputs.logits
        rows = zip(logits.float().numpy(), pieces, strict=True)
        return [row[: len(piece)] if row.ndim == 2 else row for row, piece in rows]

    def targets(self, pieces: Sequence[EncodedWindow]) -> dict:
        """Return our targets as arguments of transformers' model."""
        targets = [piece.targets for piece in pieces]
        if "starts" in targets[0]:
            names = {"start_positions": "starts", "end_positions": "ends"}
            return {theirs: self.torch.tensor([t[ours] for t in targets]) for theirs, ours in names.items()}
        if np.ndim(targets[0]["label_weights"]):
            rows = [np.where(np.asarray(t["label_weights"]) > 0, t["labels"], IGNORED) for t in targets]
            return {"labels": pad_rows(self.torch, rows, IGNORED)}
        labels = np.array([t["labels"] for t in targets])
        kind = np.int64 if labels.ndim == 1 and labels.dtype.kind == "i" else np.float32
        return {"labels": self.torch.from_numpy(labels.astype(kind))}
