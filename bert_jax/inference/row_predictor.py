"""The rows that `predict` writes: what the input says of a text, and what a model predicts for it.

Predictions come in the order of the rows, and only some batches are held in memory. Rows that arrive on a pipe are
predicted at once: one line is not delayed, and many lines form a batch.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import Queue
from threading import Thread
from typing import Any, BinaryIO, TextIO, TypeVar

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_parsing import peek
from bert_jax.inference.batching import tokens_per_batch
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.streaming import stream_results
from bert_jax.inference.text_outcomes import OutcomePipeline, TextOutcome, advice_for
from bert_jax.inference.zero_shot import CandidateLabels, zero_shot_pipeline
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.prediction_input import InputRow, PredictionInput
from bert_jax.predictions.selective import MinConfidence, Precision
from bert_jax.text import tables
from bert_jax.text.csv_lines import csv_lines
from bert_jax.text.input_files import file_extension
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

T = TypeVar("T")

COLUMN_PREFIX = "predicted_"  # of the columns that we add to a table


@dataclass(frozen=True)
class PredictionOptions:
    """How texts are read, and what is predicted."""

    long_texts: str = "truncate"
    allow_no_answer: bool | None = None
    # Abstain from predictions, or from those of some labels, so that this share of the others is correct.
    precision: Precision | None = None
    # Mark texts as out of scope if their in-distribution p-value is below this.
    out_of_scope: float | None = None
    probabilities: bool = False  # write the probability of every label
    candidates: CandidateLabels | None = None  # predict these labels, which the model was not trained for
    row_numbers: bool = False  # write the number of each row of the input, from 1

    def check_zero_shot(self) -> None:
        """Refuse what only the labels that a model was trained for have."""
        given = {
            "--min-precision": self.precision is not None,
            "--out-of-scope": self.out_of_scope is not None,
            "--long-texts windows": self.long_texts == "windows",
        }
        for name in (name for name, is_given in given.items() if is_given):
            raise BertJaxError(
                f"{name} is for labels that the model was trained for; leave it or --labels out"
            )


class RowPredictor:
    """Predicts for the texts of a file or of standard input, and counts the predictions that the model abstains from.

    With `in_table`, a row has the columns of the input, or the text if the input is not a table. With `in_terminal`,
    predictions that are parts of a text are marked in it.
    """

    def __init__(
        self,
        model: Encoder,
        options: PredictionOptions = PredictionOptions(),
        in_table: bool = False,
        in_terminal: bool = False,
    ):
        self.model, self.options, self.in_table = model, options, in_table
        if options.candidates is None:
            self.kind, self.calibration = model.kind, model.calibration
        else:
            self.kind, self.calibration = options.candidates.kind, UNCALIBRATED
            options.check_zero_shot()
        if options.allow_no_answer is not None and not hasattr(self.kind, "allow_no_answer"):
            raise BertJaxError(
                "--allow-no-answer is for models that answer questions, and this is another; leave it out"
            )
        self.kind = self.kind.with_options(allow_no_answer=options.allow_no_answer)
        self.in_terminal = in_terminal and self.kind.presentation.marks_text
        self.min_confidence: MinConfidence = None
        if options.precision is not None:
            self.min_confidence = self.kind.decoder.confidence_threshold(self.calibration, options.precision)
        if options.out_of_scope is not None:
            model.scope.check_usable(options.out_of_scope)
        self.abstained = 0

    def read_input(self, source: str, columns: ExampleColumns) -> tuple[PredictionInput, Iterator[Example]]:
        """Return the input, and its examples, of which there is at least one."""
        given = PredictionInput(source, open_live_input() if source == "-" else None)
        columns = self.model.origin.complete_columns(columns)
        first, examples = peek(given.examples(columns, self.kind.reader))
        if first is None:
            name = "standard input" if source == "-" else source
            raise BertJaxError(f"{name} is empty: there is nothing to predict")
        return given, examples

    def outcome_pipeline(self, truncated: TruncationCounter) -> Callable[[Sequence], Iterator[TextOutcome]]:
        if self.options.candidates is not None:
            return zero_shot_pipeline(self.model, self.options.candidates, truncated)
        compares = self.options.out_of_scope is not None
        return OutcomePipeline(self.model, self.kind, self.options.long_texts, truncated, compares)

    @property
    def advice(self) -> str:
        """How long texts are read whole; "" if they cannot be."""
        return advice_for(self.model, self.kind) if self.options.candidates is None else ""

    def make_prediction(self, outcome: TextOutcome) -> dict[str, Any]:
        """Return the fields of a prediction, and whether the text is out of scope if that is asked for."""
        form = self.kind.decoder.to_cells if self.in_table else self.kind.decoder.to_record
        prediction = form(outcome.raw, self.calibration, self.min_confidence)
        self.abstained += count_abstentions(prediction)
        if self.options.probabilities:
            prediction |= self.list_probabilities(outcome)
        if outcome.similarity is None or self.options.out_of_scope is None:
            return prediction
        share = float(self.model.scope.p_value(outcome.similarity))
        return prediction | {
            "in_distribution_p_value": round(share, 6),
            "out_of_scope": share < self.options.out_of_scope,
        }

    def list_probabilities(self, outcome: TextOutcome) -> dict[str, Any]:
        """Return the probability of every label: as one object, or as a column for each label."""
        likely = self.kind.decoder.probabilities(outcome.raw, self.calibration).tolist()
        by_label = {label: round(p, 6) for label, p in zip(self.kind.labels, likely, strict=True)}
        if not self.in_table:
            return {"probabilities": by_label}
        return {f"probability_{label}": p for label, p in by_label.items()}

    def make_row(self, example: Example, given: InputRow, prediction: dict[str, Any]) -> dict[str, Any]:
        """Return the row of a prediction; `given` is the row of the input, NO_ROW if that is not a table."""
        number = {"row": given.number} if self.options.row_numbers and given.number else {}
        if self.in_terminal:
            prediction = self.kind.presentation.mark_text(example.text, prediction, self.kind.labels)
        if not self.in_table:
            return id_field(example) | number | prediction
        prediction_columns = {COLUMN_PREFIX + name: value for name, value in prediction.items()}
        return add_columns(
            given.cells or self.text_fields(example), number | prediction_columns, example.where
        )

    def to_line(self, row: dict[str, Any]) -> str:
        """Return a row as a line of JSON or, on a terminal, as one that a person reads."""
        if not self.in_terminal:
            return to_json(row)
        return "  ".join(
            value if isinstance(value, str) else f"{name} {value}" for name, value in row.items()
        )

    def text_fields(self, example: Example) -> tables.Row:
        return {**id_field(example), "text": self.kind.presentation.example_text(example)}


def id_field(example: Example) -> dict[str, str]:
    return {"id": example.id} if example.id else {}


def add_columns(row: tables.Row, columns: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the row with additional columns."""
    if taken := row.keys() & columns.keys():
        raise BertJaxError(f'{where} has a column "{min(taken)}" already; rename it, or leave it out')
    return row | columns


