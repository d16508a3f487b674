"""Relevance: the probability that a document is relevant to a query, from a cross-encoder with one logit.

Ranking metrics are per query: all pairs of a query are ranked together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.candidates import RELEVANT, CandidateColumns, read_candidates
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.group_columns import (
    describe_columns,
    find_query_and_passage,
    first_rows,
)
from bert_jax.data.examples.row_packing import Target
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import CROSS_ENCODER
from bert_jax.metrics import retrieval
from bert_jax.metrics.score_sums import ScoreSums, check_lengths
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration, sigmoid
from bert_jax.predictions.calibration_fitting import (
    CalibratedPredictions,
    ExampleIndices,
    cross_fit,
    document_names,
    fit_logistic,
)
from bert_jax.predictions.example_reader import ExampleReader, TextWindows
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import LabelError, ReportData
from bert_jax.predictions.selective import MinConfidence, abstains
from bert_jax.predictions.whole_text_kind import WholeTextDecoder, WholeTextKind, WholeTextTargets

LABELS = ("LABEL_0",)  # the name of the only output in transformers
WORDS = ("not relevant", "relevant")
DOUBTFUL = 0.5  # the doubt above which a label is shown as an error


class Judgement(NamedTuple):
    query: str
    grade: float

    @property
    def relevant(self) -> bool:
        return self.grade >= RELEVANT

    @property
    def gain(self) -> float:
        return self.grade if self.relevant else 0.0


class CandidateReader(ExampleReader):
    def read(self, spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0) -> list[Example]:
        lists = read_candidates(spec, candidate_columns(spec, columns), most)
        return [pair for candidates in lists for pair in candidates.pairs()]

    def describe_columns(self, spec: str, columns: ExampleColumns) -> str:
        return describe_columns(spec, candidate_columns(spec, columns), "--text, --text-pair or --label")

    def complete_columns(self, where: str, row: Mapping, columns: ExampleColumns) -> ExampleColumns:
        if columns.text or columns.text_pair:
            return columns
        query, passage = find_query_and_passage([name for name, cell in row.items() if isinstance(cell, str)])
        if not (query and passage):
            return columns
        return replace(columns, text=query[0], text_pair=passage[0])


class RelevanceTargets(WholeTextTargets):
    named_labels = False
    label_target = Target("float32")

    def truth(self, example: Example) -> Judgement:
        assert isinstance(example.label, float)
        return Judgement(example.text[0], example.label)

    def counted_labels(self, example: Example) -> Iterable[str]:
        return [WORDS[self.truth(example).relevant]]

    def target_value(self, example: Example) -> float:
        return self.truth(example).grade

    def describe(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        return f"{values['labels']:g}" if values["label_weights"] else "", {}

    def loss(self, logits, batch: dict, label_weights, smoothing: float = 0.0):
        from bert_jax.losses.loss import binary_cross_entropy

        return binary_cross_entropy(logits, batch["labels"][..., None], label_weights)

    def score_sums(self, predicted: Sequence[float], truth: Sequence[Judgement]) -> ScoreSums:
        check_lengths(predicted, truth)
        scores: dict[str, dict[str, float]] = {}
        grades: dict[str, dict[str, float]] = {}
        for n, (score, judgement) in enumerate(zip(predicted, truth, strict=True)):
            scores.setdefault(judgement.query, {})[f"{n:09}"] = score
            grades.setdefault(judgement.query, {})[f"{n:09}"] = judgement.gain
        return retrieval.ranking_metrics(
            [retrieval.sort_by_score(of_query) for of_query in scores.values()], [*grades.values()]
        )

    def is_right(self, predicted: float, truth: Judgement) -> bool:
        return (predicted >= RELEVANT) == truth.relevant


class RelevanceDecoder(WholeTextDecoder):
    """`raw` is the logit, and a prediction is the probability."""

    def combine_windows(self, text, windows: TextWindows, logits: Sequence) -> float:
        """Return the logit of the most relevant window: a document is relevant if a part of it is."""
        return float(np.max(logits))

    def predict(self, raw: float, calibration: Calibration) -> float:
        return float(relevance_probability(np.array(raw), calibration))

    def result_and_confidence(self, raw: float, calibration: Calibration) -> tuple[float, float]:
        """Return the probability twice: a guaranteed precision is the share of relevant documents above a threshold."""
        return self.predict(raw, calibration), self.predict(raw, calibration)

    def uncertainty(self, raw: float, calibration: Calibration) -> float:
        return 1 - 2 * abs(self.predict(raw, calibration) - 0.5)

    def gather_values(self, values: list) -> np.ndarray:
        return np.array(values, np.float64)

    def require_labels(self, what: str) -> None:
        raise BertJaxError(
            f"{what} is for labels, and this model scores pairs; call predict, or rank of a bert_jax.Reranker"
        )

    def probabilities(self, raw: float, calibration: Calibration) -> np.ndarray:
        return np.array([self.predict(raw, calibration)], np.float32)

    def to_record(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        probability = self.predict(raw, calibration)
        is_relevant = probability >= RELEVANT
        if min_confidence is not None:
            is_relevant = not abstains(probability, min_confidence)
        return {"relevance": round(probability, 6), "relevant": is_relevant}

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        logits, truth = np.array(outcomes.raw_outputs, np.float64), true_relevance(outcomes)
        unscaled = Calibration(Relevance.name, LABELS, (1.0,))

        def scaled(rows: ExampleIndices) -> Calibration:
            slope, offset = fit_logistic(logits[rows], truth[rows])
            return replace(unscaled, temperatures=(1 / slope,), offset=offset)

        apply, documents = partial(relevance_predictions, logits, truth), document_names(outcomes.examples)
        return cross_fit([lambda rows: unscaled, scaled], apply, documents)


class RelevancePresentation(Presentation):
    units = abstention_units = "pairs"

    def report_data(self, outcomes: Outcomes) -> ReportData:
        logits, truth = np.array(outcomes.raw_outputs, np.float64), true_relevance(outcomes)
        predictions = relevance_predictions(logits, truth, outcomes.calibration, np.arange(len(truth)))
        right = (predictions.calibrated >= RELEVANT) == truth
        examples = self.report_examples(outcomes, predictions.calibrated, right)
        return ReportData(**vars(predictions), examples=examples)

    def label_errors(self, outcomes: Outcomes) -> list[LabelError]:
        rows = zip(outcomes.examples, true_relevance(outcomes).tolist(), outcomes.predictions, strict=True)
        doubts = [(example, right, 1 - p if right else p) for example, right, p in rows]
        return [
            LabelError(example, WORDS[right], WORDS[not right], doubt, 1 - doubt)
            for example, right, doubt in doubts
            if doubt > DOUBTFUL
        ]

    def prediction_text(self, prediction, example: Example) -> str:
        is_relevant = prediction.relevant if isinstance(prediction, Judgement) else prediction >= RELEVANT
        return WORDS[is_relevant]


class Relevance(WholeTextKind):
    name = "relevance"
    heads, title = ("classify",), "relevance of documents for queries"
    best_metric = retrieval.MAIN_METRIC
    detects_out_of_scope = False
    reader = CandidateReader()
    targets_class, decoder_class, presentation = RelevanceTargets, RelevanceDecoder, RelevancePresentation()

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        return layout.is_cross_encoder

    @classmethod
    def from_layout(cls, layout: Layout) -> Self:
        if len(layout.labels) != 1:
            raise BertJaxError(
                f"this model gives {len(layout.labels)} numbers for a pair; a cross-encoder gives one"
            )
        return cls(LABELS)

    @property
    def hf_config_keys(self) -> dict[str, Any]:
        return super().hf_config_keys | CROSS_ENCODER

    @classmethod
    def from_examples(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        return cls(LABELS)


def true_relevance(outcomes: Outcomes) -> np.ndarray:
    return np.array([judgement.relevant for judgement in outcomes.truth])


def candidate_columns(spec: str, columns: ExampleColumns) -> CandidateColumns:
    """Return the columns that are named or, if the table has all three, those of the training data."""

    def named(columns: ExampleColumns) -> CandidateColumns:
        names = tuple(name for name in (columns.text, columns.text_pair) if name)
        return CandidateColumns(names, columns.label, columns.group, columns.skip_bad)

    some, _ = first_rows(spec, columns.numbered)
    if some:
        learnt = named(columns.resolve(*some[0]))
        if len(learnt.texts) == 2 and learnt.resolve(some).score:
            return learnt
    return named(columns)


def relevance_probability(logits: np.ndarray, calibration: Calibration) -> np.ndarray:
    if calibration.temperatures:
        logits = logits / calibration.temperatures[0] + calibration.offset
    return sigmoid(logits)


def relevance_predictions(
    logits: np.ndarray, truth: np.ndarray, calibration: Calibration, rows: ExampleIndices
) -> CalibratedPredictions:
    before, after = (relevance_probability(logits[rows], c) for c in (UNCALIBRATED, calibration))
    return CalibratedPredictions(before, after, truth[rows], after, truth[rows], rows)


KIND = Relevance
