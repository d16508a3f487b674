"""Mine hard negatives: texts that an embedder finds near an anchor but that are not its positives."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import open_output
from bert_jax.core.progress import track
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.column_names import ANCHOR, NEGATIVE, POSITIVE
from bert_jax.data.examples.group_columns import GroupColumns, describe_columns, positive_column
from bert_jax.data.examples.groups import Group, read_groups, read_text_column
from bert_jax.hub.model_directory import ModelDirectory, model_fingerprint
from bert_jax.inference.exact_search import search_exact
from bert_jax.inference.load import load
from bert_jax.inference.reranker import check_cross_encoder, make_score_function, pair_counter
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    EmbeddingPipeline,
    embedder_encoding_options,
    find_prompt_name,
    prompt_text,
)
from bert_jax.search.cache import CachedRows, RowCache
from bert_jax.text.truncation import TruncationCounter

BLOCK = 4096  # anchors whose candidates are held and scored at once
RANGES = {"margin": (0, 1), "min_score": (-1, 1), "max_score": (-1, 1)}  # of cosines
NOISE = 1e-5  # how much the scores of texts that look identical to a model may differ


class CachedEncoder:
    """The unit vectors of texts from the embedder in a directory, cached in a folder."""

    def __init__(self, directory: str | ModelDirectory, folder: Path):
        self.model, self.folder = load(directory), folder
        self.embedder = model_fingerprint(directory)

    def encode(self, texts: Sequence[str], prompts: Sequence[str] = ()) -> CachedRows:
        """Return the vectors [N, D] of texts, with the first of these prompts that the embedder has."""
        prompt = find_prompt_name(self.model.embedder, prompts)
        before = prompt_text(self.model.embedder, prompt)
        truncated = TruncationCounter(embedder_encoding_options(self.model).max_length)
        compute = EmbeddingPipeline(self.model, prompt=prompt, normalize=True, truncated=truncated)
        vectors = RowCache(self.folder, "vectors", [self.embedder, before]).get_or_compute(texts, compute)
        if notice := truncated.notice():
            warn_caller(notice)
        return vectors


class CachedPairScorer:
    """The scores of pairs of texts, cached in a folder: logits of the cross-encoder in a directory, or MaxSim of its
    multi-vector embedder."""

    def __init__(self, directory: str | ModelDirectory, folder: Path):
        self.model = load(directory)
        check_cross_encoder(self.model, directory)
        self.truncated = pair_counter(self.model)
        self.score_chunk = make_score_function(self.model, truncated=self.truncated)
        self.cache = RowCache(folder, "scores", model_fingerprint(directory))

    def compute(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array([logit for _, logit in self.score_chunk(pairs)], np.float32)

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return the logit of each pair, [N]. Warn of truncated pairs at the end of the first call that has some."""
        before = self.truncated.truncated
        logits = self.cache.get_or_compute(pairs, self.compute)[:]
        if self.truncated.truncated and not before:
            warn_caller(self.truncated.notice(what="pairs"))
        return logits


@dataclass(frozen=True)
class MiningLimits:
    """The limits on texts near an anchor that become its negatives. Scores are cosines or a reranker's scores."""

    negatives: int = 3  # per anchor
    range_min: int = 0  # the number of nearest texts to skip: they may be correct, too
    range_max: int = 100  # the number of nearest texts to consider, including those skipped
    # A negative's score must be below the positive's by more than this: a fraction of the positive's cosine, or an
    # absolute difference of a reranker's scores.
    margin: float = 0.05
    min_score: float = -math.inf
    max_score: float = math.inf

    def __post_init__(self):
        if self.range_max < self.range_min + self.negatives:
            raise BertJaxError(
                f"--range-max {self.range_max} leaves fewer than {self.negatives} texts after the first "
                f"{self.range_min}; raise it"
            )


