"""`bert-jax bench embed` and `bench predict`: texts per second in batches, and milliseconds of one text alone.

Each text is also given alone, and the percentiles are those of all texts; the shortest tenth has a figure of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

import bert_jax
from bert_jax.bench.timing import Figures, Machine, Measured, Turn, open_profile, text_figures, trace_calls
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.predictions.whole_text_kind import WholeTextKind
from bert_jax.text.line_reader import read_lines


@dataclass(frozen=True)
class TextWorkload:
    """What is done with which texts."""

    verb: str  # embed or predict
    directory: str
    source: str  # file with one text per line
    count: int  # texts, at most

    def open(self, dtype: str) -> tuple:
        """Return the model, the texts, and the number of tokens of each text."""
        model = bert_jax.load(self.directory, dtype=dtype)
        if self.verb == "predict":
            model.require_head(WholeTextKind.heads, "bench predict")
        texts = sample_texts(self.source, self.count)
        encodings = model.tokenizer.encode(texts, max_length=model.config.max_position_embeddings)
        return model, texts, np.array([len(encoding.input_ids) for encoding in encodings])

    def function(self, model) -> Callable[[Sequence[str]], object]:
        if self.verb == "embed":
            return partial(map_texts, process_chunk=EmbeddingPipeline(model))
        return partial(map_texts, process_chunk=OutcomePipeline(model, model.kind))


def measure_texts(
    workload: TextWorkload, dtypes: Sequence[str], profile: str | None = None, as_json: bool = False
) -> str:
    """Time the texts in each dtype; trace the text of median length, too, if there is a directory for it."""
    traces = open_profile(profile) if profile else None
    machine, turns, figures = Machine(), list[Turn](), dict[str, Figures]()
    for dtype in dtypes:
        model, texts, lengths = workload.open(dtype)
        run = workload.function(model)
        figures[dtype], taken = text_figures(run, texts, lengths)
        turns += taken
        if traces:
            middle = texts[int(np.argsort(lengths, kind="stable")[len(lengths) // 2])]
            trace_calls(partial(run, [middle]), traces / dtype)
    title = f"{workload.verb}: {len(texts):,} texts of {lengths.mean():.1f} tokens on {jax.devices()[0].device_kind}"
    return Measured(title, figures, machine.load_during(turns)).shown(as_json)


def sample_texts(source: str, count: int) -> list[str]:
    """Return at most `count` lines of the file, drawn at random, always the same ones."""
    texts = [text for text in read_lines(source) if text.strip()]
    if not texts:
        raise BertJaxError(f"{source} holds no text; name a file with one text per line")
    return [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:count]]
