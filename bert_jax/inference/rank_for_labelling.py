"""`predict --rank-for-labelling`: rank the unlabelled texts of a file, the most useful to label first.

All texts are read before the first is written, and are held in memory with a vector each.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.data.randomness import sample_indices
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.inference.row_predictor import RowPredictor, add_columns
from bert_jax.inference.streaming import map_texts
from bert_jax.inference.text_outcomes import advice_for, mean_state_vectors
from bert_jax.text.truncation import TruncationCounter

MAX_TEXTS = 100_000  # texts, which with their vectors take some hundred MB
CHOSEN = 1_000  # texts that are chosen greedily; the others follow, the most doubtful first
STOOD_FOR = 5_000  # texts to represent; a random sample if there are more
AT_ONCE = 1_000  # texts that are compared with them in one product
TRIED = 16  # texts whose gain is computed anew at once, the highest old gains first


def rank_rows(predictor: RowPredictor, source: str, columns: ExampleColumns = AUTODETECT) -> Iterator[dict]:
    """Yield rows as `predict_rows` does, but in order of usefulness, and each with its rank and text or input row."""
    model, kind = predictor.model, predictor.kind
    given, unread = predictor.read_input(source, columns)
    examples = list(islice(unread, MAX_TEXTS + 1))
    if len(examples) > MAX_TEXTS:
        raise BertJaxError(
            f"{source} has more than {MAX_TEXTS:,} texts, the most that can be ranked; draw a random sample of them"
        )
    rows = [given.row_of(example) for example in examples]
    texts = [example.text for example in examples]
    truncated = TruncationCounter(model.config.max_position_embeddings)
    compute_outcomes = predictor.outcome_pipeline(truncated)

    def predict_chunk(chunk: Sequence) -> Iterator[tuple[dict, float]]:
        for outcome in compute_outcomes(chunk):
            yield predictor.make_prediction(outcome), kind.decoder.uncertainty(outcome.raw, model.calibration)

    predictions, uncertainties = zip(*map_texts(texts, predict_chunk), strict=True)
    if notice := truncated.notice(advice_for(model, kind)):
        warn_caller(notice)
    size = tokens_per_batch()
    vectors = [mean_state_vectors(model, texts[first : first + size]) for first in range(0, len(texts), size)]
    order = rank_by_usefulness(np.concatenate(vectors), np.array(uncertainties))
    for rank, i in enumerate(order.tolist(), 1):
        row = predictor.make_row(examples[i], rows[i], predictions[i])
        if not predictor.in_table:
            row = predictor.text_fields(examples[i]) | row
        yield add_columns(row, {"rank": rank}, examples[i].where)


def rank_by_usefulness(vectors: np.ndarray, uncertainties: np.ndarray) -> np.ndarray:
    """Return the indices of texts with vectors [N, D] and doubts [N], the most useful to label first: those that
    represent most of what the model is unsure of.

    They are chosen greedily. The gain of a text is the sum of the doubts about all texts, each weighted by how much
    more similar it is to this text than to any chosen one. So neither outliers nor near-duplicates of chosen texts are
    chosen. A doubt of 0 means that the model is sure.
    """
    count, vectors = len(vectors), centred_directions(vectors)
    others = sample_indices("labelling", count, STOOD_FOR)
    columns, weights = np.ascontiguousarray(vectors[others].T), uncertainties[others].astype(np.float32)
    reached = np.zeros(len(others), np.float32)  # the similarity of each to the most similar chosen text

    def similarity(rows) -> np.ndarray:
        # Squared, so that one similar text counts more than many that are hardly similar.
        return np.square(np.maximum(vectors[rows] @ columns, 0))

    def gains(rows) -> np.ndarray:
        return np.maximum(similarity(rows) - reached, 0) @ weights

    blocks = [gains(slice(first, first + AT_ONCE)) for first in range(0, count, AT_ONCE)]
    gain, chosen = np.concatenate([np.zeros(0, np.float32), *blocks]), []
    for _ in range(min(count, CHOSEN)):
        # A gain only falls as more texts are chosen, so one that is below an updated gain needs no update.
        is_new = np.zeros(count, bool)
        while not is_new[best := int(gain.argmax())]:
            old = np.argpartition(np.where(is_new, np.inf, -gain), min(TRIED, count - 1))[:TRIED]
            gain[old] = np.where(gain[old] > -np.inf, gains(old), -np.inf)
            is_new[old] = True
        if gain[best] <= 0:
            break
        chosen.append(best)
        reached = np.maximum(reached, similarity(best))
        gain[best] = -np.inf
    rest = np.setdiff1d(np.arange(count), chosen)
    return np.concatenate([chosen, rest[np.argsort(-uncertainties[rest], kind="stable")]]).astype(int)


def centred_directions(vectors: np.ndarray) -> np.ndarray:
    """Return the directions from the mean vector, of length 1. In some models all vectors are close to their mean."""
    centred = vectors.astype(np.float32) - vectors.mean(0, dtype=np.float32)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
