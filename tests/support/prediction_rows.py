"""The rows that `predict` writes, from a model that is open already."""

from collections.abc import Iterator

from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.inference import row_predictor
from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor

PLAIN = PredictionOptions()


def predict_rows(
    model,
    source: str,
    columns: ExampleColumns = AUTODETECT,
    options: PredictionOptions = PLAIN,
    in_table: bool = False,
) -> Iterator[dict]:
    return row_predictor.predict_rows(RowPredictor(model, options, in_table), source, columns)
