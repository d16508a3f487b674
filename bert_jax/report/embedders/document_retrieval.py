"""Evaluate on queries and documents: a folder in BEIR's layout."""

from bert_jax.data.examples.beir import read_beir
from bert_jax.inference.exact_search import search_exact
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS
from bert_jax.metrics import retrieval
from bert_jax.report.embedders.bm25 import BM25
from bert_jax.report.embedders.cosines import Cosines
from bert_jax.report.embedders.embedder_eval_config import EmbedderEvalConfig
from bert_jax.report.embedders.embedder_results import note_duplicates
from bert_jax.report.embedders.evaluated_embedder import EvaluatedEmbedder
from bert_jax.report.embedders.retrieval_results import RetrievalResults
from bert_jax.report.embedders.search_results import SearchResults


class RetrievalData:
    units = "queries"

    def __init__(self, trial: EmbedderEvalConfig):
        judged = read_beir(trial.data, trial.split)
        # A query without a relevant document cannot be judged.
        self.relevant = {
            query: grades
            for query, grades in judged.relevant.items()
            if any(grade > 0 for grade in grades.values())
        }
        self.documents = judged.documents
        self.queries = {query: judged.queries[query] for query in self.relevant}
        self.what = f"{len(self.queries):,} queries and {len(self.documents):,} documents of {trial.data}"
        self.notes = self.make_notes()

    def make_notes(self) -> list[str]:
        kept = {name: text for name, text in self.documents.items() if text.strip()}
        notes = note_duplicates([*kept.values()], [*kept], "documents")
        if empty := len(self.documents) - len(kept):
            notes.append(f"{empty:,} of {len(self.documents):,} documents are empty")
        return notes

    def measure(self, embedder: EvaluatedEmbedder | BM25) -> RetrievalResults:
        ids, relevant = [*self.documents], [*self.relevant.values()]
        texts, notes, cosines = [*self.documents.values()], [], None
        place = {name: n for n, name in enumerate(ids)}
        right = [
            [place[name] for name, grade in sorted(grades.items(), key=lambda item: -item[1]) if grade > 0]
            for grades in relevant
        ]
        if isinstance(embedder, BM25):
            ranked = embedder.nearest([*self.queries.values()], texts, ids)
        else:
            documents, document_notes = embedder.encode_texts(texts, "documents", DOCUMENT_PROMPTS)
            queries, query_notes = embedder.encode_texts([*self.queries.values()], "queries", QUERY_PROMPTS)
            notes = [*document_notes, *query_notes]
            cosines = Cosines.from_vectors(queries, documents, right, "relevant document")
            ranked = search_exact(queries, documents, ids)
        shown = [
            [f"{name}: {text}" for name, text in side.items()] for side in (self.queries, self.documents)
        ]
        search = SearchResults.from_rankings(shown[0], shown[1], right, ranked)
        sums = retrieval.ranking_metrics([[ids[n] for n in best] for best in search.order], relevant)
        quality = sums.compute_scores(sums.rows)[retrieval.MAIN_METRIC]
        return RetrievalResults(
            embedder.name, sums, notes, [search], cosines, [quality], retrieval.MAIN_METRIC
        )