@dataclass
class NegativeSearch:
    """The search for the negatives of one anchor."""

    anchor: str
    positive: str
    candidates: np.ndarray  # indices of the candidate texts, nearest first
    cosines: np.ndarray
    positive_score: float = 0.0  # the positive's score
    score_limit: float = 0.0  # a negative's score must be less than this
    num_considered: int = 0  # the number of entries of `near` considered so far
    negatives: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def next_range(self, wanted: int) -> range:
        """Return the positions in `candidates` to consider next; none if no negatives are missing. The range is at
        least as long as the number of missing negatives and the number considered before (unless `candidates` ends),
        so that few rounds reach the end."""
        missing = wanted - len(self.negatives)
        start = self.num_considered
        if missing > 0:
            self.num_considered = min(len(self.candidates), start + max(missing, start))
        return range(start, self.num_considered)

    def consider(self, position: int, score: float, limits: MiningLimits) -> None:
        fits = limits.min_score <= score <= limits.max_score and score < self.score_limit
        if fits and len(self.negatives) < limits.negatives:
            self.negatives.append(int(self.candidates[position]))
            self.scores.append(score)


def mine_hard_negatives(
    groups: Sequence[Group],
    corpus: Sequence[str],
    embedder: CachedEncoder,
    limits: MiningLimits,
    reranker: CachedPairScorer | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows with an anchor, its positive, its negatives and the scores of the positive and the negatives, in the
    order of the groups; those with too few negatives are left out. Candidates are the texts of the `corpus` and all
    positives. A reranker's scores replace the cosines but do not change the order: the negatives are the texts nearest
    by cosine that satisfy the limits."""
    texts = list(dict.fromkeys(chain((group.texts[1] for group in groups), corpus)))
    documents = embedder.encode(texts, DOCUMENT_PROMPTS)
    anchors = embedder.encode([group.texts[0] for group in groups], QUERY_PROMPTS)
    own = {text for group in groups for text in group.texts[:2]}
    index_of = {text: n for n, text in enumerate(texts) if text in own}
    right = np.array([index_of[group.texts[1]] for group in groups])
    ranked = search_exact(anchors, documents, None, limits.range_max, list_positives(groups, index_of))
    searches = (
        NegativeSearch(group.texts[0], group.texts[1], near[limits.range_min :], cosines[limits.range_min :])
        for group, (near, cosines) in zip(track(groups, "anchors", "mining"), ranked, strict=True)
    )
    first = 0
    while block := list(islice(searches, BLOCK)):
        if reranker:
            scores = reranker.score([(search.anchor, search.positive) for search in block])
        else:
            rows = slice(first, first + len(block))
            scores = (anchors[rows] * documents[right[rows]]).sum(-1)
        first += len(block)
        for search, score in zip(block, scores.tolist(), strict=True):
            search.positive_score = score
            search.score_limit = score - max(limits.margin * (1 if reranker else abs(score)), NOISE)
        run_searches(block, texts, limits, reranker)
        for search in block:
            if len(search.negatives) < limits.negatives:
                continue
            negatives = {f"{NEGATIVE}_{n}": texts[i] for n, i in enumerate(search.negatives, 1)}
            scored = [search.positive_score, *search.scores]
            yield {ANCHOR: search.anchor, POSITIVE: search.positive, **negatives, "scores": scored}


def run_searches(
    searches: Sequence[NegativeSearch],
    texts: Sequence[str],
    limits: MiningLimits,
    reranker: CachedPairScorer | None,
) -> None:
    """Find the negatives of all searches in rounds: a reranker is slow, and most anchors have their negatives among
    the first few texts."""
    while asked := [(search, n) for search in searches for n in search.next_range(limits.negatives)]:
        if reranker:
            pairs = [(search.anchor, texts[search.candidates[n]]) for search, n in asked]
            scores = reranker.score(pairs).tolist()
        else:
            scores = [float(search.cosines[n]) for search, n in asked]
        for (search, n), score in zip(asked, scores, strict=True):
            search.consider(n, score, limits)


def list_positives(groups: Sequence[Group], index_of: dict[str, int]) -> list[np.ndarray]:
    """Return, for each group, the indices of the anchors and positives of all groups that share its label, or its
    anchor if it has no label. `index_of` holds the index of each that is among the texts."""
    by_label: dict[str, set[int]] = defaultdict(set)
    for group in groups:
        by_label[group.shared_label or group.texts[0]].update(
            index_of[text] for text in group.texts[:2] if text in index_of
        )
    indices_by_name = {name: np.array(sorted(indices)) for name, indices in by_label.items()}
    return [indices_by_name[group.shared_label or group.texts[0]] for group in groups]


@dataclass(frozen=True)
class MiningSettings:
    """What to mine: tables of pairs and of further texts, the models, and where they keep what they computed."""

    data: str
    model: str | ModelDirectory
    cache: Path
    limits: MiningLimits
    columns: GroupColumns = GroupColumns()
    corpus: str = ""
    rescore: str | ModelDirectory = ""
    scores: bool = False  # add the scores to each row


class MinedTable:
    """The rows of anchors, positives and negatives; the table is read and the models are loaded at the start."""

    def __init__(self, settings: MiningSettings):
        data, columns = settings.data, settings.columns
        self.settings, self.mined = settings, 0
        self.groups = read_groups(data, columns)
        check_pairs(data, self.groups)
        preferred, plain = positive_column(data, columns), GroupColumns(skip_bad=columns.skip_bad)
        self.corpus = read_text_column(settings.corpus, plain, preferred) if settings.corpus else []
        self.vectors = CachedEncoder(settings.model, settings.cache)
        self.scorer = CachedPairScorer(settings.rescore, settings.cache) if settings.rescore else None

    def describe_columns(self) -> str:
        return describe_columns(self.settings.data, self.settings.columns, "--text and --text-pair", most=2)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the mined rows, and count them."""
        limits = self.settings.limits
        groups, corpus = self.groups, self.corpus
        for row in mine_hard_negatives(groups, corpus, self.vectors, limits, self.scorer):
            self.mined += 1
            given = row.pop("scores")
            if self.settings.scores:
                row["scores"] = [round(score, 6) for score in given]
            yield row

    def describe_anchors_left_out(self) -> str:
        """Say how many anchors have too few negatives, once all rows are mined; "" if there are none."""
        if self.mined == len(self.groups):
            return ""
        anchors = pluralize(len(self.groups) - self.mined, "anchor")
        return (
            f"{anchors} with fewer than {self.settings.limits.negatives} negatives within the limits left out: "
            "a higher --range-max or a lower --margin keeps more"
        )


def write_rows(output: Path, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Write the rows as lines of JSON, and yield each; refuse to write none."""
    row = None
    with open_output(output) as file:
        for row in rows:
            file.write(to_json(row) + "\n")
            yield row
        if row is None:
            raise BertJaxError(
                f"{output} is not written, because no anchor has enough negatives within the limits; raise "
                "--range-max, or lower --margin or --negatives"
            )


def score_bounds(given: dict[str, float | None], rescored: bool) -> dict[str, float]:
    """Return the margin, and the limits of scores that the user gave."""
    bounds = {name: value for name, value in given.items() if value is not None}
    for name, value in bounds.items():
        low, high = RANGES[name]
        if not rescored and not low <= value <= high:
            raise BertJaxError(
                f"--{name.replace('_', '-')} {value:g} is out of range for cosines; give a number from {low} to {high}"
            )
    return {"margin": 0.0 if rescored else 0.05} | bounds


def check_pairs(data: str, groups: list[Group]) -> None:
    """Refuse data without positives."""
    if all(group.texts[0] == group.texts[1] for group in groups):
        raise BertJaxError(f"{data} has one text per row; give anchors and positives")
    if len(groups[0].texts) == 2 and groups[0].scores:
        raise BertJaxError(
            f"{data} has a score for each pair, so some second texts are not positives; remove the pairs with low "
            "scores, and the column of scores"
        )
