"""`bert-jax bench embed` and `bench predict`: texts per second in batches, and milliseconds of one text alone.

Each text is also given alone, and the percentiles are those of all texts; the shortest tenth has a figure of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

import bert_jax
from bert_jax.bench.profile import name_operations, profile
from bert_jax.bench.text_figures import text_figures
from bert_jax.bench.timing import Figures, Machine, Measured, Turn
from bert_jax.bench.trace import on_host
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


def measure_texts(workload: TextWorkload, dtypes: Sequence[str], as_json: bool = False) -> str:
    machine, turns, figures = Machine(), list[Turn](), dict[str, Figures]()
    for dtype in dtypes:
        model, texts, lengths = workload.open(dtype)
        figures[dtype], taken = text_figures(workload.function(model), texts, lengths)
        turns += taken
    title = f"{workload.verb}: {len(texts):,} texts of {lengths.mean():.1f} tokens on {jax.devices()[0].device_kind}"
    return Measured(title, figures, machine.load_during(turns)).shown(as_json)


class TracedTokenizer:
    """A tokenizer whose calls have a name in a trace."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __getattr__(self, name: str):
        value = getattr(self.tokenizer, name)
        if not callable(value):
            return value

        def call(*arguments, **settings):
            with on_host("tokenize"):
                return value(*arguments, **settings)

        return call


def profile_text(workload: TextWorkload, dtype: str, picture: str, as_json: bool) -> str:
    """Show where the time of a text of median length goes: as a picture, and as text or JSON."""
    name_operations()
    model, texts, lengths = workload.open(dtype)
    middle = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    text, run = [texts[middle]], workload.function(model)
    model._tokenizer = TracedTokenizer(model.tokenizer)
    title = f"{workload.verb} of one text of {lengths[middle]} tokens, {dtype}"
    return profile(title, lambda: run(text), dtype).shown(picture, as_json)


def sample_texts(source: str, count: int) -> list[str]:
    """Return at most `count` lines of the file, drawn at random, always the same ones."""
    texts = [text for text in read_lines(source) if text.strip()]
    if not texts:
        raise BertJaxError(f"{source} holds no text; name a file with one text per line")
    return [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:count]]
