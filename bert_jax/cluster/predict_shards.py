"""Predictions for shards: each is written by the functions of `predict`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bert_jax.cluster.worker import ModelShards
from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.output import atomic_file
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import WrittenShard
from bert_jax.hub.local_directory import resolve_directory
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.row_predictor import PredictionOptions, RowPredictor, predict_rows, write_rows
from bert_jax.predictions.training_origin import read_origin
from bert_jax.text.csv_lines import cell_of


def write_lines(predictor: RowPredictor, rows: Iterator[dict], path: Path) -> int:
    with open(path, "w", encoding="utf-8") as file:
        return write_rows(predictor, rows, file)


def write_parquet(predictor: RowPredictor, rows: Iterator[dict], path: Path) -> int:
    """Write the rows of a .csv file as Parquet. The rows of a shard are in memory: all of them tell a column's type."""
    import pyarrow as pa
    from pyarrow import parquet

    cells = [{name: cell_of(value) for name, value in row.items()} for row in rows]
    try:
        table = pa.Table.from_pylist(cells)
    except pa.ArrowException as error:
        raise BertJaxError(
            f"a column holds values of several types, which Parquet cannot ({first_line(error)}); take --format jsonl"
        ) from error
    # A column without a value has no type, and one of another shard may have one.
    fields = [
        field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in table.schema
    ]
    parquet.write_table(table.cast(pa.schema(fields)), path)
    return len(cells)


WRITERS: dict[str, Callable[[RowPredictor, Iterator[dict], Path], int]] = {
    "jsonl": write_lines,
    "csv": write_lines,
    "parquet": write_parquet,
}


@dataclass(frozen=True, kw_only=True)
class PredictShards(ModelShards):
    options: PredictionOptions
    columns: ExampleColumns

    verb, noun, unit = "predict", "prediction", "rows"
    formats = tuple(WRITERS)

    @property
    def has_header(self) -> bool:
        return not read_origin(resolve_directory(self.model)).complete_columns(self.columns).numbered

    @property
    def settings(self) -> dict[str, Any]:
        return asdict(self.options) | asdict(self.columns)

    def open_model(self, model: Encoder) -> RowPredictor:
        return RowPredictor(model, self.options, self.format != "jsonl")

    def write(self, predictor: RowPredictor, shard: Shard) -> WrittenShard:
        predictor.abstained = 0
        rows = predict_rows(predictor, shard.source, self.columns)
        rows = (count_from(row, shard.first_row) for row in rows)
        path = self.folder.output_path(shard)
        with atomic_file(path, shared=True) as new:
            count = WRITERS[self.format](predictor, rows, new)
        return self.describe_written(count, [path], abstained=predictor.abstained)

    def describe_counts(self, counts: Mapping[str, int]) -> str:
        abstains = self.options.precision is not None
        return f"; the model abstains from {counts.get('abstained', 0):,}" if abstains else ""


def count_from(row: dict[str, Any], first: int) -> dict[str, Any]:
    """Return a row with its number in the file that was cut, if it has a number.

    >>> count_from({"id": "a", "row": 3, "label": "b"}, 1000)
    {'id': 'a', 'row': 1003, 'label': 'b'}
    """
    return {**row, "row": row["row"] + first} if "row" in row else row
