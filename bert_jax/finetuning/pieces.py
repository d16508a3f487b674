"""Pieces of labelled examples: what the model reads of each, with its targets, and the way back to the examples."""

from collections.abc import Sequence
from dataclasses import dataclass

from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import EncodedExample
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.kind import Kind, TextWindows


def make_pieces(
    kind: Kind, examples: Sequence[Example], windows: Sequence[TextWindows]
) -> list[EncodedExample]:
    return [
        EncodedExample(encoding, i, values)
        for i, (example, text) in enumerate(zip(examples, windows, strict=True))
        for encoding, values in zip(text.encodings, kind.target_values(example, text), strict=True)
    ]


@dataclass(frozen=True)
class PredictionEvaluator:
    """Computes metrics of whole validation examples from the logits of their pieces; None stands for those not
    computed."""

    kind: Kind
    examples: Sequence[Example]
    windows: Sequence[TextWindows]

    def merge_logits(self, logits: list) -> list:
        """Return the raw prediction for each example; None if logits are missing for any of its pieces."""
        raws, pieces = [], iter(logits)
        for example, windows in zip(self.examples, self.windows, strict=True):
            parts = [next(pieces) for _ in windows.encodings]
            whole = all(part is not None for part in parts)
            raws.append(self.kind.combine_windows(example.text, windows, parts) if whole else None)
        return raws

    def __call__(self, logits: list) -> dict[str, float]:
        judged = [
            (raw, e)
            for raw, e in zip(self.merge_logits(logits), self.examples, strict=True)
            if raw is not None
        ]
        if not judged:
            return {}
        predicted = [self.kind.predict(raw, UNCALIBRATED) for raw, _ in judged]
        return self.kind.score_sums(predicted, [self.kind.truth(example) for _, example in judged]).scores
