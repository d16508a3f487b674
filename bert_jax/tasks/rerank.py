"""Training a cross-encoder, which reads a query and a document together and scores how relevant the document is.

The loss reads the logits of all documents of a query together.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar

import jax.numpy as jnp

from bert_jax.core.config import NonNegative, OneOf, Range, Share, check_ranges
from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.data.batch_source import Fact
from bert_jax.data.examples.candidates import (
    CandidateColumns,
    Candidates,
    add_random_negatives,
    read_candidates,
)
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.group_columns import describe_columns
from bert_jax.data.examples.row_packing import INDEX, EncodedWindow, RowLayout, Target
from bert_jax.data.examples.split import train_validation_split
from bert_jax.finetuning.encoded_windows import PredictionEvaluator, gather_by_example, make_batch_config
from bert_jax.finetuning.epochs_config import Dropout, GoingOnConfig, InitEncoderConfig, check_validation
from bert_jax.finetuning.example_splits import set_aside_calibration
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.finetuning.model_cards import (
    describe_validation_source,
    library,
    truncation_lines,
    usage,
)
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.losses.loss import Loss
from bert_jax.losses.ranking import RANKING_LOSSES, RankingLoss
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.predictions.calibration import Calibration
from bert_jax.predictions.example_reader import TextWindows
from bert_jax.predictions.kinds.relevance import Relevance
from bert_jax.text.encoding import Encoding
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import TruncationCounter
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.task import FinishInputs, ModelCard
from bert_jax.training.warm_start import list_new_modules
from bert_jax.training.workdir import Workdir

DEFAULT_RANDOM_NEGATIVES = 4  # documents of other queries that each query gets, if all documents are relevant
CandidateLists = list[Candidates]
HEAD = "classify"  # the head that transformers opens
FILLER = Encoding([0], [0], [(0, 0)])  # fills up a query that has fewer documents than another


@dataclass(frozen=True)
class CandidatesConfig:
    train: str = ""  # training data: a file, a folder of files, or tfds:NAME/CONFIG:SPLIT
    validation: str = ""  # validation set, in the same form as data.train; "": a share of the training data
    validation_ratio: Share = 0.1  # share of the queries that becomes the validation set
    # share of the remaining queries on which probabilities are calibrated; 0: none
    calibration_ratio: Annotated[float, Range(0, 1, exclusive_maximum=True)] = 0.05
    columns: CandidateColumns = field(default_factory=CandidateColumns)
    # number of queries to use, drawn at random, the same for every seed; 0: all
    max_examples: NonNegative = 0
    # documents of other queries to add to each query as not relevant; -1: 4 if all documents are relevant, else none
    num_random_negatives: Annotated[int, Range(-1, 1000)] = -1
    # maximum number of documents per training query; the most relevant are kept; 0: all
    max_documents_per_query: NonNegative = 0
    batch_size: Annotated[int, Range(1, 1 << 20)] = 16  # queries per step, each with its documents
    # maximum number of tokens in a pair; longer documents are truncated
    max_length: Annotated[int, Range(1, 1 << 20)] = 256
    # how pairs are put into rows; packed: several per row; bucketed: one per row, rows as long as the longest of the
    # step; padded: one per row, all rows of one length; the choice does not change what is learnt
    batching: RowLayout = "packed"

    def __post_init__(self):
        check_ranges(self, "data.")
        check_validation(self.validation, self.validation_ratio)


@dataclass(frozen=True)
class CrossEncoderConfig(InitEncoderConfig):
    head_dropout: Dropout = -1.0  # dropout before the head; -1: that of `init`


@dataclass(frozen=True)
class RankingLossConfig:
    # loss; auto: teacher_ranking for a teacher's scores, binary for relevant or not, lambda_rank for grades
    name: Annotated[str, OneOf(("auto", *RANKING_LOSSES))] = "auto"
    scale: Annotated[float, Range(0, 1e6)] = 0.0  # factor of the logits; 0: the usual one of the loss

    def __post_init__(self):
        check_ranges(self, "loss.")
        if self.name != "auto":
            check_name(self.name, RANKING_LOSSES, "loss")


@dataclass(frozen=True)
class Config(GoingOnConfig):
    default_epochs: ClassVar[float] = 1.0
    # On pairs of Cranfield, MiniLM had an MRR@10 of .620 after 60 steps of 32 pairs, .703 after 116; chance is .457.
    min_steps: ClassVar[int] = 120
    # A cross-encoder that starts from an embedder has to learn something new: the words that query and document share.
    # After 62 steps of 32 pairs, MiniLM (384 wide) had an MRR@10 of .335 with a learning rate of 6e-5, .813 with 2e-4,
    # .844 with 4e-4; chance is .29.
    base_learning_rate: ClassVar[float] = 5e-5
    rate_power: ClassVar[int] = 2

    init: str = ""
    report: bool = True  # write WORKDIR/report at the end of the run
    model: CrossEncoderConfig = field(default_factory=CrossEncoderConfig)
    loss: RankingLossConfig = field(default_factory=RankingLossConfig)
    data: CandidatesConfig = field(default_factory=CandidatesConfig)

    @property
    def example_columns(self) -> ExampleColumns:
        return self.data.columns.pair_columns


@dataclass(frozen=True)
class RankingTask(HeadTask):
    kind: Relevance
    loss: RankingLoss = RANKING_LOSSES["binary"]
    scale: float = 1.0  # the factor of the loss
    max_documents: int = 2  # at most, per query
    whole_batch: ClassVar[bool] = True

    @property
    def targets(self) -> dict[str, Target]:
        teacher_targets = {"scores": Target("float32")} if self.loss.uses_teacher_scores else {}
        return self.kind.targets.arrays | {INDEX: Target("int32")} | teacher_targets

    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        yield from super().facts(run, directory)
        yield "loss", self.loss.name

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        return {self.head: super().outputs(params, batch, constants, key)[self.head]}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logits = gather_by_example(outputs[self.head][..., 0].astype(jnp.float32), batch, self.max_documents)
        lists = {
            name: gather_by_example(batch[name], batch, self.max_documents)
            for name in ("labels", "label_weights", "scores")
            if name in batch
        }
        return {f"{self.loss.name}_loss": self.loss.compute(logits, lists, self.scale)}


def open(config: Config, directories: ModelDirectories) -> tuple[RankingTask, Epochs, Config]:
    if not config.data.train:
        raise BertJaxError(
            "config key data.train is missing; give a file of queries and documents, --config.data.train=pairs.jsonl"
        )
    init = directories[config.init]
    train, validation, calibration = read_query_splits(config)
    for spec in filter(None, [config.data.train, config.data.validation]):
        print_once(describe_columns(spec, config.data.columns, "--config.data.columns.texts or .score"))
    task = make_ranking_task(config, init.layout, train)
    check_differences(task.loss, train)
    splits = (train, validation, calibration)
    pairs = [[pair for candidates in part for pair in candidates.pairs()] for part in splits]
    results = FinishInputs(pairs[0], pairs[1], pairs[2])
    truncated = TruncationCounter(config.data.max_length)
    encode = partial(encode_lists, task, init.tokenizer, truncated)
    train_windows, validation_windows = encode(train), encode(validation)
    if notice := truncated.notice("raise --config.data.max_length to read more", "pairs"):
        print_notice(notice)
    width, goes_on = task.layout.config.hidden_size, not list_new_modules(init, task.layout)
    config = config.resolve_start(goes_on, width).resolve_defaults(len(train), task.best_metric, width)
    about = describe_queries(config, task, *map(len, splits))
    card = cross_encoder_card(task, config, about, truncated)
    task = dataclasses.replace(task, finish_inputs=results, model_card=card)
    batches = make_batch_config(
        config, config.data.batching, config.data.max_length, task.layout.config,
        group_size=task.max_documents, noun="pair", about=about,
    )  # fmt: skip
    evaluator = RankingEvaluator(task.kind, results.validation, validation_windows)
    data = Epochs(
        train_windows, validation_windows, task.targets, init.tokenizer, batches, evaluator, each_token=False
    )
    return task, data, config


def read_query_splits(config: Config) -> tuple[CandidateLists, CandidateLists, CandidateLists]:
    """Return the training, validation and calibration queries."""
    data = config.data
    train = read_candidates(data.train, data.columns, data.max_examples)
    validation = read_candidates(data.validation, data.columns) if data.validation else []
    check_grades(data.train, train)
    others = data.num_random_negatives
    if others < 0:
        others = 0
        if all(grade >= 1 for candidates in train for grade in candidates.grades):
            others = DEFAULT_RANDOM_NEGATIVES
            print_once(
                f"every document is relevant for its query, so each query gets {others} documents of other queries as "
                "not relevant (data.num_random_negatives); `bert-jax mine` finds harder ones"
            )
    if others and RANKING_LOSSES[choose_loss(config, train)].uses_teacher_scores:
        raise BertJaxError(
            f"data.num_random_negatives={others} adds documents that no teacher has scored; leave it out, or set "
            "--config.loss.name=binary, which learns from labels alone"
        )
    if others:
        train, validation = (add_random_negatives(drop_scores(part), others) for part in (train, validation))
    if not data.validation:
        train, validation = train_validation_split(train, data.validation_ratio)
    calibration: CandidateLists = []
    if data.calibration_ratio:
        train, calibration = set_aside_calibration(train, data.calibration_ratio)
    if data.max_documents_per_query:
        train = [keep_most_relevant(candidates, data.max_documents_per_query) for candidates in train]
    return train, validation, calibration


def check_grades(spec: str, lists: Sequence[Candidates]) -> None:
    grades = {grade for candidates in lists for grade in candidates.grades}
    if len(grades) == 1 and max(grades) < 1:
        raise BertJaxError(
            f"no document in {spec} is labelled relevant; check the column of labels, --config.data.columns.score"
        )


def drop_scores(lists: CandidateLists) -> CandidateLists:
    return [dataclasses.replace(candidates, scores=()) for candidates in lists]


def keep_most_relevant(candidates: Candidates, most: int) -> Candidates:
    """Keep at most `most` documents of a query, the most relevant ones; they stay in their order."""
    kept = sorted(sorted(range(len(candidates.grades)), key=lambda n: -candidates.grades[n])[:most])
    return dataclasses.replace(
        candidates,
        text=(candidates.query, *(candidates.documents[n] for n in kept)),
        grades=tuple(candidates.grades[n] for n in kept),
        scores=tuple(candidates.scores[n] for n in kept) if candidates.scores else (),
        locations=tuple(candidates.locations[n] for n in kept),
    )


def choose_loss(config: Config, lists: Sequence[Candidates]) -> str:
    if config.loss.name != "auto":
        return config.loss.name
    if all(candidates.scores for candidates in lists):
        return "teacher_ranking"
    return "lambda_rank" if nonbinary_grades(lists) else "binary"


def nonbinary_grades(lists: Sequence[Candidates]) -> set[float]:
    """Return the grades other than 0 (not relevant) and 1 (relevant)."""
    return {grade for candidates in lists for grade in candidates.grades} - {0.0, 1.0}


def make_ranking_task(config: Config, source: Layout, lists: Sequence[Candidates]) -> RankingTask:
    name, grades = choose_loss(config, lists), nonbinary_grades(lists)
    loss = RANKING_LOSSES[name]
    untaught = [candidates.where for candidates in lists if not candidates.scores]
    if loss.uses_teacher_scores and untaught:
        raise BertJaxError(
            f"loss.name={name} learns from a teacher's scores, but {untaught[0]} has none; give each row a positive, "
            "negatives and a list of scores, as `bert-jax mine --rescore DIR --scores` writes them"
        )
    if name == "binary" and grades and max(grades) > 1:
        raise BertJaxError(
            f"loss.name=binary learns from labels from 0 to 1, but the data have {max(grades):g}; set "
            "--config.loss.name=lambda_rank"
        )
    kind = Relevance.from_examples([])
    layout = source.computed_with(**config.model.compute_settings).with_head(HEAD, kind.labels)
    encoder = config.model.update_encoder(layout.config, config.data.max_length, config.init)
    layout = dataclasses.replace(layout, config=encoder, hf_config=layout.hf_config | kind.hf_config_keys)
    documents = max(len(candidates.grades) for candidates in lists)
    return RankingTask(
        layout,
        kind,
        loss=loss,
        scale=config.loss.scale or loss.scale,
        max_documents=documents,
    )


def check_differences(loss: RankingLoss, lists: Sequence[Candidates]) -> None:
    """Refuse queries from which the loss learns nothing, because it finds no two documents to compare."""
    if loss.ordered and all(len(set(candidates.grades)) == 1 for candidates in lists):
        raise BertJaxError(
            f"loss.name={loss.name} compares the documents of a query, but no query has documents with different "
            "labels; give such documents, or let --config.data.num_random_negatives add some"
        )


def encode_lists(
    task: RankingTask, tokenizer: Tokenizer, truncated: TruncationCounter, lists: CandidateLists
) -> list[EncodedWindow]:
    """Encode queries and their documents as the model reads them, in lists of `task.max_documents` windows.

    Return a window for each document, and fillers for incomplete lists; a query with more documents becomes several
    lists.
    """
    pairs = [(candidates.query, text) for candidates in lists for text in candidates.documents]
    encodings = tokenizer.encode(pairs, max_length=truncated.max_length)
    truncated.count(encodings)
    encoded_windows: list[EncodedWindow] = []
    following = iter(encodings)
    for candidates in lists:
        count = len(candidates.grades)
        for n in range(-(-count // task.max_documents) * task.max_documents):
            targets = {
                "labels": candidates.grades[n] if n < count else 0.0,
                "label_weights": float(n < count),
            }
            if task.loss.uses_teacher_scores:
                targets["scores"] = candidates.scores[n] if n < count and candidates.scores else 0.0
            encoding = next(following) if n < count else FILLER
            encoded_windows.append(EncodedWindow(encoding, len(encoded_windows), targets))
    return encoded_windows


class RankingEvaluator(PredictionEvaluator):
    """Judges lists of documents; windows that only fill up a list are left out."""

    def __init__(
        self, kind: Relevance, examples: Sequence[Example], encoded_windows: Sequence[EncodedWindow]
    ):
        self.is_pair = [bool(window.targets["label_weights"]) for window in encoded_windows]
        windows = [
            TextWindows([window.encoding])
            for window, known in zip(encoded_windows, self.is_pair, strict=True)
            if known
        ]
        super().__init__(kind, examples, windows)

    def __call__(self, logits: list) -> ScoreSums | None:
        return super().__call__([x for x, known in zip(logits, self.is_pair, strict=True) if known])


def cross_encoder_card(
    task: RankingTask, config: Config, data: str, truncated: TruncationCounter
) -> ModelCard:
    """Return the card of a cross-encoder; `data` describes what it is trained on."""
    most = task.layout.config.max_position_embeddings
    opens_elsewhere = task.layout.family.encoder_in_transformers
    return ModelCard(
        library=library(task.layout),
        pipeline="text-ranking",
        tags=("cross-encoder", "reranker"),
        about=[
            "A cross-encoder: it reads a query and a document together, and scores how relevant the document is.",
            f"It reads at most {most:,} tokens of both together, and was trained on at most "
            f"{config.data.max_length:,}; longer documents are truncated.",
        ],
        usage=usage(
            task.layout,
            'Reranker.load("DIR").rank("a query", ["a document", "another"])',
            'CrossEncoder\nCrossEncoder("DIR").rank("a query", ["a document", "another"])',
        ),
        data=[f"{data}.", *truncation_lines(truncated, "pairs")],
        recipe={
            "loss": task.loss.name,
            "factor of logits": f"{task.scale:g}" if task.scale != 1 else "",
            "queries per step": f"{config.batch_size:,}",
        },
        describe_calibration=partial(describe_relevance_scores, here_alone=not opens_elsewhere),
    )


def describe_relevance_scores(calibration: Calibration, here_alone: bool = False) -> str:
    """Say what the scores of a cross-encoder mean, if not `here_alone` also those of sentence-transformers."""
    sigmoid = "Scores are the sigmoid of the logit" + ", here and in `sentence_transformers`" * (
        not here_alone
    )
    if not calibration.is_fitted:
        return f"{sigmoid}. They were not calibrated: trust their order, not their values."
    pairs = f"{calibration.examples:,} pairs that it was not trained on"
    if calibration.keeps_probabilities:
        return f"{sigmoid}: as probabilities, checked on {pairs}, they need no other calibration."
    slope, offset = 1 / calibration.temperatures[0], calibration.offset
    sign = "-" if offset < 0 else "+"
    theirs = " `sentence_transformers` returns sigmoid(logit): other values in the same order."
    return (
        f"Scores of `rank` are probabilities, calibrated on {pairs}: sigmoid({slope:.4g} * logit {sign} "
        f"{abs(offset):.4g}).{theirs * (not here_alone)}"
    )


def describe_queries(config: Config, task: RankingTask, train: int, validation: int, calibration: int) -> str:
    """Describe the data of a cross-encoder: the numbers of queries, and the file that they are from."""
    data = config.data
    source = describe_validation_source(data.validation, data.validation_ratio, "queries")
    queries = f"{train:,} queries with up to {task.max_documents} documents each, from `{data.train}`"
    return f"{queries}; {validation:,} for validation, from {source}, and {calibration:,} for calibration"
