"""`bert-jax bench embed` and `bench predict`: texts per second in batches, and milliseconds of one text alone.

Each text is also given alone, and the percentiles are those of all texts; the shortest tenth has a figure of its own.
"""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

import bert_jax
from bert_jax.bench.timing import (
    Figures,
    Machine,
    MeasuredTurns,
    Turn,
    open_profile,
    text_figures,
    trace_calls,
)
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import OutcomePipeline
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.predictions.whole_text_kind import WholeTextKind
from bert_jax.text.line_reader import read_lines


def measure_texts(
    verb: str, directory: str, source: str, count: int, dtypes: Sequence[str], profile: str | None, as_json: bool
) -> str:  # fmt: skip
    """Time what `verb` does with at most `count` texts of a file, in each dtype; trace the text of median length, too,
    if there is a directory for it."""
    traces = open_profile(profile) if profile else None
    machine, turns, figures = Machine(), list[Turn](), dict[str, Figures]()
    for dtype in dtypes:
        model = bert_jax.load(directory, dtype=dtype)
        if verb == "predict":
            model.require_head(WholeTextKind.heads, "bench predict")
        texts = sample_texts(source, count)
        encodings = model.tokenizer.encode(texts, max_length=model.config.max_position_embeddings)
        lengths = np.array([len(encoding.input_ids) for encoding in encodings])
        pipeline = EmbeddingPipeline(model) if verb == "embed" else OutcomePipeline(model, model.kind)
        run = partial(map_texts, process_chunk=pipeline)
        figures[dtype], taken = text_figures(run, texts, lengths)
        turns += taken
        if traces:
            middle = texts[int(np.argsort(lengths, kind="stable")[len(lengths) // 2])]
            trace_calls(partial(run, [middle]), traces / dtype)
    title = f"{verb}: {len(texts):,} texts of {lengths.mean():.1f} tokens on {jax.devices()[0].device_kind}"
    return MeasuredTurns(title, figures, machine.load_during(turns)).shown(as_json)


def sample_texts(source: str, count: int) -> list[str]:
    """Return at most `count` lines of the file, drawn at random, always the same ones."""
    texts = [text for text in read_lines(source) if text.strip()]
    if not texts:
        raise BertJaxError(f"{source} holds no text; name a file with one text per line")
    return [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:count]]
