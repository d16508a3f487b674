"""Tagging: a label for each word of a text, and the spans that these labels mark."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.column_names import WORDS
from bert_jax.data.examples.columns import (
    AUTODETECT,
    ExampleColumns,
    LocatedRow,
    find_usual_column,
)
from bert_jax.data.examples.example import Example, labels_of
from bert_jax.data.examples.labelled_texts import parse_labelled_texts
from bert_jax.data.examples.row_packing import Target
from bert_jax.data.examples.tagged_words import iterate_tagged_words, parse_tagged_words, read_tags
from bert_jax.hub.layout import Layout
from bert_jax.losses.loss import Loss, cross_entropy, weighted_loss
from bert_jax.metrics.classification import precision_recall_f1
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.metrics.tagged_spans import (
    OUTSIDE,
    continues_span,
    count_spans,
    extract_spans,
    score_spans,
    split_tag,
)
from bert_jax.predictions.abstention import MinConfidence, abstention_fields
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.calibration_fitting import fit_temperature
from bert_jax.predictions.cross_fitting import (
    CalibratedPredictions,
    ExampleIndices,
    cross_fitted,
    document_names,
)
from bert_jax.predictions.kind import Kind, Outcomes, TextWindows, round_floats
from bert_jax.predictions.label_errors import LabelError
from bert_jax.predictions.label_levels import PredictedLabels
from bert_jax.predictions.marked_spans import list_spans, mark_spans
from bert_jax.predictions.report_data import ReportData
from bert_jax.text import tables
from bert_jax.text.tables import normalize_column
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import EncodingOptions
from bert_jax.text.word_windows import choose_central_windows, encode_words

# Marks that are a part of the word between two letters or digits, and between two digits.
MARKS_OF_WORDS, MARKS_OF_NUMBERS = tuple(".-'’_@&+"), tuple(",:/")


@dataclass(frozen=True)
class Span:
    label: str
    text: str
    start: int  # in characters of the text
    end: int
    score: float  # the mean probability of the labels of its words


@dataclass(frozen=True)
class TokenLogits:
    """The tokens of a text that is not divided into words: their character spans, in order, and their logits."""

    text: str
    offsets: list[tuple[int, int]]
    logits: np.ndarray


@dataclass(frozen=True)
class Tags(Kind):
    """Tags of words. `raw` is logits [words, labels] if a text is a tuple of words, and Pieces if it is a string."""

    name = "tags"
    heads, title = ("tag",), "tag"
    best_metric = "f1"
    link = "softmax"
    units, abstention_units = "words", "spans"
    one_label = marks_text = True
    hf_config_keys: ClassVar[dict[str, Any]] = {}
    targets: ClassVar = {
        "labels": Target("int32", each_token=True),
        "label_weights": Target("float32", each_token=True),
    }

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        return True

    @classmethod
    def read_examples(cls, spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0) -> list[Example]:
        return read_tags(spec, columns, most)

    @classmethod
    def read_unlabelled_file(
        cls, source: str, columns: ExampleColumns, ending: str
    ) -> Iterator[Example] | None:
        # Files that are not tables are in CoNLL format.
        return (
            None
            if ending in (*tables.TABLE_EXTENSIONS, "")
            else iterate_tagged_words(source, columns, need_label=False)
        )

    @classmethod
    def read_unlabelled_rows(
        cls, rows: Iterable[LocatedRow], columns: ExampleColumns, first: Mapping
    ) -> Iterator[Example]:
        words = columns.resolve("the first row", first).text or find_usual_column(
            "the first row", first, WORDS
        )
        if normalize_column(words) in WORDS or isinstance(first.get(words), list):
            return parse_tagged_words(rows, columns, need_label=False)
        return parse_labelled_texts(rows, columns, need_label=False, pairs=False)

    def truth(self, example: Example) -> list[str]:
        return [self.names.get(tag, tag) for tag in labels_of(example)]

    def encode_windows(
        self, tokenizer: Tokenizer, texts: Sequence, reading: EncodingOptions
    ) -> list[TextWindows]:
        overlap = reading.max_length // 4 if reading.overlap < 0 else reading.overlap
        if all(isinstance(text, str) for text in texts):
            whole = tokenizer.windows(texts, max_length=reading.max_length, overlap=overlap)
            return [TextWindows(encodings) for encodings in whole]
        parts = encode_words(tokenizer, texts, max_length=reading.max_length, overlap=overlap)
        return [TextWindows([w.encoding for w in windows], [w.words for w in windows]) for windows in parts]

    def combine_windows(self, text, windows: TextWindows, logits: Sequence) -> np.ndarray | TokenLogits:
        if isinstance(text, str):
            offsets = ([(window.offsets[i], i) for i in window.spans[0]] for window in windows.encodings)
            central = choose_central_windows(windows.encodings, offsets, count_itself=True)
            scores = np.array([logits[n][position] for _, n, position in central])
            return TokenLogits(
                text, [offset for offset, _, _ in central], scores.reshape(-1, len(self.labels))
            )
        # A word without tokens is outside of every span.
        tags = np.zeros((len(text), len(self.labels)), np.float32)
        tags[:, self.labels.index(OUTSIDE) if OUTSIDE in self.labels else 0] = 1
        for words, scores in zip(windows.extra, logits, strict=True):
            for position, word in words:
                tags[word] = scores[position]
        return tags

    def target_values(self, example: Example, windows: TextWindows) -> list[dict[str, Any]]:
        """Return the targets of each window: a word has its label and weight at its first token."""
        numbers, values = self.label_indices(self.truth(example)), []
        for encoding, words in zip(windows.encodings, windows.extra, strict=True):
            labels, label_weights = np.zeros((2, len(encoding.input_ids)))
            for position, word in words:
                labels[position], label_weights[position] = numbers[word], 1
            values.append({"labels": labels, "label_weights": label_weights})
        return values

    def describe_targets(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        positions = np.flatnonzero(values["label_weights"]).tolist()
        names = {position: self.labels[int(values["labels"][position])] for position in positions}
        return "", {position: name for position, name in names.items() if name != OUTSIDE}

    def loss(self, logits, batch: dict, label_weights, smoothing: float = 0.0) -> Loss:
        return cross_entropy(logits, batch["labels"], label_weights, smoothing)

    def batch_metrics(self, logits, batch: dict) -> dict[str, Loss]:
        right = logits.argmax(-1) == batch["labels"]
        return {"accuracy": weighted_loss(right.astype(jnp.float32), batch["label_weights"])}

    def predict(self, raw: np.ndarray, calibration: Calibration) -> list[str]:
        return [self.labels[i] for i in raw.argmax(-1)]

    def score_sums(self, predicted: Sequence, truth: Sequence) -> ScoreSums:
        return score_spans(predicted, truth)

    def score_breakdown(self, predicted: Sequence, truth: Sequence) -> dict[str, dict[str, float]]:
        counts = count_spans(predicted, truth)
        return {name: precision_recall_f1(*three) | {"spans": three[2]} for name, three in counts.items()}

    def label_indices(self, tags: Sequence[str]) -> np.ndarray:
        number = {label: i for i, label in enumerate(self.labels)}
        return np.array([number[tag] for tag in tags])

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        numbers = list(map(self.label_indices, outcomes.truth))

        def words(rows: ExampleIndices) -> tuple[np.ndarray, np.ndarray]:
            logits, truth = ([side[row] for row in rows] for side in (outcomes.raw_outputs, numbers))
            return np.concatenate(logits), np.concatenate(truth)

        def unscaled(rows: ExampleIndices) -> Calibration:
            return Calibration(self.name, self.labels, (1.0,))

        def scaled(rows: ExampleIndices) -> Calibration:
            return replace(unscaled(rows), temperatures=(fit_temperature(*words(rows)),))

        def judge(calibration: Calibration, rows: ExampleIndices) -> CalibratedPredictions:
            logits, truth = words(rows)
            before, after = (c.probabilities(logits).max(-1) for c in (UNCALIBRATED, calibration))
            likely = [calibration.probabilities(outcomes.raw_outputs[row]) for row in rows]
            spans = self.judged_spans(likely, [outcomes.truth[row] for row in rows], rows)
            right = logits.argmax(-1) == truth
            return CalibratedPredictions(
                before, after, right, spans.confidence, spans.correct, spans.example, spans
            )

        true = Counter(span[0] for tags in outcomes.truth for span in extract_spans(tags))
        by_type = {name: true[name] for name in self.span_types}
        return cross_fitted((unscaled, scaled), judge, document_names(outcomes.examples), by_type)

    @property
    def span_types(self) -> list[str]:
        return list(dict.fromkeys(split_tag(label)[1] for label in self.labels if label != OUTSIDE))

    def judged_spans(
        self, likely: Sequence[np.ndarray], truth: Sequence, rows: ExampleIndices
    ) -> PredictedLabels:
        """Return the predicted spans of the examples with the indices `rows`."""
        names, judged = [], []
        for words, tags, row in zip(likely, truth, rows, strict=True):
            right, confidence = set(extract_spans(tags)), words.max(-1)
            for span in extract_spans(self.predict(words, UNCALIBRATED)):
                names.append(span[0])
                judged.append((float(confidence[span[1] : span[2]].mean()), span in right, row))
        scores, exact, owners = np.array(judged).reshape(-1, 3).T
        return PredictedLabels(np.array(names, str), scores, exact > 0, owners.astype(int))

    def report_data(self, outcomes: Outcomes) -> ReportData:
        likely = [outcomes.calibration.probabilities(raw) for raw in outcomes.raw_outputs]
        logits = np.concatenate(outcomes.raw_outputs)
        numbers = np.concatenate([self.label_indices(tags) for tags in outcomes.truth])
        spans = self.judged_spans(likely, outcomes.truth, np.arange(len(likely)))
        counts = count_spans(outcomes.predictions, outcomes.truth)
        tags = list(zip(outcomes.truth, outcomes.predictions, strict=True))
        # A text is as doubtful as its most doubtful word.
        least = [words.max(-1).min() for words in likely]
        return ReportData(
            UNCALIBRATED.probabilities(logits).max(-1), np.concatenate(likely).max(-1), logits.argmax(-1) == numbers,
            spans.confidence, spans.correct,
            labels=spans,
            counts=counts,
            pairs=[pair for sides in tags for pair in zip(*sides, strict=True)],
            examples=self.report_examples(outcomes, least, [t == p for t, p in tags]),
        )  # fmt: skip

    def label_errors(self, outcomes: Outcomes) -> list[LabelError]:
        errors = []
        for example, raw, true, predicted in zip(
            outcomes.examples, outcomes.raw_outputs, outcomes.truth, outcomes.predictions, strict=True
        ):
            wrong = [i for i in range(len(true)) if true[i] != predicted[i]]
            if wrong:
                likely = outcomes.calibration.probabilities(raw)[
                    np.arange(len(true)), self.label_indices(true)
                ]
                i = min(wrong, key=lambda i: likely[i])
                label, p = f"{true[i]} of “{example.text[i]}”", float(likely[i])
                errors.append(LabelError(example, label, predicted[i], 1 - p, p))
        return errors

    def example_text(self, example: Example) -> str:
        return " ".join(example.text)

    def prediction_text(self, prediction: Sequence[str], example: Example) -> str:
        return list_spans(example.text, prediction)

    def mark_text(self, text, prediction: dict[str, Any]) -> dict[str, Any]:
        others = {name: value for name, value in prediction.items() if name not in ("spans", "tags")}
        return {"text": mark_spans(text, prediction, self.span_types)} | others

    def result_and_confidence(self, raw: TokenLogits, calibration: Calibration) -> tuple[list[Span], float]:
        spans = join_spans(raw.text, join_tokens(raw, calibration.probabilities(raw.logits)), self.labels)
        return spans, min((span.score for span in spans), default=1.0)

    def confidence(self, raw: np.ndarray | TokenLogits, calibration: Calibration) -> float:
        """Return the probability of the most doubtful word."""
        return float(self.word_confidences(raw, calibration).min(initial=1))

    def uncertainty(self, raw: np.ndarray | TokenLogits, calibration: Calibration) -> float:
        """Return the mean doubt of the words."""
        confidence = self.word_confidences(raw, calibration)
        return float(1 - confidence.mean()) if len(confidence) else 0.0

    def word_confidences(self, raw: np.ndarray | TokenLogits, calibration: Calibration) -> np.ndarray:
        logits = raw.logits if isinstance(raw, TokenLogits) else raw
        return calibration.probabilities(logits).max(-1)

    def to_record(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        if isinstance(raw, TokenLogits):
            spans, _ = self.result_and_confidence(raw, calibration)
            return {
                "spans": [
                    round_floats(asdict(span)) | abstention_fields(span.score, min_confidence, span.label)
                    for span in spans
                ]
            }
        if min_confidence is not None:
            raise BertJaxError(
                "--min-precision works only on plain text, in which the model finds spans, and these are lists of "
                "words, which get a tag for each word; give plain texts, or leave --min-precision out"
            )
        return {"tags": self.predict(raw, calibration)}


def join_tokens(pieces: TokenLogits, likely: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """Join tokens to words (start, end, probabilities of the first token).

    >>> pieces = TokenLogits("unlit 中文", [(0, 2), (2, 5), (6, 7), (7, 8)], np.zeros((4, 1)))
    >>> [word[:2] for word in join_tokens(pieces, pieces.logits)]
    [(0, 5), (6, 7), (7, 8)]
    >>> pieces = TokenLogits("v 2.1.", [(0, 1), (2, 3), (3, 4), (4, 5), (5, 6)], np.zeros((5, 1)))
    >>> [word[:2] for word in join_tokens(pieces, pieces.logits)]
    [(0, 1), (2, 5), (5, 6)]
    """
    words: list[tuple[int, int, np.ndarray]] = []
    for (start, end), scores in zip(pieces.offsets, likely, strict=True):
        if start == end:
            continue
        if words and start <= words[-1][1] and is_inside_word(pieces.text, start):
            words[-1] = (words[-1][0], max(end, words[-1][1]), words[-1][2])
        else:
            words.append((start, end, scores))
    return words


def is_inside_word(text: str, index: int) -> bool:
    before, after = text[index - 1], text[index]
    if before.isalnum() and after.isalnum():
        return not (is_ideograph(before) or is_ideograph(after))
    return joins_neighbours(text, index) or joins_neighbours(text, index - 1)


def joins_neighbours(text: str, index: int) -> bool:
    """Return whether the mark at `index` joins its neighbours to one word, as in labelled lists of words.

    >>> [joins_neighbours(text, 1) for text in ("2.1", "x-y", "x,y", "1,0", "x. ", "x.")]
    [True, True, False, True, False, False]
    """
    before, mark, after = (text[n : n + 1] for n in (index - 1, index, index + 1))
    if mark in MARKS_OF_NUMBERS:
        return before.isdigit() and after.isdigit()
    return mark in MARKS_OF_WORDS and before.isalnum() and after.isalnum()


def is_ideograph(character: str) -> bool:
    # BERT's tokenizer makes each Han character a word.
    ranges = (("㐀", "鿿"), ("豈", "﫿"), ("𠀀", "\U0002fa1f"))
    return any(first <= character <= last for first, last in ranges)


def join_spans(text: str, words: Sequence[tuple[int, int, np.ndarray]], labels: Sequence[str]) -> list[Span]:
    """Join words (start, end, probabilities) to the spans that their labels mark."""
    spans: list[tuple[str, int, int, list[float]]] = []
    if not words:
        return []
    likely = np.array([scores for *_, scores in words])  # all at once: a book has a million words
    best, highest = likely.argmax(-1).tolist(), likely.max(-1).tolist()
    before = OUTSIDE
    for (start, end, _), label, score in zip(words, best, highest, strict=True):
        name = labels[label]
        if continues_span(before, name):
            kind, first, _, scores = spans.pop()
            spans.append((kind, first, end, [*scores, score]))
        elif name != OUTSIDE:
            spans.append((split_tag(name)[1], start, end, [score]))
        before = name
    return [Span(kind, text[a:b], a, b, sum(s) / len(s)) for kind, a, b, s in spans]


KIND = Tags
