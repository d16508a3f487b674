"""`predict --rank-for-labelling`: rank the unlabelled texts of a file, the most useful to label first.

All texts are read before the first is written, and are held in memory with a vector each.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import Columns
from bert_jax.inference.batching import tokens_in_batch
from bert_jax.inference.in_distribution import vectors_of
from bert_jax.inference.live_input import live_input
from bert_jax.inference.model import Model
from bert_jax.inference.predict_file import Options, beside, empty, reader_of, tell_of_truncated, with_text
from bert_jax.predictions.labelling import by_usefulness
from bert_jax.predictions.unlabelled import Input
from bert_jax.text.truncation import Truncated

MOST = 100_000  # texts, which with their vectors take some hundred MB
RANK = "rank"


def ranked(model: Model, source: str, columns: Columns, options: Options, in_table: bool) -> Iterator[dict]:
    """Yield predictions as `predictions` does, but in order of usefulness, and each with its rank and text or row."""
    kind = model.kind.with_options(may_be_missing=options.may_be_missing)
    read = reader_of(model, kind, options, in_table)

    def judged(raw, *similarity) -> tuple[dict, float]:
        return read(raw, *similarity), kind.doubt(raw, model.calibration)

    given = Input(source, live_input() if source == "-" else None)
    examples = list(islice(given.examples(model.origin.remembered(columns), kind), MOST + 1))
    if not examples:
        raise empty(source)
    if len(examples) > MOST:
        raise BertJaxError(
            f"{source} has more than {MOST:,} texts, the most that can be ranked; draw a random sample of them"
        )
    rows = [given.row_of(example) for example in examples]
    texts = [example.text for example in examples]
    truncated = Truncated(model.config.max_positions)
    outcomes = model.outcomes(kind, texts, judged, options.long, truncated, options.foreign is not None)
    tell_of_truncated(truncated)
    predictions, doubts = zip(*outcomes, strict=True)
    size = tokens_in_batch()
    vectors = [vectors_of(model, texts[first : first + size]) for first in range(0, len(texts), size)]
    for rank, i in enumerate(by_usefulness(np.concatenate(vectors), np.array(doubts)).tolist(), 1):
        if in_table:
            row = beside(rows[i] or with_text(kind, examples[i]), predictions[i], examples[i].where)
            if RANK in row:
                raise BertJaxError(
                    f'{examples[i].where} has a column "{RANK}" already; rename it, or leave it out'
                )
        else:
            row = with_text(kind, examples[i]) | predictions[i]
        yield row | {RANK: rank}
