"""Evaluate on pairs of texts, such as translations: each text of a pair should retrieve the other."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.groups import Group
from bert_jax.inference.exact_search import search_exact
from bert_jax.metrics.retrieval import DEPTH
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.report.embedders.document_retrieval import Cosines, RetrievalResults
from bert_jax.report.embedders.embedder_results import note_duplicates
from bert_jax.report.embedders.evaluated_embedder import EmbedderEvalConfig
from bert_jax.report.embedders.search_results import SearchResults

FORWARD, BACKWARD = "forward", "backward"  # from the first texts to the second, and back
PARTNER = "partner"


class Bitext:
    units = "pairs"

    def __init__(self, eval_config: EmbedderEvalConfig, groups: Sequence[Group]):
        self.what = f"{len(groups):,} pairs of texts of {eval_config.data}"
        self.locations = [group.where for group in groups]
        self.first, self.second = ([group.texts[n] for group in groups] for n in range(2))
        for name, side in (("first", self.first), ("second", self.second)):
            if 2 * len(distinct := set(side)) < len(side):
                raise BertJaxError(
                    f"{eval_config.data}: the {name} of its two texts has {len(distinct):,} values in {len(side):,} "
                    "rows; if they are labels, name their column with --label"
                )
        self.notes = note_duplicates([*zip(self.first, self.second, strict=True)], self.locations, "pairs")

    def measure(self, embedder) -> RetrievalResults:
        first, notes = embedder.encode_texts(self.first, "first texts")
        second, more = embedder.encode_texts(self.second, "second texts")
        target = Translations(self.first, self.second)
        forward = target.rank_translations(self.locations, first, second, FORWARD)
        cosines = Cosines.from_vectors(first, second[target.kept], forward.relevant, PARTNER)
        back = Translations(self.second, self.first)
        backward = back.rank_translations(self.locations, second, first, BACKWARD)
        searches = [forward, backward]
        return RetrievalResults(
            embedder.name,
            average_directions(target.score_rows(forward), back.score_rows(backward)),
            [*notes, *more],
            searches,
            cosines,
            [np.where(search.first_ranks > DEPTH, 0, 1 / search.first_ranks) for search in searches],
            "reciprocal rank",
            PARTNER,
        )


class Translations:
    """The translations of texts among the distinct `others`; a text in several rows has the translation of each row."""

    def __init__(self, texts: Sequence[str], others: Sequence[str]):
        self.texts = texts
        number: dict[str, int] = {}
        self.gold = np.array([number.setdefault(other, len(number)) for other in others])
        self.others = [*number]
        self.kept = np.unique(self.gold, return_index=True)[1]  # the first row of each distinct text
        known = defaultdict(list)
        for text, n in zip(texts, self.gold.tolist(), strict=True):
            known[text].append(n)
        self.translations = [list(dict.fromkeys(known[text])) for text in texts]

    def rank_translations(
        self, locations: Sequence[str], vectors: np.ndarray, others: np.ndarray, name: str
    ) -> SearchResults:
        order, scores = zip(*search_exact(vectors, others[self.kept], None), strict=True)
        shown = [f"{location}: {text}" for location, text in zip(locations, self.texts, strict=True)]
        return SearchResults(shown, self.others, self.translations, order, scores, name)

    def score_rows(self, search: SearchResults) -> np.ndarray:
        first = np.array([order[0] for order in search.order])
        return score_matches(np.where(search.hits[:, 0], self.gold, first), self.gold)


def score_matches(chosen: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return, for each text, whether its translation is nearest, and the translation's F1, which also falls if the
    translation is nearest to other texts. Their means are accuracy and weighted F1, as in mteb.

    >>> score_matches(np.array([0, 0, 2]), np.array([0, 1, 2])).round(3).tolist()
    [[1.0, 0.667], [0.0, 0.0], [1.0, 1.0]]
    """
    right, size = chosen == gold, gold.max() + 1
    hits, given, true = (np.bincount(numbers, minlength=size) for numbers in (gold[right], chosen, gold))
    return np.stack([right, (2 * hits / (given + true))[gold]], 1)


def average_directions(forward: np.ndarray, backward: np.ndarray) -> ScoreSums:
    """Return accuracy and F1, averaged over both directions and for each direction."""

    def scores(sums):
        columns = [sums[..., n] / sums[..., -1] for n in range(4)]
        of_each = {
            f"{name}_{direction}": columns[2 * d + n]
            for n, name in enumerate(("accuracy", "f1"))
            for d, direction in enumerate((FORWARD, BACKWARD))
        }
        return {
            "accuracy": (columns[0] + columns[2]) / 2,
            "f1": (columns[1] + columns[3]) / 2,
            **of_each,
        }

    return ScoreSums(np.column_stack([forward, backward, np.ones(len(forward))]), scores)
