"""The base of the presentations: predictions and truths as people read them, on a report's pages and in a terminal."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from bert_jax.data.examples.example import Example
from bert_jax.predictions.report_data import LabelError, ReportData, ReportExample


class Presentation(ABC):
    """What it shows of many examples comes from their `Outcomes`, see kind.py."""

    units: ClassVar[str] = "texts"  # a plural noun: what is right or wrong one by one, such as words
    abstention_units: ClassVar[str] = "texts"  # a plural noun: what a model may abstain on
    marks_text: ClassVar[bool] = False  # whether a terminal shows predictions as parts of the text

    def example_text(self, example: Example) -> str:
        """Return the text of an example."""
        return example.text if isinstance(example.text, str) else " — ".join(example.text)

    def prediction_text(self, prediction, example: Example) -> str:
        """Return a prediction or truth as text."""
        return prediction

    def mark_text(self, text, prediction: dict[str, Any], labels: tuple[str, ...]) -> dict[str, Any]:
        """Return a prediction with the text, in which its parts are marked, instead of these parts; for kinds that mark
        texts."""
        return prediction

    @abstractmethod
    def report_data(self, outcomes) -> ReportData:
        """Return what a report shows."""

    def report_examples(self, outcomes, likely, right) -> list[ReportExample]:
        """Return the rows of a report; `likely` is the probability that each prediction is right."""
        rows = zip(outcomes.examples, outcomes.truth, outcomes.predictions, likely, right, strict=True)
        text = self.prediction_text
        return [
            ReportExample(e.where, self.example_text(e), text(t, e), text(p, e), float(score), bool(r))
            for e, t, p, score, r in rows
        ]

    def label_errors(self, outcomes) -> list[LabelError]:
        """Return the most doubtful label of each example that has a doubtful one. By default there are none."""
        return []
