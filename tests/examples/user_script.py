"""A script as a user writes it; a test checks its types, strictly."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import bert_jax
from bert_jax import (
    BertJaxError,
    Classifier,
    Embedder,
    Hit,
    Label,
    MaskedLM,
    QuestionAnswerer,
    Reranker,
    Tagger,
)


def train_classifier(encoder: Path, texts: list[str], labels: list[str]) -> Classifier:
    run = bert_jax.finetune(encoder, texts, labels, method="linear_probe")
    assert isinstance(run.model, Classifier)
    return run.model


def sort_mail(classifier: Classifier, mails: list[str]) -> dict[str, list[str]]:
    folders: dict[str, list[str]] = {label: [] for label in classifier.labels}
    for mail, label in zip(mails, classifier.predict(mails), strict=True):
        folders[label].append(mail)
    return folders


def most_certain(classifier: Classifier, mails: list[str]) -> Label:
    labels: list[Label] = classifier.classify(mails)
    return max(labels, key=lambda label: label.score)


def nearest(embedder: Embedder, query: str, texts: list[str]) -> str:
    vectors: np.ndarray = embedder.encode_document(texts)
    return texts[int(embedder.similarity(embedder.encode_query(query), vectors)[0].argmax())]


def build_index(texts: list[str], directory: Path, embedder: Path) -> list[Hit]:
    index = bert_jax.Index.build(texts, directory, model=embedder)
    index.add([{"id": "new", "text": "A late document."}])
    index.remove(["0"])
    hits: list[Hit] = index.search("late", top_k=3)
    return hits


def read_lines(path: Path) -> Iterator[str]:
    with path.open() as lines:
        yield from lines


def ask(directory: Path, question: str, text: str) -> str:
    try:
        answer = QuestionAnswerer.load(directory).answer(question, text, allow_no_answer=True)
    except BertJaxError as error:
        return str(error)
    return "no answer" if answer is None else str(answer.text)


def describe(masked: Path, tagger: Path, judge: Path, text: str) -> list[str]:
    words = [filled.token for filled in MaskedLM.load(masked).fill_mask(f"{text} [MASK]", top_k=2)]
    names = [span.text for span in Tagger.load(tagger).tag(text)]
    ranked = Reranker.load(judge).rank(text, [*words, *names], top_k=1, return_documents=True)
    return [document["text"] for document in ranked]


def measure(classifier: Classifier, test: Path) -> float:
    return float(bert_jax.evaluate(classifier, test)["metrics"]["accuracy"])
