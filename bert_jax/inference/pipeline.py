"""What a model does with texts, in three steps: encode them, compute, and read the results from the outputs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from bert_jax.inference.computations import Computation
from bert_jax.inference.runner import Runner
from bert_jax.text.tokenizer import Encoding
from bert_jax.text.truncation import TruncationCounter

Result = TypeVar("Result")


@dataclass(frozen=True)
class ModelInputs:
    """Texts as a model reads them: rows of tokens, of which a long text may have several."""

    texts: Sequence
    rows: list[Encoding]
    first_rows: list[Encoding]  # the first row of each text, which says whether it was truncated
    parts: Any = None  # what else the pipeline needs to read the results
    beside: dict[str, np.ndarray] | None = (
        None  # further arrays of the batch, with a row for each row of tokens
    )


class TextPipeline(ABC, Generic[Result]):
    """A function of a list of texts that returns a result for each. Its steps can also be called one by one, so that
    the rows of several callers are computed together."""

    # The shapes of the further arrays of a row, in each of the programs that it may need.
    beside_shapes: ClassVar[tuple[dict[str, tuple[int, ...]], ...]] = ({},)

    def __init__(self, model: Runner, computation: Computation, truncated: TruncationCounter):
        self.model, self.computation, self.truncated = model, computation, truncated

    @abstractmethod
    def preprocess(self, texts: Sequence) -> ModelInputs: ...

    @abstractmethod
    def postprocess(self, inputs: ModelInputs, outputs: list) -> Iterable[Result]:
        """Return a result for each text; `outputs` has an entry for each row."""

    def __call__(self, texts: Sequence) -> Any:
        inputs = self.preprocess(texts)
        self.truncated.count(inputs.first_rows)
        return self.postprocess(inputs, self.model.run(inputs.rows, self.computation, inputs.beside))
