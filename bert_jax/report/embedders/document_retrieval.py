"""Evaluate on queries and documents: a folder in BEIR's layout."""

from bert_jax.data.examples.beir import CORPUS, read_beir
from bert_jax.inference.exact_search import search_exact
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS
from bert_jax.metrics import retrieval
from bert_jax.report.embedders.bm25 import BM25
from bert_jax.report.embedders.cosines import Cosines
from bert_jax.report.embedders.embedder_results import note_duplicates
from bert_jax.report.embedders.evaluated_embedder import EmbedderEvalConfig, EvaluatedEmbedder
from bert_jax.report.embedders.retrieval_results import RetrievalResults
from bert_jax.report.embedders.search_results import NOT_IN_FOLDER, SearchResults


class RetrievalData:
    units = "queries"

    def __init__(self, eval_config: EmbedderEvalConfig):
        judged = read_beir(eval_config.data, eval_config.split)
        self.relevant, self.documents, self.queries = judged.relevant, judged.documents, judged.queries
        self.what = (
            f"{len(self.queries):,} queries and {len(self.documents):,} documents of {eval_config.data}"
        )
        self.notes = self.make_notes()
        self.notes += judged.note_missing(self.documents, CORPUS, "give both files the same ids")

    def make_notes(self) -> list[str]:
        kept = {name: text for name, text in self.documents.items() if text.strip()}
        notes = note_duplicates([*kept.values()], [*kept], "documents")
        if empty := len(self.documents) - len(kept):
            notes.append(f"{empty:,} of {len(self.documents):,} documents are empty")
        return notes

    def measure(self, embedder: EvaluatedEmbedder | BM25) -> RetrievalResults:
        ids, relevant = [*self.documents], [*self.relevant.values()]
        texts, notes, cosines = [*self.documents.values()], [], None
        absent = {name: NOT_IN_FOLDER for grades in relevant for name in grades if name not in self.documents}
        place = {name: n for n, name in enumerate([*ids, *absent])}
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
            held = [[n for n in some if n < len(texts)] for some in right]
            cosines = Cosines.from_vectors(queries, documents, held, "relevant document")
            ranked = search_exact(queries, documents, ids)
        sides = self.queries, self.documents | absent
        shown = [[f"{name}: {text}" for name, text in side.items()] for side in sides]
        search = SearchResults.from_rankings(shown[0], shown[1], right, ranked)
        sums = retrieval.ranking_metrics([[ids[n] for n in best] for best in search.order], relevant)
        quality = sums.compute_scores(sums.rows)[retrieval.MAIN_METRIC]
        return RetrievalResults(
            embedder.name, sums, notes, [search], cosines, [quality], retrieval.MAIN_METRIC
        )
