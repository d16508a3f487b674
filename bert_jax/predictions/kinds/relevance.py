"""Relevance: the probability that a document is relevant to a query, from a cross-encoder with one logit.

Ranking metrics are per query: all pairs of a query are ranked together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.arrange import Target
from bert_jax.data.examples.candidates import RELEVANT, CandidateColumns, read_candidates
from bert_jax.data.examples.columns import EVIDENT, Columns
from bert_jax.data.examples.example import Example
from bert_jax.hub.layout import Layout
from bert_jax.hub.sentence_transformers import CROSS_ENCODER
from bert_jax.losses.loss import Loss, binary_cross_entropy
from bert_jax.metrics import retrieval
from bert_jax.metrics import sums as metrics
from bert_jax.predictions.calibration import NONE, Calibration, sigmoid
from bert_jax.predictions.cross_fitting import Judged, Rows, cross_fitted, documents_of
from bert_jax.predictions.fitting import logistic
from bert_jax.predictions.kind import Outcomes, Windows
from bert_jax.predictions.label_errors import LabelError
from bert_jax.predictions.view import Curve, View
from bert_jax.predictions.whole_texts import WholeTexts

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


@dataclass(frozen=True)
class Relevance(WholeTexts):
    """The relevance of pairs. `raw` is the logit, and a prediction is the probability."""

    name = "relevance"
    heads = ("classify",)
    best = retrieval.BEST
    units = abstention_units = "pairs"
    scoped = False

    @classmethod
    def fits(cls, layout: Layout) -> bool:
        return layout.is_cross_encoder

    @classmethod
    def of(cls, layout: Layout) -> Self:
        if len(layout.labels) != 1:
            raise BertJaxError(f"this model gives {len(layout.labels)} numbers for a pair, not its relevance")
        return cls(LABELS)

    @property
    def title(self) -> str:
        return "relevance of documents for queries"

    @property
    def published(self) -> dict[str, Any]:
        return super().published | CROSS_ENCODER

    @classmethod
    def read(cls, spec: str, columns: Columns = EVIDENT, most: int = 0) -> list[Example]:
        names = tuple(name for name in (columns.text, columns.pair) if name)
        of_candidates = CandidateColumns(names, columns.label, columns.document, columns.skip_bad)
        lists = read_candidates(spec, of_candidates, most)
        return [pair for candidates in lists for pair in candidates.pairs()]

    @classmethod
    def learn(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        return cls(LABELS)

    def check(self, examples: Sequence[Example]) -> None:
        pass  # any grade is allowed

    def matched(self, examples: Sequence[Example], known: Sequence[str] = ()):
        return self, []

    def truth(self, example: Example) -> Judgement:
        assert isinstance(example.label, float)
        return Judgement(example.text[0], example.label)

    def counted(self, example: Example) -> Iterable[str]:
        return [WORDS[self.truth(example).relevant]]

    def raw(self, text, windows: Windows, logits: Sequence) -> float:
        """Return the logit of the most relevant window: a document is relevant if a part of it is."""
        return float(np.max(logits))

    @property
    def target(self) -> Target:
        return Target("float32")

    def value(self, example: Example) -> float:
        return self.truth(example).grade

    def shown(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        return f"{values['labels']:g}" if values["label_weights"] else "", {}

    def loss(self, logits, batch: dict, label_weights, smoothing: float = 0.0) -> Loss:
        return binary_cross_entropy(logits, batch["labels"][..., None], label_weights)

    def predicted(self, raw: float, calibration: Calibration) -> float:
        return float(likely(np.array(raw), calibration))

    def is_right(self, predicted: float, truth: Judgement) -> bool:
        return (predicted >= RELEVANT) == truth.relevant

    def sums(self, predicted: Sequence[float], truth: Sequence[Judgement]) -> metrics.Sums:
        metrics.check(predicted, truth)
        scores: dict[str, dict[str, float]] = {}
        grades: dict[str, dict[str, float]] = {}
        for n, (score, judgement) in enumerate(zip(predicted, truth, strict=True)):
            scores.setdefault(judgement.query, {})[f"{n:09}"] = score
            grades.setdefault(judgement.query, {})[f"{n:09}"] = judgement.gain
        return retrieval.ranking(
            [retrieval.ranked(of_query) for of_query in scores.values()], [*grades.values()]
        )

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        logits = np.array(outcomes.raws, np.float64)
        return fit(logits, relevant(outcomes), documents_of(outcomes.examples))

    def view(self, outcomes: Outcomes) -> View:
        logits, truth = np.array(outcomes.raws, np.float64), relevant(outcomes)
        before, after = (likely(logits, calibration) for calibration in (NONE, outcomes.calibration))
        return View(
            before, after, truth, after, truth,
            curves={WORDS[1]: Curve(after, truth, int(truth.sum()))},
            shown=self.show(outcomes, after, (after >= RELEVANT) == truth),
        )  # fmt: skip

    def label_errors(self, outcomes: Outcomes) -> list[LabelError]:
        rows = zip(outcomes.examples, relevant(outcomes).tolist(), outcomes.predicted, strict=True)
        doubts = [(example, right, 1 - p if right else p) for example, right, p in rows]
        return [
            LabelError(example, WORDS[right], WORDS[not right], doubt, 1 - doubt)
            for example, right, doubt in doubts
            if doubt > DOUBTFUL
        ]

    def words(self, prediction, example: Example) -> str:
        is_relevant = prediction.relevant if isinstance(prediction, Judgement) else prediction >= RELEVANT
        return WORDS[is_relevant]

    def result(self, raw: float, calibration: Calibration) -> tuple[float, float]:
        """Return the probability twice: a promised precision is the share of relevant documents above a threshold."""
        return self.predicted(raw, calibration), self.predicted(raw, calibration)

    def doubt(self, raw: float, calibration: Calibration) -> float:
        return 1 - 2 * abs(self.predicted(raw, calibration) - 0.5)

    def probabilities(self, raw: float, calibration: Calibration) -> float:
        return self.predicted(raw, calibration)

    def as_json(self, raw: float, calibration: Calibration, enough: float | None) -> dict[str, Any]:
        probability = self.predicted(raw, calibration)
        is_relevant = probability >= (RELEVANT if enough is None else enough)
        return {"relevance": round(probability, 6), "relevant": is_relevant}

    def temperature(self, calibration: Calibration) -> str:
        return ""  # it is 1 / the slope of log odds, and means little without the offset


def relevant(outcomes: Outcomes) -> np.ndarray:
    return np.array([judgement.relevant for judgement in outcomes.truth])


def likely(logits: np.ndarray, calibration: Calibration) -> np.ndarray:
    if calibration.temperatures:
        logits = logits / calibration.temperatures[0] + calibration.offset
    return sigmoid(logits)


def fit(logits: np.ndarray, truth: np.ndarray, documents: Sequence[str]) -> Calibration:
    """Fit a calibration; `truth` [pairs] says whether each document is relevant."""

    def unscaled(rows: Rows) -> Calibration:
        return Calibration(Relevance.name, LABELS, (1.0,))

    def scaled(rows: Rows) -> Calibration:
        slope, offset = logistic(logits[rows], truth[rows])
        return replace(unscaled(rows), temperatures=(1 / slope,), offset=offset)

    def judge(calibration: Calibration, rows: Rows) -> Judged:
        before, after = (likely(logits[rows], c) for c in (NONE, calibration))
        return Judged(before, after, truth[rows], after, truth[rows], rows)

    return cross_fitted((unscaled, scaled), judge, documents)


KIND = Relevance
