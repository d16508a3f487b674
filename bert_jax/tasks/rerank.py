"""Training a cross-encoder, which reads a query and a document together and scores how relevant the document is."""

import dataclasses
from collections.abc import Sequence

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.candidates import Candidates, add_random_negatives, read_candidates
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.group_columns import describe_columns
from bert_jax.data.examples.row_packing import EncodedExample
from bert_jax.data.examples.split import train_validation_split
from bert_jax.finetuning.encoded_windows import PredictionEvaluator, make_batch_config
from bert_jax.finetuning.example_splits import set_aside_calibration
from bert_jax.finetuning.model_cards import cross_encoder_card, describe_queries
from bert_jax.finetuning.reranking import RankingTask
from bert_jax.finetuning.reranking import RerankConfig as Config
from bert_jax.hub.layout import Layout
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.losses.ranking import RANKING_LOSSES, RankingLoss
from bert_jax.predictions.kind import TextWindows
from bert_jax.predictions.kinds.relevance import Relevance
from bert_jax.text.tokenizer import Encoding, Tokenizer
from bert_jax.text.truncation import TruncationCounter
from bert_jax.training.processes import print_notice, print_once
from bert_jax.training.task import FinishInputs
from bert_jax.training.warm_start import list_new_modules

DEFAULT_RANDOM_NEGATIVES = 4  # documents of other queries that each query gets, if all documents are relevant
CandidateLists = list[Candidates]
HEAD = "classify"  # the head that transformers opens
FILLER = Encoding([0], [0], [(0, 0)])  # fills up a query that has fewer documents than another


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
    pairs = [list_pairs(part) for part in (train, validation, calibration)]
    results = FinishInputs(pairs[0], pairs[1], pairs[2], report=config.report)
    task = dataclasses.replace(task, finish_inputs=results)
    reading = PairEncoder(init.tokenizer, config.data.max_length, task)
    train_pieces, validation_pieces = reading.encode_lists(train), reading.encode_lists(validation)
    if notice := reading.truncated.notice("raise --config.data.max_length to read more", "pairs"):
        print_notice(notice)
    width, goes_on = task.layout.config.hidden_size, not list_new_modules(init, task.layout)
    config = config.resolve_start(goes_on, width).resolve_defaults(len(train), task.best_metric, width)
    about = describe_queries(config, task, *map(len, (train, validation, calibration)))
    task = dataclasses.replace(task, model_card=cross_encoder_card(task, config, about, reading.truncated))
    batches = make_batch_config(
        config, config.data.batching, config.data.max_length, task.layout.config,
        group_size=task.max_documents, noun="pair", about=about,
    )  # fmt: skip
    evaluator = RankingEvaluator(task.kind, results.validation, validation_pieces)
    data = Epochs(
        train_pieces, validation_pieces, task.targets, init.tokenizer, batches, evaluator, each_token=False
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
        others = (
            0
            if any(grade < 1 for candidates in train for grade in candidates.grades)
            else DEFAULT_RANDOM_NEGATIVES
        )
        if others:
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


def list_pairs(lists: CandidateLists) -> list[Example]:
    return [pair for candidates in lists for pair in candidates.pairs()]


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
        places=tuple(candidates.places[n] for n in kept),
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


class PairEncoder:
    """Encodes queries and their documents as the model reads them, in lists of `task.documents` pieces."""

    def __init__(self, tokenizer: Tokenizer, max_length: int, task: RankingTask):
        self.tokenizer, self.task = tokenizer, task
        self.truncated = TruncationCounter(max_length)

    def encode_lists(self, lists: CandidateLists) -> list[EncodedExample]:
        """Return a piece for each document, and fillers for incomplete lists; a query with more than `task.documents`
        documents becomes several lists."""
        pairs = [(candidates.query, text) for candidates in lists for text in candidates.documents]
        encodings = self.tokenizer.encode(pairs, max_length=self.truncated.max_length)
        self.truncated.count(encodings)
        pieces: list[EncodedExample] = []
        following = iter(encodings)
        for candidates in lists:
            count = len(candidates.grades)
            for n in range(-(-count // self.task.max_documents) * self.task.max_documents):
                encoding = next(following) if n < count else FILLER
                pieces.append(EncodedExample(encoding, len(pieces), self.pair_targets(candidates, n)))
        return pieces

    def pair_targets(self, candidates: Candidates, n: int) -> dict[str, float]:
        is_document = n < len(candidates.grades)
        targets = {
            "labels": candidates.grades[n] if is_document else 0.0,
            "label_weights": float(is_document),
        }
        if self.task.loss.uses_teacher_scores:
            targets["scores"] = candidates.scores[n] if is_document and candidates.scores else 0.0
        return targets


class RankingEvaluator(PredictionEvaluator):
    """Judges lists of documents; pieces that only fill up a list are left out."""

    def __init__(self, kind: Relevance, examples: Sequence[Example], pieces: Sequence[EncodedExample]):
        self.is_pair = [bool(piece.targets["label_weights"]) for piece in pieces]
        windows = [
            TextWindows([piece.encoding]) for piece, known in zip(pieces, self.is_pair, strict=True) if known
        ]
        super().__init__(kind, examples, windows)

    def __call__(self, logits: list) -> dict[str, float]:
        return super().__call__([x for x, known in zip(logits, self.is_pair, strict=True) if known])