def count_abstentions(prediction: dict[str, Any]) -> int:
    """Count what the model abstains from: the prediction, or labels or spans of it.

    >>> parts = [{"abstained": True}, {"abstained": False}]
    >>> [count_abstentions(one) for one in ({"abstained": True}, {"spans": parts}, {"labels": parts})]
    [1, 1, 1]
    """
    parts = [prediction]
    for name in ("spans", "labels"):
        if isinstance(listed := prediction.get(name), list):
            parts += listed
    return sum(part.get("abstained") is True for part in parts)


def predict_rows(
    predictor: RowPredictor, source: str, columns: ExampleColumns = AUTODETECT
) -> Iterator[dict]:
    """Yield the row of each prediction."""
    given, examples = predictor.read_input(source, columns)
    max_length = predictor.model.config.max_position_embeddings
    # On a pipe, warn of truncated texts at once, because the end may be hours away.
    truncated = (
        TruncationWarner(max_length, predictor.advice) if given.live else TruncationCounter(max_length)
    )
    compute_outcomes = predictor.outcome_pipeline(truncated)

    def predict_chunk(chunk: list[Example]) -> Iterator[dict]:
        outcomes = compute_outcomes([example.text for example in chunk])
        for example, outcome in zip(chunk, outcomes, strict=True):
            yield predictor.make_row(example, given.row_of(example), predictor.make_prediction(outcome))

    if given.live:
        for arrived in group_arrivals(examples, most=tokens_per_batch() // 2):
            yield from predict_chunk(arrived)
        return
    total = tables.count_rows(source) if file_extension(source) in tables.TABLE_EXTENSIONS else None
    yield from stream_results(examples, predict_chunk, total)
    if notice := truncated.notice(predictor.advice):
        warn_caller(notice)


def write_rows(predictor: RowPredictor, rows: Iterator[dict], file: TextIO) -> int:
    """Write each row as soon as it is there, as a line of a table, of JSON or of a terminal; return their number."""
    count = 0
    lines = csv_lines(rows) if predictor.in_table else map(predictor.to_line, rows)
    for count, line in enumerate(lines, 1):  # noqa: B007
        print(line, file=file, flush=True)
    return count


def open_live_input() -> BinaryIO | None:
    """Return standard input if it is live, such as a pipe or a terminal; None if it is a file.

    It is opened again, because the interpreter cannot exit while a thread waits for `sys.stdin` itself.
    """
    try:
        handle = sys.stdin.fileno()
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
    except (AttributeError, OSError, ValueError):  # closed, or without a descriptor
        return None
    return None if is_file else open(handle, "rb", closefd=False)


def group_arrivals(items: Iterable[T], most: int) -> Iterator[list[T]]:
    """Yield lists of the items that have arrived, 1 to `most` items each, while a thread waits for the next ones.

    >>> [item for items in group_arrivals("abc", most=2) for item in items]
    ['a', 'b', 'c']
    """
    queue: Queue[tuple[list[T], BaseException | None]] = Queue(most)

    def wait() -> None:
        try:
            for item in items:
                queue.put(([item], None))
            queue.put(([], StopIteration()))
        except BaseException as error:  # raised again in the caller's thread
            queue.put(([], error))

    Thread(target=wait, daemon=True).start()
    end = None
    while end is None:
        arrived, end = queue.get()
        while end is None and len(arrived) < most and not queue.empty():
            more, end = queue.get()
            arrived += more
        if arrived:
            yield arrived
    if not isinstance(end, StopIteration):
        raise end
