"""A served reranker."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bert_jax.serve.call import Call
from bert_jax.serve.predictor import RequestOptions, ServedPredictor


class ServedModel(ServedPredictor):
    kind: ClassVar = "reranker"

    def pipelines(self) -> list:
        return [self.pipeline(RequestOptions(raw=True))]

    async def rank(
        self,
        call: Call,
        query: str,
        documents: Sequence[str],
        *,
        raw_scores: bool = False,
        truncate: bool = True,
    ) -> list[tuple[int, float]]:
        """Return the index and the score of each document, best first."""
        outcomes = await self.predict(
            call, [(query, document) for document in documents], RequestOptions(raw=True), truncate
        )
        logits = [float(np.ravel(outcome.raw)[0]) for outcome in outcomes]
        kind, calibration = self.model.kind, self.model.calibration
        scores = logits
        if not raw_scores:
            scores = [float(kind.result_and_confidence(o.raw, calibration)[0]) for o in outcomes]
        # Sort by logits, because probabilities near 1 are equal in floating point.
        return [(n, scores[n]) for n in sorted(range(len(logits)), key=lambda n: (-logits[n], n))]
