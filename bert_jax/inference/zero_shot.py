"""Zero-shot classification: labels that a model was not trained for, and knows by their names alone.

A classifier of entailment reads each text with a sentence about each label. An embedder compares the vectors of texts
and labels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Self

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.config import Range, check_flag, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.typed_json import type_name
from bert_jax.inference.runner import ModelInputs, Runner, TextPipeline
from bert_jax.inference.text_outcomes import OutcomePipeline, TextOutcome
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.kinds.classes import Classes
from bert_jax.predictions.kinds.labels import Labels
from bert_jax.predictions.whole_text_kind import Label, WholeTextKind
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

HYPOTHESIS = "This example is {}."
LABEL_ALONE = "{}"  # what an embedder compares texts with
ZeroShotLabels = str | Sequence[str] | Mapping[str, str]
TEMPERATURE = 0.05  # of cosines: multiple negatives are trained at a scale of 20


@dataclass(frozen=True)
class CandidateLabels:
    """The labels to choose from, what each is called in the sentence about it, that sentence, and whether a text may
    have several labels."""

    labels: tuple[str, ...]
    descriptions: tuple[str, ...]
    template: str = ""  # "": the usual one of the model
    multi_label: bool = False

    @classmethod
    def read(cls, labels: Any, template: str = "", multi_label: bool = False) -> Self:
        """Read labels: a text with commas between them, a list, or a mapping of labels to their descriptions.

        >>> CandidateLabels.read("cats, dogs", "About {}.").hypotheses("{}")
        ['About cats.', 'About dogs.']
        >>> CandidateLabels.read({"cats": "small felines"}).hypotheses("{}")
        ['small felines']
        """
        if isinstance(labels, str):
            labels = [label.strip() for label in labels.split(",") if label.strip()]
        if not isinstance(labels, Mapping | Sequence):
            raise BertJaxError(f"labels must be a list of labels, not {type_name(labels)}")
        described = (
            labels if isinstance(labels, Mapping) else {label: label for label in map(check_label, labels)}
        )
        if not described or len(described) < len(labels):
            raise BertJaxError("labels must hold at least one label, and each once")
        check_flag(multi_label, "multi_label")
        if not isinstance(template, str) or (template and template.count("{}") != 1):
            raise BertJaxError(
                f'hypothesis_template must hold {{}} once, where the label stands, as "{HYPOTHESIS}" does, not '
                f"{template!r:.60}"
            )
        descriptions = tuple(map(check_label, described.values()))
        return cls(tuple(map(check_label, described)), descriptions, template, multi_label)

    def hypotheses(self, usual_template: str) -> list[str]:
        return [(self.template or usual_template).replace("{}", text) for text in self.descriptions]

    @property
    def kind(self) -> WholeTextKind:
        """What is predicted. A single label is true or not, so nothing else has a part in its probability."""
        several = self.multi_label or len(self.labels) == 1
        return Labels(self.labels) if several else Classes(self.labels)

    def rank(self, raw: np.ndarray) -> list[Label]:
        """Return the labels with their scores, best first; of equal ones the last first, as transformers has them."""
        kind = self.kind
        scores = kind.decoder.probabilities(raw, UNCALIBRATED)
        order = np.argsort(scores, kind="stable")[::-1]
        # The highest score of the other labels, or the threshold of a label that is independent of them.
        other = np.full(len(scores), scores[order[0]])
        other[order[0]] = scores[order[1]] if len(scores) > 1 else 0
        margins = scores - (0.5 if kind.separates_labels else other)
        return [Label(self.labels[i], float(scores[i]), float(margins[i])) for i in order]


def check_label(label: Any) -> str:
    if not isinstance(label, str) or not label.strip():
        raise BertJaxError(f"a label must be a text that is not blank, not {label!r:.60}")
    return label


class EntailmentPipeline(OutcomePipeline):
    """Computes the logits of labels: how far each text entails the hypothesis about each label. Its steps read pairs.

    Of a text that is too long for a hypothesis, the end is left out; hypotheses stay whole.
    """

    def __init__(
        self, model: Runner, candidates: CandidateLabels, truncated: TruncationCounter | None = None
    ):
        counter = truncated or TruncationWarner(model.config.max_position_embeddings)
        super().__init__(model, model.kind, truncated=counter)
        self.candidates, self.hypotheses = candidates, candidates.hypotheses(HYPOTHESIS)
        self.encoding_options = replace(self.encoding_options, truncation="only_first")
        if self.kind.name != Classes.name:
            raise BertJaxError(
                f"zero-shot classification needs a model that predicts entailment, and this one predicts "
                f"{self.kind.name}; open one that was trained on pairs with that label, or an embedder"
            )
        self.entailment = find_entailment(model.labels)
        self.contradiction = find_contradiction(model.labels, self.entailment)

    def __call__(self, texts: Sequence) -> Iterator[TextOutcome]:
        inputs = self.preprocess(self.pair(texts))
        rows, count = iter(inputs.first_rows), len(self.hypotheses)
        self.truncated.count([max(islice(rows, count), key=lambda row: row.dropped) for _ in texts])
        return self.group(self.postprocess(inputs, self.model.run(inputs.rows, self.computation)))

    def pair(self, texts: Sequence) -> list[tuple[str, str]]:
        """Return what the model reads: each text with each hypothesis."""
        check_single(texts)
        return [(text, hypothesis) for text in texts for hypothesis in self.hypotheses]

    def group(self, outcomes: Iterable[TextOutcome]) -> Iterator[TextOutcome]:
        """Yield the outcome of each text, given those of its pairs."""
        outcomes = iter(outcomes)
        while of_text := list(islice(outcomes, len(self.hypotheses))):
            logits = np.stack([outcome.raw for outcome in of_text])
            entailment = logits[:, self.entailment]
            if self.candidates.kind.separates_labels:
                entailment = entailment - logits[:, self.contradiction]
            yield TextOutcome(entailment)


def find_entailment(labels: Sequence[str]) -> int:
    """Return the index of the label that says that a text entails another: the first that begins like that word."""
    index = find_label(labels, "entail")
    if index is not None:
        return index
    warn_caller(
        f'none of the labels {", ".join(labels)} is "entailment", so the last is taken for it; a model that was not '
        "trained on entailment gives meaningless scores"
    )
    return len(labels) - 1


def find_contradiction(labels: Sequence[str], entailment: int) -> int:
    """Return the index of the label that says that a text excludes another.

    Without such a name it is the first label, or the last if the first is entailment, which is what transformers takes
    for it whatever the names are.

    >>> find_contradiction(["entailment", "contradiction", "neutral"], 0), find_contradiction(["no", "entailment"], 1)
    (1, 0)
    """
    index = find_label(labels, "contradict")
    if index is not None:
        return index
    return len(labels) - 1 if entailment == 0 else 0


def find_label(labels: Sequence[str], beginning: str) -> int | None:
    return next((n for n, label in enumerate(labels) if label.lower().startswith(beginning)), None)


class SimilarityPipeline(EmbeddingPipeline):
    """Computes the logits of labels: the cosines of each text with the texts about the labels, over a temperature."""

    def __init__(
        self,
        model: Runner,
        candidates: CandidateLabels,
        truncated: TruncationCounter | None = None,
        temperature: float = TEMPERATURE,
    ):
        check_number(temperature, "temperature", allowed=Range(0, exclusive_minimum=True))
        super().__init__(model, normalize=True, truncated=truncated)
        self.candidates, self.temperature = candidates, temperature
        check_several(candidates)

    @cached_property
    def label_vectors(self) -> np.ndarray:
        return np.stack(
            EmbeddingPipeline(self.model, normalize=True)(self.candidates.hypotheses(LABEL_ALONE))
        )

    def preprocess(self, texts: Sequence) -> ModelInputs:
        check_single(texts)
        return super().preprocess(texts)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> Any:
        vectors = super().postprocess(inputs, outputs)
        return compare_labels(vectors, self.label_vectors, self.temperature)


def check_several(candidates: CandidateLabels) -> None:
    if candidates.kind.separates_labels:
        raise BertJaxError(
            "an embedder says which of several labels is nearest, not which are true; give two labels or more and "
            "leave multi_label out, or open a model that predicts entailment"
        )


def compare_labels(
    texts: np.ndarray, labels: np.ndarray, temperature: float = TEMPERATURE
) -> Iterator[TextOutcome]:
    """Yield the logits of the labels for each text; both are given as unit vectors [N, D]."""
    return map(TextOutcome, texts @ labels.T / temperature)


def check_single(texts: Sequence) -> None:
    if pair := next((text for text in texts if not isinstance(text, str)), None):
        raise BertJaxError(f"zero-shot classification reads single texts, not {pair!r:.60}")


def zero_shot_pipeline(
    model: Runner, candidates: CandidateLabels, truncated: TruncationCounter | None = None
) -> TextPipeline:
    """Return the pipeline that computes an outcome for each text, as `candidates.kind` reads it."""
    by_similarity = model.layout.embedder is not None
    return (SimilarityPipeline if by_similarity else EntailmentPipeline)(model, candidates, truncated)
