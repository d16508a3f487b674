"""What other libraries do with our embedder: `python -m tests.peers.trials LIBRARY DIR`, where LIBRARY is installed.

Each library gets its adapter, and gives the vectors, scores and neighbours that our model gives without it.
"""

import re
import sys

import numpy as np

import bert_jax
from tests.support.project import ROOT

PLACES = ("on the sofa", "near the bed", "under the blanket", "all day", "every night")
PETS = [f"{pet} {acts} {place}" for pet in ("the cat", "a kitten", "the dog", "a puppy")
        for acts in ("sleeps", "eats", "plays") for place in PLACES]  # fmt: skip
TIMES = ("in the quarter", "during the recession", "this year", "after the news", "in late trading")
SHARES = [f"{share} {moves} {time}" for share in ("the share price", "the stock market", "the bond", "our revenue")
          for moves in ("rose", "fell", "recovered") for time in TIMES]  # fmt: skip
TEXTS = PETS + SHARES
ABOUT_PETS, ABOUT_SHARES = "pets at home", "the economy and finance"
BLOCK = re.compile(r"^```python\n(# pip install (\S+)\n.*?)^```$", re.M | re.S)


def read_adapters() -> dict[str, str]:
    """The adapters of the guide, each by the name of its library."""
    guide = (ROOT / "configs/guides/migrate.md").read_text(encoding="utf-8")
    return {library: code for code, library in BLOCK.findall(guide)}


def assert_ours(vectors, texts: list[str], ours: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(np.array(vectors), [ours[text] for text in texts], atol=1e-5)


def try_scikit_learn(classifier, ours) -> None:
    from sklearn.model_selection import cross_val_score

    about = [text in PETS for text in TEXTS]
    assert cross_val_score(classifier, TEXTS, about, cv=3).min() > 0.9
    assert_ours(classifier.fit(TEXTS, about)[0].transform(TEXTS), TEXTS, ours)


def try_bertopic(topics, ours) -> None:
    topics.umap_model.random_state = 0
    numbers, _ = topics.fit_transform(TEXTS)
    assert_ours(topics.embedding_model.embed(TEXTS), TEXTS, ours)
    of_pets, of_shares = (set(part) - {-1} for part in (numbers[: len(PETS)], numbers[len(PETS) :]))
    assert of_pets and of_shares and not of_pets & of_shares
    for about, found in ((ABOUT_PETS, of_pets), (ABOUT_SHARES, of_shares)):
        (best,), _ = topics.find_topics(about, top_n=1)
        assert best in found


def try_keybert(keywords, ours) -> None:
    vectors, _ = keywords.extract_embeddings(TEXTS)
    assert_ours(vectors, TEXTS, ours)
    ((word, score),) = keywords.extract_keywords(PETS[0], top_n=1)
    nouns_and_verbs = ["cat", "sleeps", "sofa"]
    cosines = keywords.model.embedding_model.similarity(PETS[0], nouns_and_verbs)[0]
    assert word == nouns_and_verbs[cosines.argmax()]
    np.testing.assert_allclose(score, cosines.max(), atol=1e-4)  # it is rounded


def try_langchain(embeddings, ours) -> None:
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore(embeddings)
    store.add_texts(TEXTS)
    rows = list(store.store.values())
    assert_ours([row["vector"] for row in rows], [row["text"] for row in rows], ours)
    for about, expected in ((ABOUT_PETS, PETS), (ABOUT_SHARES, SHARES)):
        assert {hit.page_content for hit in store.similarity_search(about, k=20)} <= set(expected)


def try_llama_index(embedding, ours) -> None:
    from llama_index.core import Document, VectorStoreIndex

    index = VectorStoreIndex.from_documents([Document(text=text) for text in TEXTS], embed_model=embedding)
    vectors = index.vector_store.data.embedding_dict
    assert_ours(list(vectors.values()), [index.docstore.get_node(name).text for name in vectors], ours)
    for about, expected in ((ABOUT_PETS, PETS), (ABOUT_SHARES, SHARES)):
        hits = index.as_retriever(similarity_top_k=20).retrieve(about)
        assert len(hits) == 20 and {hit.text for hit in hits} <= set(expected)


def try_mteb(encoder, ours) -> None:
    import mteb
    from datasets import Dataset, DatasetDict
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata
    from scipy.stats import spearmanr

    local = {"description": "", "dataset": {"path": "local", "revision": "1"}, "eval_langs": ["eng-Latn"]}
    scores = np.random.RandomState(0).uniform(0, 5, len(PETS))

    class Alike(AbsTaskSTS):
        metadata = TaskMetadata(name="Alike", type="STS", main_score="cosine_spearman", **local)

        def load_data(self, **_):
            columns = {"sentence1": PETS, "sentence2": SHARES, "score": scores}
            self.dataset = DatasetDict(test=Dataset.from_dict(columns))
            self.data_loaded = True

    class Found(AbsTaskRetrieval):
        metadata = TaskMetadata(name="Found", type="Retrieval", main_score="precision_at_20", **local)

        def load_data(self, **_):
            corpus = {"id": TEXTS, "title": [""] * len(TEXTS), "text": TEXTS}
            queries = {"id": ["pets", "shares"], "text": [ABOUT_PETS, ABOUT_SHARES]}
            judged = {"pets": dict.fromkeys(PETS, 1), "shares": dict.fromkeys(SHARES, 1)}
            parts = {"corpus": Dataset.from_dict(corpus), "queries": Dataset.from_dict(queries)}
            self.dataset = {"default": {"test": {**parts, "relevant_docs": judged, "top_ranked": None}}}
            self.data_loaded = True

    result = mteb.evaluate(encoder, [Alike(), Found()], cache=None, co2_tracker=False)
    alike, found = (task.get_score() for task in result.task_results)
    cosines = [ours[pet] @ ours[share] for pet, share in zip(PETS, SHARES, strict=True)]
    np.testing.assert_allclose(alike, spearmanr(cosines, scores).statistic, atol=1e-3)
    assert found == 1


def try_spacy(nlp, ours) -> None:
    docs = list(nlp.pipe(TEXTS))
    assert_ours([doc.vector for doc in docs], TEXTS, ours)
    pet, other_pet, share = docs[0], docs[1], docs[-1]
    np.testing.assert_allclose(pet.similarity(other_pet), ours[pet.text] @ ours[other_pet.text], atol=1e-5)
    assert pet.similarity(other_pet) > pet.similarity(share)


# The trial of each library, and what its adapter defines for it.
TRIALS = {
    "scikit-learn": (try_scikit_learn, "classifier"),
    "bertopic": (try_bertopic, "topics"),
    "keybert": (try_keybert, "keywords"),
    "langchain-core": (try_langchain, "embeddings"),
    "llama-index-core": (try_llama_index, "embedding"),
    "mteb": (try_mteb, "encoder"),
    "spacy": (try_spacy, "nlp"),
}


def main(library: str, directory: str) -> None:
    ours = dict(zip(TEXTS, bert_jax.Embedder.load(directory).encode(TEXTS), strict=True))
    encode, calls = bert_jax.Embedder.encode, []

    def recorded(self, inputs, *args, **settings):
        calls.append(inputs)
        return encode(self, inputs, *args, **settings)

    bert_jax.Embedder.encode = recorded
    trial, name = TRIALS[library]
    scope: dict = {}
    exec(read_adapters()[library].replace("path/to/embedder", directory), scope)
    trial(scope[name], ours)
    assert calls, "the library has not called our model"


if __name__ == "__main__":
    main(*sys.argv[1:])
