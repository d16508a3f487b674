"""The learners of `labels`: ours and those of other libraries, each with its defaults."""

import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example
from bert_jax.inference.load import load
from bert_jax.inference.text_outcomes import predict_outcomes
from bert_jax.predictions.kind import Kind, Outcomes
from tests.bench.libraries import libraries
from tests.bench.torch_training import quiet_transformers

ALL = 1 << 30
SMALLEST = 1e-9  # smaller probabilities are raised to this before the logarithm
IGNORED = -100  # label that torch's cross entropy ignores
LONGEST = 128  # tokens of an example for the Trainer, at most
PAIRS = 8_000  # that SetFit is trained on, at most
PAIRS_OF_STEP = 16  # SetFit's default batch size
BOTH = ("classify", "tag")
REGULARITIES = 10.0 ** np.arange(-2, 3.5, 0.5)  # among which logistic regression chooses


@dataclass(frozen=True)
class FewShotTask:
    """The data of one draw, which every learner gets."""

    config: str  # the config to train with
    file: str  # file of the training examples
    kind: Kind
    train: Sequence[Example]
    test: Sequence[Example]
    directory: Path

    @property
    def numbers(self) -> np.ndarray:
        return np.array([self.kind.labels.index(self.kind.targets.truth(example)) for example in self.train])

    def outcomes(self, probabilities: Sequence[np.ndarray]) -> Outcomes:
        raws = [np.log(np.maximum(p, SMALLEST)) for p in probabilities]
        return Outcomes(self.kind, self.test, raws)

    def every_label(self, columns: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """Spread [N, columns] over [N, labels]. Labels that the learner did not see in training get probability 0."""
        every = np.zeros((len(probabilities), len(self.kind.labels)))
        every[:, columns] = probabilities
        return every


@dataclass(frozen=True)
class Learner:
    learn: Callable[[FewShotTask, str], Outcomes]
    tasks: tuple[str, ...] = BOTH
    most: int = ALL  # examples per class; larger draws are skipped


def train_with(*overrides: str) -> Callable[[FewShotTask, str], Outcomes]:
    """Return a learner that runs `bert-jax train` with these settings."""

    def learn(task: FewShotTask, init: str) -> Outcomes:
        workdir = task.directory / "workdir"
        shutil.rmtree(workdir, ignore_errors=True)
        settings = [f"init={init}", f"data.train={task.file}", "report=False", *overrides]
        if task.config == "tag":  # a few training sentences lack some tags of the test set
            settings.append(f"labels={','.join(task.kind.labels)}")
        words = [
            "--config",
            task.config,
            *(f"--config.{setting}" for setting in settings),
        ]
        train = [sys.executable, "-m", "bert_jax", "train", *words, "--workdir", str(workdir)]
        run = subprocess.run(train, capture_output=True, text=True, check=False)
        if run.returncode:
            messages = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
            raise BertJaxError(f"`bert-jax train` failed: {messages[-1]}")
        result = predict_outcomes(load(workdir / "model"), task.test)
        shutil.rmtree(workdir)
        return result

    return learn


def regression(task: FewShotTask, init: str) -> Outcomes:
    """scikit-learn's logistic regression on the vectors of sentence-transformers; folds choose how regular it is."""
    sentence_transformers, linear_model, selection = libraries(
        "sentence_transformers", "sklearn.linear_model", "sklearn.model_selection"
    )
    model = sentence_transformers.SentenceTransformer(init, device="cpu")
    classifier = linear_model.LogisticRegression(max_iter=1000)
    if task.config == "tag":
        return word_regression(task, model, classifier)

    def vectors(examples: Sequence[Example]) -> np.ndarray:
        texts = [example.text for example in examples]
        if isinstance(texts[0], str):
            return model.encode(texts)
        first, second = (model.encode(list(part)) for part in zip(*texts, strict=True))
        return np.concatenate([abs(first - second), first * second], 1)

    folds = min(5, int(np.bincount(task.numbers)[np.unique(task.numbers)].min()))
    if folds > 1:
        classifier = selection.GridSearchCV(classifier, {"C": REGULARITIES}, cv=folds, scoring="neg_log_loss")
    classifier.fit(vectors(task.train), task.numbers)
    probabilities = classifier.predict_proba(vectors(task.test))
    return task.outcomes(list(task.every_label(classifier.classes_, probabilities)))


def word_regression(task: FewShotTask, model, classifier) -> Outcomes:
    """Classify words by the hidden state of their first token."""
    (torch,) = libraries("torch")

    def states(examples: Sequence[Example]) -> list[np.ndarray]:
        of_texts = []
        for example in examples:
            settings = {"is_split_into_words": True, "truncation": True, "max_length": model.max_seq_length}
            texts = model.tokenizer([list(example.text)], return_tensors="pt", **settings)
            words = texts.word_ids(0)
            with torch.no_grad():
                tokens = model[0].auto_model(**texts).last_hidden_state[0].numpy()
            first = {word: tokens[i] for i, word in reversed(list(enumerate(words))) if word is not None}
            of_texts.append(np.stack([first.get(n, tokens[0]) for n in range(len(example.text))]))
        return of_texts

    numbers = [
        task.kind.labels.index(tag) for example in task.train for tag in task.kind.targets.truth(example)
    ]
    classifier.fit(np.concatenate(states(task.train)), numbers)
    probabilities = (classifier.predict_proba(of_text) for of_text in states(task.test))
    return task.outcomes([task.every_label(classifier.classes_, p) for p in probabilities])


def setfit(task: FewShotTask, init: str) -> Outcomes:
    """The SetFit package with its defaults: one epoch of pairs, but at most PAIRS."""
    package, datasets = libraries("setfit", "datasets")

    def texts(examples: Sequence[Example]) -> list[str]:
        return [e.text if isinstance(e.text, str) else " [SEP] ".join(e.text) for e in examples]

    model = package.SetFitModel.from_pretrained(init)
    settings = package.TrainingArguments(
        output_dir=str(task.directory / "setfit"),
        batch_size=PAIRS_OF_STEP,
        max_steps=math.ceil(min(count_pairs(task.numbers), PAIRS) / PAIRS_OF_STEP),
        save_strategy="no",
        report_to="none",
    )
    data = datasets.Dataset.from_dict({"text": texts(task.train), "label": task.numbers.tolist()})
    package.Trainer(model=model, args=settings, train_dataset=data).train()
    probabilities = np.asarray(model.predict_proba(texts(task.test), as_numpy=True))
    shutil.rmtree(task.directory / "setfit", ignore_errors=True)
    return task.outcomes(list(task.every_label(np.unique(task.numbers), probabilities)))


def count_pairs(classes: np.ndarray) -> int:
    """Count the pairs in an epoch of SetFit: all within a class and all between classes, the rarer kind oversampled."""
    counts = np.unique_counts(classes).counts
    alike = (counts * (counts + 1) // 2).sum()
    return 2 * int(max(alike, len(classes) * (len(classes) + 1) // 2 - alike))


def trainer(task: FewShotTask, init: str) -> Outcomes:
    """transformers' Trainer with its defaults: three epochs, batches of 8, learning rate 5e-5."""
    torch, transformers = quiet_transformers(0)
    opener = (
        "AutoModelForTokenClassification" if task.config == "tag" else "AutoModelForSequenceClassification"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(init)
    model = getattr(transformers, opener).from_pretrained(init, num_labels=len(task.kind.labels))
    tagging = task.config == "tag"

    def features(examples: Sequence[Example]) -> list[dict[str, Any]]:
        inputs = []
        for example in examples:
            parts = (example.text,) if isinstance(example.text, str) else example.text
            texts = (list(parts),) if tagging else parts
            encoded = dict(
                tokenizer(*texts, truncation=True, max_length=LONGEST, is_split_into_words=tagging)
            )
            if tagging:
                words = tokenizer(
                    *texts, truncation=True, max_length=LONGEST, is_split_into_words=True
                ).word_ids()
                tags = task.kind.targets.truth(example)
                encoded["labels"] = [
                    task.kind.labels.index(tags[word]) if word is not None and word != before else IGNORED
                    for before, word in zip([None, *words], words, strict=False)
                ]
            else:
                encoded["label"] = task.kind.labels.index(task.kind.targets.truth(example))
            inputs.append(encoded)
        return inputs

    collator = (
        transformers.DataCollatorForTokenClassification if tagging else transformers.DataCollatorWithPadding
    )
    settings = transformers.TrainingArguments(
        output_dir=str(task.directory / "trainer"), save_strategy="no", report_to="none", use_cpu=True, seed=0,
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    run = transformers.Trainer(model, settings, collator(tokenizer), features(task.train))
    run.train()
    predicted = run.predict(features(task.test))
    shutil.rmtree(task.directory / "trainer", ignore_errors=True)
    probabilities = torch.softmax(torch.tensor(predicted.predictions), -1).numpy()
    if not tagging:
        return task.outcomes(list(probabilities))
    words = (p[labels != IGNORED] for p, labels in zip(probabilities, predicted.label_ids, strict=True))
    return task.outcomes(
        [with_missing_words(p, len(example.text)) for p, example in zip(words, task.test, strict=True)]
    )


def with_missing_words(probabilities: np.ndarray, words: int) -> np.ndarray:
    """Append uniform probabilities for the words that truncation cut off."""
    rest = np.full((words - len(probabilities), probabilities.shape[1]), 1 / probabilities.shape[1])
    return np.concatenate([probabilities, rest])


# Methods by hand train the final model alone: no fold is predicted in so short a time.
OURS = ("default", "probe", "contrastive", "finetune")
LEARNERS = {
    "default": Learner(train_with()),
    "probe": Learner(train_with("method=linear_probe")),
    "contrastive": Learner(train_with("method=contrastive", "data.folds=2", "minutes=0.01"), ("classify",)),
    "finetune": Learner(train_with("method=finetune", "data.folds=2", "minutes=0.01")),
    "regression": Learner(regression),
    "setfit": Learner(setfit, ("classify",), most=64),
    "trainer": Learner(trainer),
}
