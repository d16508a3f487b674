"""`bert-jax bench input`: how fast this machine turns a prepared corpus into the batches of a pre-training run."""

import dataclasses
from collections.abc import Sequence

from bert_jax import tasks
from bert_jax.bench.timing import Figures, Machine, MeasuredTurns, Turn, timed
from bert_jax.core.errors import BertJaxError
from bert_jax.core.processor import cores
from bert_jax.data.corpus.stream import Stream
from bert_jax.pod.preflight_checks import corpus_config, rows_per_second

FAR = 1_000_000  # a step that needs all earlier ones if batches cannot be computed directly


def measure_input(spec: str, overrides: Sequence[str], as_json: bool = False) -> str:
    """Measure each length of the rows."""
    _, config = tasks.load_config(spec, overrides, "cpu")  # no device takes the batches
    data = corpus_config(config)
    if data is None or not data.corpora:
        raise BertJaxError(
            f"{spec} names no corpus to read; give a pre-training config and --config.data.corpora=DIR"
        )
    machine, figures, turns = Machine(), dict[str, Figures](), list[Turn]()
    for length in data.lengths:
        of_length = dataclasses.replace(data, lengths=(length,), length_ratios=(1.0,))
        rows, running = timed(rows_per_second, of_length, config.seed)  # the first batches make the plans
        _, far = timed(lambda made: Stream(made, config.seed, FAR).batch(FAR - 1), of_length)
        turns += [running, far]
        figures[f"rows of {length}"] = {
            "rows_per_second": rows,
            "tokens_per_second": rows * length,
            "seconds_to_batch_1,000,000": far.seconds,
        }
    title = f"batches of {data.batch_size} from {', '.join(data.corpora)}, {cores()} cores"
    return MeasuredTurns(title, figures, machine.load_during(turns)).shown(as_json)
