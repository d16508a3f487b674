"""Tagging: a label for each word of a text, and the spans that these labels mark."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.column_names import WORDS
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, LocatedRow, find_usual_column
from bert_jax.data.examples.example import Example, label_names, labels_of
from bert_jax.data.examples.labelled_texts import parse_labelled_texts
from bert_jax.data.examples.row_packing import Target
from bert_jax.data.examples.tagged_words import iterate_tagged_words, parse_tagged_words, read_tags
from bert_jax.hub.layout import STRICT_TAGS, Layout
from bert_jax.metrics.classification import precision_recall_f1
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.metrics.tagged_spans import (
    OUTSIDE,
    count_spans,
    extract_spans,
    find_unstarted_spans,
    score_spans,
    split_tag,
)
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.calibration_fitting import (
    CalibratedPredictions,
    ExampleIndices,
    cross_fit,
    document_names,
    fit_temperature,
)
from bert_jax.predictions.decoder import Decoder, round_floats
from bert_jax.predictions.example_reader import ExampleReader, TextWindows
from bert_jax.predictions.kind import Kind, Outcomes
from bert_jax.predictions.label_matching import find_label, label_indices, quote_labels, unmatched_labels
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import LabelError, ReportData
from bert_jax.predictions.selective import MinConfidence, PredictedLabels, abstention_fields
from bert_jax.predictions.strict_tags import begin_spans, complete_tags, decode_strictly
from bert_jax.predictions.targets import Targets
from bert_jax.predictions.text_spans import Span, TokenLogits, join_spans, join_tokens, list_spans, mark_spans
from bert_jax.text import tables
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tables import normalize_column
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.word_windows import choose_central_windows, encode_words


class TaggedWordReader(ExampleReader):
    def read(self, spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0) -> list[Example]:
        return read_tags(spec, columns, most)

    def read_unlabelled(self, source: str, columns: ExampleColumns, ending: str) -> Iterator[Example] | None:
        # Files that are not tables are in CoNLL format.
        return (
            None
            if ending in (*tables.TABLE_EXTENSIONS, "")
            else iterate_tagged_words(source, columns, need_label=False)
        )

    def read_unlabelled_rows(
        self, rows: Iterable[LocatedRow], columns: ExampleColumns, first: Mapping
    ) -> Iterator[Example]:
        words = columns.resolve("the first row", first).text or find_usual_column(
            "the first row", first, WORDS
        )
        if normalize_column(words) in WORDS or isinstance(first.get(words), list):
            return parse_tagged_words(rows, columns, need_label=False)
        return parse_labelled_texts(rows, columns, need_label=False, pairs=False)

    def encode(
        self, tokenizer: Tokenizer, texts: Sequence, encoding_options: EncodingOptions
    ) -> list[TextWindows]:
        overlap = (
            encoding_options.max_length // 4 if encoding_options.overlap < 0 else encoding_options.overlap
        )
        if all(isinstance(text, str) for text in texts):
            whole = tokenizer.windows(texts, max_length=encoding_options.max_length, overlap=overlap)
            return [TextWindows(encodings) for encodings in whole]
        parts = encode_words(tokenizer, texts, max_length=encoding_options.max_length, overlap=overlap)
        return [TextWindows([w.encoding for w in windows], [w.words for w in windows]) for windows in parts]


class TagTargets(Targets):
    one_label = True
    arrays: ClassVar = {
        "labels": Target("int32", each_token=True),
        "label_weights": Target("float32", each_token=True),
    }

    def truth(self, example: Example) -> list[str]:
        return [self.names.get(tag, tag) for tag in labels_of(example)]

    def values(self, example: Example, windows: TextWindows) -> list[dict[str, Any]]:
        """Return the targets of each window: a word has its label and weight at its first token."""
        numbers, values = label_indices(self.truth(example), self.labels), []
        for encoding, words in zip(windows.encodings, windows.extra, strict=True):
            labels, label_weights = np.zeros((2, len(encoding.input_ids)))
            for position, word in words:
                labels[position], label_weights[position] = numbers[word], 1
            values.append({"labels": labels, "label_weights": label_weights})
        return values

    def describe(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        positions = np.flatnonzero(values["label_weights"]).tolist()
        names = {position: self.labels[int(values["labels"][position])] for position in positions}
        return "", {position: name for position, name in names.items() if name != OUTSIDE}

    def score_sums(self, predicted: Sequence, truth: Sequence) -> ScoreSums:
        return score_spans(predicted, truth)

    def score_breakdown(self, predicted: Sequence, truth: Sequence) -> dict[str, dict[str, float]]:
        counts = count_spans(predicted, truth)
        return {name: precision_recall_f1(*three) | {"spans": three[2]} for name, three in counts.items()}


@dataclass(frozen=True)
class TagDecoder(Decoder):
    """`raw` is logits [words, labels] if a text is a tuple of words, and TokenLogits if it is a string."""

    strict: bool = False  # every span begins with B- or S-

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

    def predict(self, raw: np.ndarray, calibration: Calibration) -> list[str]:
        tags = [self.labels[i] for i in self.decode(raw)]
        return begin_spans(tags) if self.strict else tags

    def decode(self, logits: np.ndarray) -> np.ndarray:
        """Return the indices of the best labels, [words]. No temperature changes them."""
        return decode_strictly(logits, self.labels) if self.strict else logits.argmax(-1)

    def confidences(self, logits: np.ndarray, calibration: Calibration) -> np.ndarray:
        """Return the probabilities of the best labels, [words]."""
        return calibration.probabilities(logits)[np.arange(len(logits)), self.decode(logits)]

    def word_confidences(self, raw: np.ndarray | TokenLogits, calibration: Calibration) -> np.ndarray:
        return self.confidences(join_tokens(raw)[1] if isinstance(raw, TokenLogits) else raw, calibration)

    def confidence(self, raw: np.ndarray | TokenLogits, calibration: Calibration) -> float:
        """Return the probability of the most doubtful word."""
        return float(self.word_confidences(raw, calibration).min(initial=1))

    def uncertainty(self, raw: np.ndarray | TokenLogits, calibration: Calibration) -> float:
        """Return the mean doubt of the words."""
        confidence = self.word_confidences(raw, calibration)
        return float(1 - confidence.mean()) if len(confidence) else 0.0

    def result_and_confidence(self, raw: TokenLogits, calibration: Calibration) -> tuple[list[Span], float]:
        offsets, logits = join_tokens(raw)
        tags, scores = self.predict(logits, calibration), self.confidences(logits, calibration)
        spans = join_spans(raw.text, offsets, tags, scores.tolist())
        return spans, min((span.score for span in spans), default=1.0)

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

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        numbers = [label_indices(tags, self.labels) for tags in outcomes.truth]

        def words(rows: ExampleIndices) -> tuple[np.ndarray, np.ndarray]:
            logits, truth = ([side[row] for row in rows] for side in (outcomes.raw_outputs, numbers))
            return np.concatenate(logits), np.concatenate(truth)

        unscaled = Calibration(self.name, self.labels, (1.0,))

        def scaled(rows: ExampleIndices) -> Calibration:
            return replace(unscaled, temperatures=(fit_temperature(*words(rows)),))

        true = Counter(span[0] for tags in outcomes.truth for span in extract_spans(tags))
        by_type = {name: true[name] for name in span_types(self.labels)}
        apply, documents = partial(tag_predictions, self, outcomes), document_names(outcomes.examples)
        return cross_fit([lambda rows: unscaled, scaled], apply, documents, by_type)


class TagPresentation(Presentation):
    units, abstention_units = "words", "spans"
    marks_text = True

    def example_text(self, example: Example) -> str:
        return " ".join(example.text)

    def prediction_text(self, prediction: Sequence[str], example: Example) -> str:
        return list_spans(example.text, prediction)

    def mark_text(self, text, prediction: dict[str, Any], labels: tuple[str, ...]) -> dict[str, Any]:
        others = {name: value for name, value in prediction.items() if name not in ("spans", "tags")}
        return {"text": mark_spans(text, prediction, span_types(labels))} | others

    def report_data(self, outcomes: Outcomes) -> ReportData:
        decoder, rows = cast(TagDecoder, outcomes.kind.decoder), np.arange(len(outcomes.raw_outputs))
        predictions = tag_predictions(decoder, outcomes, outcomes.calibration, rows)
        counts = count_spans(outcomes.predictions, outcomes.truth)
        tags = list(zip(outcomes.truth, outcomes.predictions, strict=True))
        # A text is as doubtful as its most doubtful word.
        least = [decoder.confidence(raw, outcomes.calibration) for raw in outcomes.raw_outputs]
        return ReportData(
            **vars(predictions),
            counts=counts,
            pairs=[pair for sides in tags for pair in zip(*sides, strict=True)],
            examples=self.report_examples(outcomes, least, [t == p for t, p in tags]),
        )  # fmt: skip

    def label_errors(self, outcomes: Outcomes) -> list[LabelError]:
        errors, labels = [], outcomes.kind.labels
        for example, raw, true, predicted in zip(
            outcomes.examples, outcomes.raw_outputs, outcomes.truth, outcomes.predictions, strict=True
        ):
            wrong = [i for i in range(len(true)) if true[i] != predicted[i] and true[i] in labels]
            if wrong:
                likely = outcomes.calibration.probabilities(raw)[
                    np.arange(len(true)), label_indices(true, labels)
                ]
                i = min(wrong, key=lambda i: likely[i])
                label, p = f"{true[i]} of “{example.text[i]}”", float(likely[i])
                errors.append(LabelError(example, label, predicted[i], 1 - p, p))
        return errors


@dataclass(frozen=True)
class Tags(Kind):
    """Tags of words."""

    name = "tags"
    heads, title = ("tag",), "tag"
    best_metric = "f1"
    link = "softmax"
    reader = TaggedWordReader()
    targets_class, decoder_class, presentation = TagTargets, TagDecoder, TagPresentation()

    strict: bool = False  # see `TagDecoder`

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        return True

    @classmethod
    def from_layout(cls, layout: Layout) -> Self:
        return cls(layout.labels, strict=bool(layout.hf_config.get(STRICT_TAGS)))

    @property
    def hf_config_keys(self) -> dict[str, Any]:
        return {STRICT_TAGS: self.strict}

    @classmethod
    def from_examples(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        strict = not any(find_unstarted_spans(labels_of(example)) for example in train)
        kind = super().from_examples(train, known)
        return replace(kind, labels=tuple(known) or complete_tags(kind.labels), strict=strict)

    def label_hint(self, examples: Sequence[Example], columns: ExampleColumns) -> str:
        if self.labels and all(label.isdecimal() for label in self.labels):
            return (
                "the tags are numbers, and none of them means outside of spans, so F1 counts words that are outside, "
                "too; write names such as O and B-PER"
            )
        faults = [(example, n) for example in examples for n in find_unstarted_spans(labels_of(example))]
        started = sum(tag[:2] in ("B-", "S-") for example in examples for tag in labels_of(example))
        if not 0 < len(faults) < started:
            return ""  # as in IOB2 and BIOES, or as in IOB1
        example, n = faults[0]
        return (
            f'{len(faults)} of {len(faults) + started} spans do not begin with B-, first "{labels_of(example)[n]}", '
            f"word {n + 1} of {example.where}, so predicted spans need not either; correct the tags if all should"
        )

    def match_labels(self, examples: Sequence[Example], known: Sequence[str] = ()):
        kind, notes = super().match_labels(examples, known)
        if set(kind.names) == {OUTSIDE} and len(label_names(examples)) > 1:
            raise unmatched_labels(examples, self.labels)
        return kind, notes

    def note_unknown_labels(self, examples: Sequence[Example], unknown: Sequence[str]) -> list[str]:
        types = list(dict.fromkeys(split_tag(tag)[1] for tag in unknown))
        new = [name for name in types if name not in span_types(self.labels)]
        of_new = [tag for tag in unknown if split_tag(tag)[1] in new]
        others = [tag for tag in unknown if tag not in of_new]
        notes = []
        if new:
            count = sum(span[0] in new for example in examples for span in extract_spans(labels_of(example)))
            notes.append(
                f"the model has no tag of the type {quote_labels(new)} (first in {find_label(examples, of_new)}); "
                f"spans of it count as missed: {count:,}"
            )
        if others:
            count = sum(tag in others for example in examples for tag in labels_of(example))
            notes.append(
                f"the model has no tag {quote_labels(others)} (first in {find_label(examples, others)}); words with it "
                f"count as wrong: {count:,}"
            )
        return notes


def tag_predictions(
    decoder: TagDecoder, outcomes: Outcomes, calibration: Calibration, rows: ExampleIndices
) -> CalibratedPredictions:
    """Return the predicted words and spans of the examples with the indices `rows`."""
    raws, truth = ([side[row] for row in rows] for side in (outcomes.raw_outputs, outcomes.truth))
    before = np.concatenate([decoder.confidences(raw, UNCALIBRATED) for raw in raws])
    after = [decoder.confidences(raw, calibration) for raw in raws]
    predicted = [decoder.predict(raw, calibration) for raw in raws]
    numbers = ([label_indices(tags, decoder.labels) for tags in side] for side in (predicted, truth))
    right = [p == t for p, t in zip(*numbers, strict=True)]
    names, spans = [], []
    for tags, true, confidence, row in zip(predicted, truth, after, rows, strict=True):
        true_spans = set(extract_spans(true))
        for span in extract_spans(tags):
            names.append(span[0])
            spans.append((float(confidence[span[1] : span[2]].mean()), span in true_spans, row))
    scores, exact, owners = np.array(spans).reshape(-1, 3).T
    by_type = PredictedLabels(np.array(names, str), scores, exact > 0, owners.astype(int))
    words = before, np.concatenate(after), np.concatenate(right)
    return CalibratedPredictions(*words, scores, by_type.correct, by_type.example, by_type)


def span_types(labels: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(split_tag(label)[1] for label in labels if label != OUTSIDE))


KIND = Tags
