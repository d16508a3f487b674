"""Extractive question answering: the span of a passage that answers a question, or no answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, LocatedRow
from bert_jax.data.examples.example import Example, answers_of
from bert_jax.data.examples.questions import is_squad_json, iterate_questions, parse_questions, read_questions
from bert_jax.data.examples.row_packing import Target
from bert_jax.hub.layout import ALLOW_NO_ANSWER, MAY_BE_MISSING, Layout
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.metrics.squad import answer_scores, score_answers
from bert_jax.predictions.calibration import Calibration, log_odds, sigmoid, softmax
from bert_jax.predictions.calibration_fitting import (
    CalibratedPredictions,
    ExampleIndices,
    cross_fit,
    document_names,
    fit_logistic,
)
from bert_jax.predictions.decoder import Decoder, round_floats
from bert_jax.predictions.example_reader import ExampleReader, TextWindows
from bert_jax.predictions.kind import Kind, Outcomes
from bert_jax.predictions.presentation import Presentation
from bert_jax.predictions.report_data import ReportData
from bert_jax.predictions.selective import MinConfidence, abstention_fields
from bert_jax.predictions.targets import Targets
from bert_jax.text.encoding import Encoding
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer

OVERLAP = 128  # tokens that neighbouring windows share, as in BERT's SQuAD runs
MAX_ANSWER_TOKENS = 30  # tokens of an answer, as in BERT's SQuAD runs
FEW_QUESTIONS = 2_000  # with fewer, an embedder hardly learns to find answers
FEW = 10  # with fewer unanswerable questions, the threshold for no answer is not fitted
NOTHING = 1e-300  # the lowest probability whose logarithm is taken


@dataclass(frozen=True)
class Answer:
    """An answer to a question: characters `start` to `end` of the text."""

    text: str
    start: int  # in characters
    end: int
    # The probability of its start times that of its end or, from a calibrated model, that the answer is right.
    score: float


class QuestionReader(ExampleReader):
    def read(self, spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0) -> list[Example]:
        return read_questions(spec, columns, most)

    def read_unlabelled(self, source: str, columns: ExampleColumns, ending: str) -> Iterator[Example] | None:
        nested = ending == ".json" and is_squad_json(source)
        return iterate_questions(source, columns, need_label=False) if nested else None

    def read_unlabelled_rows(
        self, rows: Iterable[LocatedRow], columns: ExampleColumns, first: Mapping
    ) -> Iterator[Example]:
        return parse_questions(rows, columns, need_label=False)

    def encode(
        self, tokenizer: Tokenizer, texts: Sequence, encoding_options: EncodingOptions
    ) -> list[TextWindows]:
        overlap = (
            min(OVERLAP, encoding_options.max_length // 4)
            if encoding_options.overlap < 0
            else encoding_options.overlap
        )
        windows = tokenizer.windows(texts, max_length=encoding_options.max_length, overlap=overlap)
        return [TextWindows(encodings) for encodings in windows]


class AnswerTargets(Targets):
    """A truth is the texts of all right answers, () for an unanswerable question."""

    named_labels = False
    arrays: ClassVar = {
        "starts": Target("int32"),
        "ends": Target("int32"),
        "label_weights": Target("float32"),
    }

    def truth(self, example: Example) -> tuple[str, ...]:
        return tuple(text for _, text in answers_of(example))

    def counted_labels(self, example: Example) -> Iterable[str]:
        return ["answer" if example.label else "none"]

    def values(self, example: Example, windows: TextWindows) -> list[dict[str, Any]]:
        return [{**span_in(example, encoding), "label_weights": 1.0} for encoding in windows.encodings]

    def describe(self, values: Mapping[str, Any]) -> tuple[str, dict[int, str]]:
        start, end = values["starts"], values["ends"]
        return ("answer", dict.fromkeys(range(start, end + 1), "answer")) if end else ("no answer", {})

    def loss(self, logits, batch: dict, label_weights, smoothing: float = 0.0):
        from bert_jax.losses.loss import span_cross_entropy

        logits, attention_mask, starts, ends = with_segment_axis(logits, batch)
        return span_cross_entropy(logits, starts, ends, label_weights, attention_mask)

    def batch_metrics(self, logits, batch: dict):
        import jax.numpy as jnp

        from bert_jax.losses.loss import weighted_loss

        logits, attention_mask, starts, ends = with_segment_axis(logits, batch)
        best = jnp.where(attention_mask[..., None] > 0, logits, -jnp.inf).argmax(-2)
        right = (best[..., 0] == starts) & (best[..., 1] == ends)
        return {"span_accuracy": weighted_loss(right.astype("float32"), batch["label_weights"])}

    def score_sums(self, predicted: Sequence[str], truth: Sequence) -> ScoreSums:
        return score_answers(predicted, truth)

    def is_right(self, predicted: str, truth: Sequence[str]) -> bool:
        return answer_scores(predicted, truth, squad_v2=False)[0] if truth else not predicted


@dataclass(frozen=True)
class AnswerDecoder(Decoder):
    """`raw` is the best answer and the log odds of no answer over it. A prediction is the text of the answer, "" for no
    answer.
    """

    allow_no_answer: bool = False
    longest: int = MAX_ANSWER_TOKENS

    def combine_windows(self, text, windows: TextWindows, logits: Sequence) -> tuple[Answer, float]:
        """Return the best answer over all windows, and the log odds of no answer over it.

        The best answer has the highest product of the probabilities of its start and its end, and at most `longest`
        tokens. The log odds are -inf if an answer is required, and inf if no window holds a part of the passage.
        """
        starts, ends = [], []
        for window, scores in zip(windows.encodings, logits, strict=True):
            # Only tokens of the passage get a probability, and [CLS] if there may be no answer.
            allowed = [*([0] if self.allow_no_answer else []), *window.spans[1]]
            both = np.full((len(window.input_ids), 2), -np.inf)
            both[allowed] = np.asarray(scores)[allowed]
            starts.append(both[:, 0])
            ends.append(both[:, 1])
        edges = np.cumsum([0, *map(len, starts)])
        if not np.isfinite(np.concatenate(starts)).any():
            return Answer("", 0, 0, 0.0), np.inf if self.allow_no_answer else -np.inf
        start_likely, end_likely = softmax(np.concatenate(starts)), softmax(np.concatenate(ends))
        best, missing = None, 1.0
        for n, window in enumerate(windows.encodings):
            p, q = start_likely[edges[n] : edges[n + 1]], end_likely[edges[n] : edges[n + 1]]
            # The minimum, as in BERT's SQuAD runs: windows without the answer rightly predict that they do not have it.
            missing = min(missing, p[0] * q[0])
            span = window.spans[1]
            if not len(span):
                continue
            inside = slice(span.start, span.stop)
            product = np.triu(np.outer(p[inside], q[inside]))
            product -= np.triu(product, self.longest)
            first, last = np.unravel_index(product.argmax(), product.shape)
            score = float(product[first, last])
            if best is None or score > best.score:
                a, b = window.offsets[span.start + first][0], window.offsets[span.start + last][1]
                best = Answer(text[1][a:b], a, b, score)
        if best is None:
            return Answer("", 0, 0, 0.0), np.inf
        gap = np.log(max(missing, NOTHING)) - np.log(max(best.score, NOTHING))
        return best, float(gap) if self.allow_no_answer else -np.inf

    def predict(self, raw: tuple[Answer, float], calibration: Calibration) -> str:
        answer, gap = raw
        return "" if gap > calibration.missing else answer.text

    def result_and_confidence(
        self, raw: tuple[Answer, float], calibration: Calibration
    ) -> tuple[Answer | None, float]:
        answer, gap = raw
        score = float(answer_probability(np.array(answer.score), calibration))
        return None if gap > calibration.missing else replace(answer, score=score), score

    def uncertainty(self, raw: tuple[Answer, float], calibration: Calibration) -> float:
        answer, score = self.result_and_confidence(raw, calibration)
        return score if answer is None else 1 - score

    def to_record(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        answer, score = self.result_and_confidence(raw, calibration)
        if answer is None:
            return {"answer": None}
        fields = round_floats(asdict(answer))
        return {"answer": fields.pop("text"), **fields, **abstention_fields(score, min_confidence)}

    def to_cells(self, raw, calibration: Calibration, min_confidence: MinConfidence) -> dict[str, Any]:
        columns = (
            "answer",
            *(field.name for field in fields(Answer)[1:]),
            *abstention_fields(0, min_confidence),
        )
        return dict.fromkeys(columns) | self.to_record(raw, calibration, min_confidence)

    def calibrate(self, outcomes: Outcomes) -> Calibration:
        scored = [
            answer_scores(answer.text, right, squad_v2=False) if right else (False, 0.0)
            for (answer, _), right in zip(outcomes.raw_outputs, outcomes.truth, strict=True)
        ]
        exact, f1 = np.array(scored, float).T
        scores, gaps = np.array([(answer.score, gap) for answer, gap in outcomes.raw_outputs]).T
        best = BestAnswers(scores, f1, exact > 0, gaps, np.array([not right for right in outcomes.truth]))
        return best.calibration(document_names(outcomes.examples))


class AnswerPresentation(Presentation):
    units = abstention_units = "answers"

    def report_data(self, outcomes: Outcomes) -> ReportData:
        texts = list(zip(outcomes.truth, outcomes.predictions, strict=True))
        calibration = outcomes.calibration
        before = np.array([answer.score for answer, _ in outcomes.raw_outputs])
        after = answer_probability(before, calibration)
        kept = np.array([gap <= calibration.missing for _, gap in outcomes.raw_outputs])
        right = np.array([outcomes.kind.targets.is_right(p, t) for t, p in texts])
        confidence, correct = after[kept], right[kept]
        names = np.where([[any(t), bool(p)] for t, p in texts], "answer", "none")
        pairs = [(str(t), str(p)) for t, p in names]
        return ReportData(
            before[kept], confidence, correct, confidence, correct,
            pairs=pairs if "none" in names[:, 0] else [],
            examples=self.report_examples(outcomes, np.where(kept, after, 1 - after), right),
        )  # fmt: skip

    def prediction_text(self, prediction: str | Sequence[str], example: Example) -> str:
        texts = [prediction] if isinstance(prediction, str) else prediction
        return " / ".join(dict.fromkeys(texts)) or "none"


@dataclass(frozen=True)
class Answers(Kind):
    """Answers to questions. A text is (question, passage)."""

    name = "answers"
    heads, title = ("answer",), "answer"
    best_metric = "f1"
    detects_out_of_scope = False  # a passage may hold the answer anywhere
    reader = QuestionReader()
    targets_class, decoder_class, presentation = AnswerTargets, AnswerDecoder, AnswerPresentation()

    allow_no_answer: bool = False
    longest: int = MAX_ANSWER_TOKENS

    @classmethod
    def matches_layout(cls, layout: Layout) -> bool:
        return True

    @classmethod
    def from_layout(cls, layout: Layout) -> Self:
        keys = layout.hf_config
        return cls(allow_no_answer=bool(keys.get(ALLOW_NO_ANSWER, keys.get(MAY_BE_MISSING))))

    @property
    def hf_config_keys(self) -> dict[str, Any]:
        return {ALLOW_NO_ANSWER: self.allow_no_answer}

    @classmethod
    def from_examples(cls, train: Sequence[Example], known: Sequence[str] = ()) -> Self:
        return cls(allow_no_answer=any(not example.label for example in train))

    def label_hint(self, examples: Sequence[Example], columns: ExampleColumns) -> str:
        if len(examples) >= FEW_QUESTIONS:
            return ""
        return (
            f"{len(examples):,} questions are few: a model that does not answer yet needs thousands; "
            "one that does, as init, keeps its head"
        )

    def match_labels(self, examples: Sequence[Example], known: Sequence[str] = ()):
        without = sum(not example.label for example in examples)
        note = (
            f"{without:,} questions have no answer: the model may give none if that is likelier (SQuAD 2.0)"
            if without
            else "every question has an answer: the model must give one (SQuAD 1.1)"
        )
        return replace(self, allow_no_answer=bool(without)), [note]


def answer_probability(scores: np.ndarray, calibration: Calibration) -> np.ndarray:
    """Return the calibrated probability that answers with these scores are right."""
    if not calibration.is_fitted:
        return scores
    return sigmoid(log_odds(scores) / calibration.temperatures[0] + calibration.offset)


def span_in(example: Example, window: Encoding) -> dict[str, int]:
    """Return the first and last token of the answer, or [CLS] for both if the window does not hold all of it."""
    if answers := answers_of(example):
        start, text = answers[0]
        end, offsets = start + len(text), window.offsets
        covered = [p for p in window.spans[1] if offsets[p][0] < end and offsets[p][1] > start]
        if covered and offsets[covered[0]][0] <= start and offsets[covered[-1]][1] >= end:
            return {"starts": covered[0], "ends": covered[-1]}
    return {"starts": 0, "ends": 0}


def with_segment_axis(logits, batch: dict):
    """Return (logits, mask of tokens, starts, ends), each with an axis of sequences if rows are packed."""
    if "segment_ids" not in batch:
        return logits, batch["attention_mask"], batch["starts"], batch["ends"]
    begins = batch["cls_positions"]
    numbers = np.arange(begins.shape[1]) + 1
    attention_mask = batch["segment_ids"][:, None, :] == numbers[None, :, None]  # [B, P, L]
    return logits[:, None], attention_mask, batch["starts"] + begins, batch["ends"] + begins


@dataclass(frozen=True)
class BestAnswers:
    """The best answer to each question, whether the model returns it or no answer."""

    scores: np.ndarray
    f1: np.ndarray  # the F1 of its words
    exact: np.ndarray  # whether it is exactly right
    gaps: np.ndarray  # the log odds of no answer over it, -inf if an answer is required
    none: np.ndarray  # whether the question is unanswerable

    def calibration(self, documents: Sequence[str]) -> Calibration:
        return cross_fit((self.unscaled, self.scaled), self.apply, documents)

    def unscaled(self, rows: ExampleIndices) -> Calibration:
        missing = best_gap(self.gaps[rows], self.f1[rows], self.none[rows])
        return Calibration(Answers.name, (), (1.0,), missing=missing)

    def scaled(self, rows: ExampleIndices) -> Calibration:
        calibration = self.unscaled(rows)
        answered = self.answered(calibration, rows)
        slope, offset = fit_logistic(log_odds(self.scores[answered]), self.exact[answered])
        return replace(calibration, temperatures=(1 / slope,), offset=offset)

    def apply(self, calibration: Calibration, rows: ExampleIndices) -> CalibratedPredictions:
        answered = self.answered(calibration, rows)
        before, right = self.scores[answered], self.exact[answered]
        after = answer_probability(before, calibration)
        return CalibratedPredictions(before, after, right, after, right, answered)

    def answered(self, calibration: Calibration, rows: ExampleIndices) -> ExampleIndices:
        return rows[self.gaps[rows] <= calibration.missing]


def best_gap(gaps: np.ndarray, f1: np.ndarray, none: np.ndarray) -> float:
    """Return the log odds of no answer above which to return none: those with the best mean F1."""
    if none.sum() < FEW or not np.isfinite(gaps).all():
        return 0.0
    order = np.argsort(gaps, kind="stable")
    # The summed F1 if the n questions with the lowest gaps get their answer, and the others none.
    total = np.append(0, np.cumsum(f1[order])) + np.append(0, np.cumsum(none[order][::-1]))[::-1]
    edges = np.concatenate([gaps[order][:1] - 1, gaps[order], gaps[order][-1:] + 1])
    best = int(total.argmax())
    return float((edges[best] + edges[best + 1]) / 2)


KIND = Answers
