"""Evaluate on queries and documents: a folder in BEIR's layout."""

from bert_jax.data.examples.beir import CORPUS, read_beir
from bert_jax.inference.exact_search import search_exact
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS
from bert_jax.metrics import retrieval
from bert_jax.report.embedders.embedder_results import note_duplicates
from bert_jax.report.embedders.evaluated_embedder import BM25, EmbedderEvalConfig, EvaluatedEmbedder
from bert_jax.report.embedders.retrieval_results import Cosines, RetrievalResults
from bert_jax.report.embedders.search_results import SearchResults


class RetrievalData:
    units = "queries"

    def __init__(self, eval_config: EmbedderEvalConfig):
        self.judged = read_beir(eval_config.data, eval_config.split)
        documents = self.judged.documents
        self.what = (
            f"{len(self.judged.queries):,} queries and {len(documents):,} documents of {eval_config.data}"
        )
        kept = {name: text for name, text in documents.items() if text.strip()}
        self.notes = note_duplicates([*kept.values()], [*kept], "documents")
        if empty := len(documents) - len(kept):
            self.notes.append(f"{empty:,} of {len(documents):,} documents are empty")
        self.notes += self.judged.note_missing(documents, CORPUS, "give both files the same ids")

    def measure(self, embedder: EvaluatedEmbedder | BM25) -> RetrievalResults:
        judged, notes, cosines, vectors = self.judged, [], None, None
        ids, texts, queries = [*judged.documents], [*judged.documents.values()], [*judged.queries.values()]
        if isinstance(embedder, BM25):
            ranked = embedder.nearest(queries, texts, ids)
        else:
            documents, document_notes = embedder.encode_texts(texts, "documents", DOCUMENT_PROMPTS)
            vectors, query_notes = embedder.encode_texts(queries, "queries", QUERY_PROMPTS)
            notes = [*document_notes, *query_notes]
            ranked = search_exact(vectors, documents, ids)
        order, scores = zip(*ranked, strict=True)
        rankings = [[ids[n] for n in best] for best in order]
        shown = [f"{name}: {text}" for name, text in judged.queries.items()]
        search = SearchResults.from_ids(judged, shown, rankings, scores=scores)
        if vectors is not None:
            held = [[n for n in some if n < len(texts)] for some in search.relevant]
            cosines = Cosines.from_vectors(vectors, documents, held, "relevant document")
        sums = retrieval.ranking_metrics(rankings, [*judged.relevant.values()])
        quality = sums.compute_scores(sums.rows)[retrieval.MAIN_METRIC]
        return RetrievalResults(
            embedder.name, sums, notes, [search], cosines, [quality], retrieval.MAIN_METRIC
        )
