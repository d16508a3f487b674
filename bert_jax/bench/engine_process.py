"""One engine, measured in a process of its own: `python -m bert_jax.bench.engine_process REQUEST` prints JSON.

So its memory is its own, and its threads compete with no other engine's.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from bert_jax.bench.timing import Machine, text_figures
from bert_jax.core import memory
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.beir import is_beir, read_beir
from bert_jax.data.examples.group_columns import GroupColumns, reuse_training_columns
from bert_jax.data.examples.groups import read_unpaired
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.engine import open_directory
from bert_jax.inference.load import load
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import OutcomePipeline, read_examples
from bert_jax.inference.text_vectors import EmbeddingPipeline
from bert_jax.metrics.intervals import bootstrap_intervals
from bert_jax.report.embedders.evaluate_embedders import evaluates_vectors
from bert_jax.report.model_evaluation import measure_scores


def measure_engine(name: str, engine: str, dtype: str, data: str, most: int) -> dict[str, Any]:
    """Measure a model directory on labelled data, and its speed on `most` texts of it at most."""
    machine, start = Machine(), time.perf_counter()
    directory = open_directory(name, engine, dtype)
    model = load(directory)
    seconds = time.perf_counter() - start
    run, texts = text_function(directory, model, data)
    drawn = [texts[i] for i in np.random.RandomState(0).permutation(len(texts))[:most]]
    figures, turns = text_figures(run, drawn, np.ones(len(drawn)))
    peak = memory.peak_process_bytes()
    main, sums = measure_scores(directory, data)
    return {
        "load_seconds": seconds,
        "texts_per_second": figures["texts_per_second"],
        "one_text_p50_ms": figures["one_text_p50_ms"],
        "peak_bytes": peak,
        "metric": main,
        "score": asdict(bootstrap_intervals(sums)[main]),
        "machine": machine.load_during(turns),
    }


def text_function(
    directory: ModelDirectory, model: Encoder, data: str
) -> tuple[Callable[[Sequence], object], list]:
    """Return the function of texts that is timed, and the texts of the data."""
    if not evaluates_vectors([directory], data):
        examples, _ = read_examples(model, data)
        run = partial(map_texts, process_chunk=OutcomePipeline(model, model.kind))
        return run, [example.text for example in examples]
    run = partial(map_texts, process_chunk=EmbeddingPipeline(model))
    if is_beir(data):
        return run, [text for text in read_beir(data, "").documents.values() if text.strip()]
    columns = reuse_training_columns(data, GroupColumns(), model.origin.columns)
    return run, [text for group in read_unpaired(data, columns) for text in group.texts]


if __name__ == "__main__":
    try:
        print(json.dumps(measure_engine(*json.loads(sys.argv[1]))))
    except BertJaxError as error:
        sys.exit(str(error))
