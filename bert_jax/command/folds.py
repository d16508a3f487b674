"""Small data: every example is predicted by a model that did not learn from it, and the method that predicts better
trains the final model on all of them.

WORKDIR/folds/K/              the run that leaves fold K out
WORKDIR/folds/K/logits.npz    what its model gives for fold K; the model and its checkpoints are removed then
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from bert_jax import tasks
from bert_jax.data.examples.split import folds
from bert_jax.errors import BertJaxError
from bert_jax.inference.model import load
from bert_jax.inference.programs import head_logits
from bert_jax.output import replacing
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.probe import Link
from bert_jax.report.finished import OutOfFold
from bert_jax.report.learning_curve import PARTS, LearningCurve, learning_curve
from bert_jax.tasks import warm_start
from bert_jax.tasks.finetune import Finetuning, Judge, pieces_of
from bert_jax.tasks.finetune_config import FinetuneConfig, Method
from bert_jax.tasks.parts import say
from bert_jax.tasks.probe import Features
from bert_jax.text.truncation import Reading
from bert_jax.train.checkpoint import standing
from bert_jax.train.task import Data
from bert_jax.train.workdir import Workdir

FEWEST_OF_CURVE = 40  # examples: of fewer a quarter teaches nothing
OWN_KEYS = ("steps", "method", "report", "data.fold", "data.folds")  # of the run of a fold


class Folds:
    """The training examples of a run, in parts."""

    def __init__(self, task: Finetuning, data: Data, config: FinetuneConfig):
        self.task, self.data, self.config = task, data, config
        examples = task.results.train if task.results else []
        reading = Reading(task.layout.config.max_positions, config.data.long)  # as `predict` reads them
        windows = task.kind.windows(data.tokenizer, [example.text for example in examples], reading)
        self.judge, self.pieces = Judge(task.kind, examples, windows), pieces_of(task.kind, examples, windows)
        self.example_of_piece = [piece.example for piece in self.pieces]
        self.of_piece = folds(examples, config.data.folds)[self.example_of_piece]
        self.curve: LearningCurve | None = None  # of probes

    def outcomes(self, logits: list) -> Outcomes:
        return Outcomes(self.task.kind, self.judge.examples, self.judge.raws(logits))

    def by_probes(self) -> Outcomes:
        """Predictions of regressions on the frozen encoder's features, which need no run."""
        task, link = self.task, self.task.kind.link
        if link is None:
            raise BertJaxError(f"a probe cannot learn {task.kind.name}; set --config.method=finetune")
        params, _ = warm_start.read(self.config.init, task, self.config.seed)
        features = Features(task.layout, params, self.data.tokenizer, self.pieces)
        every = np.ones(len(self.pieces), bool)
        whole, penalties = self.by_probe(features, link, every)
        if len(self.judge.examples) >= FEWEST_OF_CURVE:
            self.curve = self.curve_of(features, link, whole, penalties)
        return whole

    def curve_of(self, features: Features, link: Link, whole: Outcomes, penalties: int) -> LearningCurve:
        part = folds(self.judge.examples, PARTS)[self.example_of_piece]
        quarters = [part == n for n in range(PARTS)]
        halves = [part < PARTS // 2, part >= PARTS // 2]
        fewer = [
            [self.by_probe(features, link, learnt, penalties)[0].sums for learnt in parts]
            for parts in (quarters, halves)
        ]
        count = len(self.judge.examples)
        judged = {count // PARTS: fewer[0], count // 2: fewer[1], count: [whole.sums]}
        return learning_curve(self.task.kind.best, judged)

    def by_probe(
        self, features: Features, link: Link, learnt: np.ndarray, strongest: int = 0
    ) -> tuple[Outcomes, int]:
        """Each fold predicted by a regression on those pieces of the others that are `learnt`, and how many of the
        strongest penalties were tried at most."""
        logits: list = [None] * len(self.pieces)
        most = 0
        for fold in range(self.config.data.folds):
            kept = np.flatnonzero((self.of_piece != fold) & learnt).tolist()
            probe = features.probe(link, self.task.class_weights, kept, strongest)
            most = max(most, probe.penalties)
            for i in np.flatnonzero(self.of_piece == fold):
                logits[i] = probe(features.states[i])
        return self.outcomes(logits), most

    def by_runs(
        self,
        values: dict,
        overrides: Sequence[str],
        workdir: Path,
        run: Callable[..., bool],
    ) -> Outcomes | None:
        """Predictions of fine-tuned models; None if told to stop before the end."""
        kept = [override for override in overrides if override.split("=")[0] not in OWN_KEYS]
        count = self.config.data.folds
        logits: list = [None] * len(self.pieces)
        for fold in range(count):
            own = [f"steps={self.config.steps}", "method=finetune", "report=False", f"data.folds={count}"]
            module, config = tasks.read(values, [*kept, *own, f"data.fold={fold}"])
            task, data, config = module.open(config)
            directory = Workdir(workdir / "folds" / str(fold))
            path = directory.path / "logits.npz"
            if path.exists():
                directory.begin(config, data, task)  # or it is of another config
            elif not run(task, data, config, directory.path):
                return None
            else:
                self.predict(directory, fold, path)
            for done in (directory.checkpoints, directory.model):
                shutil.rmtree(done, ignore_errors=True)
            for i, saved in zip(np.flatnonzero(self.of_piece == fold), read_logits(path), strict=True):
                logits[i] = saved
        return self.outcomes(logits)

    def predict(self, directory: Workdir, fold: int, path: Path) -> None:
        """Write what the model of a fold gives for it."""
        model = load(directory.model)
        encodings = [self.pieces[i].encoding for i in np.flatnonzero(self.of_piece == fold)]
        program = head_logits(model.config, self.task.head, len(model.labels))
        with replacing(path) as new, open(new, "wb") as file:
            np.savez(file, *model.run(encodings, program))


def read_logits(path: Path) -> list[np.ndarray]:
    try:
        with np.load(path) as saved:
            return [saved[name] for name in saved]
    except (BadZipFile, EOFError, OSError, ValueError) as error:
        raise BertJaxError(
            f"{path} is damaged; delete {path.parent}, and run the same command again"
        ) from error


def choose(
    parts: Folds, values: dict, overrides: Sequence[str], workdir: Path, run: Callable
) -> OutOfFold | None:
    """The method of the final run, and the predictions that it makes out of fold; None if told to stop."""
    config, kind = parts.config, parts.task.kind
    given: dict[Method, Outcomes] = {}
    if config.method == "probe" or config.method == "auto" and config.head == "probe" and kind.link:
        given["probe"] = parts.by_probes()
        say_scores(config, "a probe of the frozen encoder", given["probe"])
        if parts.curve:
            say(f"learning curve of the probe: {parts.curve.in_words()}")
    if config.method == "probe" or given and score(given["probe"])[kind.best] == 1:
        return OutOfFold("probe", given["probe"], parts.curve)
    say(
        f"{config.data.folds} models are trained, one without each fold; --config.data.folds=0 trains one, and holds "
        "out a share"
    )
    fine_tuned = parts.by_runs(values, overrides, workdir, run)
    if fine_tuned is None:
        return None
    given["finetune"] = fine_tuned
    say_scores(config, "fine-tuning", fine_tuned)
    best = max(given, key=lambda method: standing(kind.best, score(given[method])))
    return OutOfFold(best, given[best], parts.curve)


def score(outcomes: Outcomes) -> dict[str, float]:
    return outcomes.sums.scores


def say_scores(config: FinetuneConfig, method: str, outcomes: Outcomes) -> None:
    shown = ", ".join(f"{name} {value:.4f}" for name, value in score(outcomes).items())
    say(f"{config.data.folds} folds, {method}: {shown}")
