"""The routes of text-embeddings-inference."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import numpy as np

from bert_jax import __version__
from bert_jax.inference.text_vectors import prompt_text
from bert_jax.serve.call import Call
from bert_jax.serve.models import RequestOptions
from bert_jax.serve.requests import unprocessable
from bert_jax.serve.route import ANY, PAIR_SCORERS, TEXT_MODELS, Route, tei_error_body

error_body = tei_error_body
Ids = list[Annotated[int, msgspec.Meta(ge=0)]]
Inputs = str | list[str | Annotated[int, msgspec.Meta(ge=0)] | Ids]
Pair = Annotated[list[str], msgspec.Meta(min_length=1, max_length=2)]
Vector = list[float]
DIRECTION = "texts are truncated at their end; leave truncation_direction out"


class Truncating(msgspec.Struct):
    truncate: bool = True
    truncation_direction: str = "right"

    def __post_init__(self):
        if self.truncation_direction.lower() != "right":
            raise ValueError(DIRECTION)


class EmbedSparseRequest(Truncating, kw_only=True):
    inputs: Inputs
    prompt_name: str | None = None


class EmbedRequest(EmbedSparseRequest, kw_only=True):
    normalize: bool = True
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None


class RerankRequest(Truncating, kw_only=True):
    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False


class PredictRequest(Truncating, kw_only=True):
    inputs: str | list[str | Pair]
    raw_scores: bool = False


class Sentences(msgspec.Struct):
    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Truncating):
    prompt_name: str | None = None


class SimilarityRequest(msgspec.Struct):
    inputs: Sentences
    parameters: SimilarityParameters | None = None


class TokenizeRequest(msgspec.Struct):
    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeRequest(msgspec.Struct):
    ids: list[Annotated[int, msgspec.Meta(ge=0)] | Ids]
    skip_special_tokens: bool = True


class Token(msgspec.Struct):
    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class SparseValue(msgspec.Struct):
    index: int
    value: float


class RankedDocument(msgspec.Struct, omit_defaults=True):
    index: int
    score: float
    text: str | None = None


class Scored(msgspec.Struct):
    score: float
    label: str


def listed_inputs(inputs: Inputs) -> list[Any]:
    """Return inputs as a list of texts or of lists of ids."""
    if isinstance(inputs, str):
        return [inputs]
    kinds = {type(given) for given in inputs}
    if len(kinds) > 1:
        raise unprocessable("inputs must be texts, or lists of token ids, not both")
    return [inputs] if kinds == {int} else list(inputs)


async def embed(call: Call, body: EmbedRequest) -> np.ndarray:
    return await call.model.embed(
        call, listed_inputs(body.inputs), prompt=body.prompt_name, normalize=body.normalize,
        dimensions=body.dimensions, truncate=body.truncate,
    )  # fmt: skip


async def embed_sparse(call: Call, body: EmbedSparseRequest) -> list:
    texts = listed_inputs(body.inputs)
    vectors = await call.model.embed_sparse(call, texts, body.prompt_name, body.truncate)
    return [
        [{"index": int(n), "value": float(weight)} for n, weight in zip(*vector, strict=True)]
        for vector in vectors
    ]


async def embed_all(call: Call, body: EmbedRequest) -> list:
    texts = listed_inputs(body.inputs)
    return await call.model.embed_all(call, texts, body.prompt_name, body.truncate)


async def rerank(call: Call, body: RerankRequest) -> list[dict[str, Any]]:
    ranked = await call.model.rank(
        call, body.query, body.texts, raw_scores=body.raw_scores, truncate=body.truncate
    )
    return [
        {"index": n, "score": score} | ({"text": body.texts[n]} if body.return_text else {})
        for n, score in ranked
    ]


async def predict(call: Call, body: PredictRequest) -> list:
    inputs = body.inputs
    # A flat list of two strings is a pair, and of one a text.
    single = isinstance(inputs, str) or (
        len(inputs) in (1, 2) and all(isinstance(part, str) for part in inputs)
    )
    texts: list = [inputs] if single else list(inputs)
    results = await score_labels(call, texts, body.truncate, "none" if body.raw_scores else None)
    return results[0] if single else results


async def score_labels(call: Call, texts: list, truncate: bool = True, function: str | None = None) -> list:
    """Return the labels of each text with their scores, best first. `function` makes scores of logits: none, sigmoid or
    softmax; None: that of the model."""
    pairs = [text if isinstance(text, str) else tuple(text) if len(text) > 1 else text[0] for text in texts]
    outcomes = await call.model.predict(call, pairs, RequestOptions(raw=True), truncate)
    model = call.model.model
    scored = []
    for outcome in outcomes:
        scores = np.ravel(outcome.raw)
        if function in ("sigmoid", "softmax"):
            scores = model.calibration.probabilities(scores, multi_label=function == "sigmoid")
        elif function is None:
            scores = model.kind.decoder.label_scores(outcome.raw, model.calibration)
        order = np.argsort(-scores, kind="stable")
        labels = model.labels or ("LABEL_0",)
        scored.append([{"score": float(scores[n]), "label": labels[n]} for n in order])
    return scored


async def similarity(call: Call, body: SimilarityRequest) -> list[float]:
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    parameters = body.parameters or SimilarityParameters()
    vectors = await call.model.embed(call, texts, prompt=parameters.prompt_name, truncate=parameters.truncate)
    return (vectors[1:] @ vectors[0]).tolist()


def answer_in_thread(function: Callable[[Call, Any], Any]) -> Callable[[Call, Any], Awaitable[Any]]:
    """Let a function answer that may take seconds, in which others are answered, too."""

    async def answer(call: Call, body: Any) -> Any:
        return await asyncio.to_thread(function, call, body)

    return answer


def tokenize(call: Call, body: TokenizeRequest) -> list:
    tokenizer = call.model.encoder.tokenizer
    before = (
        prompt_text(call.model.encoder.text_settings, body.prompt_name)
        if body.prompt_name is not None
        else ""
    )
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    encoded = []
    for encoding in tokenizer.encode([before + text for text in texts]):
        names = tokenizer.tokens(encoding.input_ids)
        tokens = [
            {"id": i, "text": name, "special": start == stop, "start": None if start == stop else start,
             "stop": None if start == stop else stop}
            for i, name, (start, stop) in zip(encoding.input_ids, names, encoding.offsets, strict=True)
        ]  # fmt: skip
        encoded.append([token for token in tokens if body.add_special_tokens or not token["special"]])
    return encoded


def decode(call: Call, body: DecodeRequest) -> list[str]:
    tokenizer = call.model.encoder.tokenizer
    if len({type(given) for given in body.ids}) > 1:
        raise unprocessable("ids must be token ids, or lists of them, not both")
    listed: list = body.ids if body.ids and isinstance(body.ids[0], list) else [body.ids]
    if wrong := [i for ids in listed for i in ids if i >= tokenizer.size]:
        raise unprocessable(f"token id {wrong[0]} is not in the vocabulary, which has {tokenizer.size:,}")
    if body.skip_special_tokens:
        return [tokenizer.decode(ids) for ids in listed]
    return [" ".join(tokenizer.tokens(ids)) for ids in listed]


TYPES = {
    "embedder": "embedding",
    "sparse-embedder": "embedding",
    "reranker": "reranker",
    "classifier": "classifier",
}


async def info(call: Call, _: None) -> dict[str, Any]:
    about = call.model.describe()
    kind = TYPES.get(about["kind"], about["kind"])
    of_kind: dict[str, Any] = {}
    if kind == "embedding":
        model = call.model.model
        of_kind = {"pooling": "splade" if model.layout.sparse else model.embedder.pooling}
    elif "labels" in about:
        labels = about["labels"]
        of_kind = {
            "id2label": {str(n): label for n, label in enumerate(labels)},
            "label2id": {label: n for n, label in enumerate(labels)},
        }
    return {
        "model_id": about["name"], "model_sha": None, "model_dtype": about.get("dtype"),
        "model_type": {kind: of_kind}, "max_input_length": about.get("max_length"),
        "max_batch_tokens": call.queue.tokens_at_once, "max_concurrent_requests": None,
        "max_client_batch_size": None, "auto_truncate": True, "tokenization_workers": 1,
        "version": __version__, "sha": None, "docker_label": None,
    }  # fmt: skip


TEXTS = {"inputs": ["the first text", "the second text"]}
QUERY = {"query": "where do cats land?", "texts": ["Fish swim.", "Cats land on their feet."]}
SIMILAR = {"inputs": {"source_sentence": "a cat", "sentences": ["a kitten", "a car"]}}
ROUTES = [
    Route("/embed", "A vector for each text.", embed, ("embedder",), EmbedRequest, list[Vector], TEXTS),
    Route(
        "/embed_sparse", "The weights of a sparse vector that are not 0, for each text.", embed_sparse,
        ("sparse-embedder",), EmbedSparseRequest, list[list[SparseValue]], TEXTS,
    ),
    Route(
        "/embed_all", "A vector for each token of each text, special tokens included; of a multi-vector embedder those "
        "that are compared, for queries with the prompt_name query.", embed_all, ("embedder", "multi-vector-embedder"),
        EmbedRequest, list[list[Vector]], TEXTS,
    ),
    Route(
        "/similarity", "The cosine of one text with each of the others.", similarity, ("embedder",),
        SimilarityRequest, Vector, SIMILAR,
    ),
    Route(
        "/rerank", "Documents by their relevance to a query, best first.", rerank, PAIR_SCORERS, RerankRequest,
        list[RankedDocument], QUERY,
    ),
    Route(
        "/predict", "The labels of a text, of a pair or of each of a list, with their scores, best first.", predict,
        ("classifier",), PredictRequest, list[Scored | list[Scored]], {"inputs": "I liked it."},
    ),
    Route(
        "/tokenize", "The tokens of each text.", answer_in_thread(tokenize), TEXT_MODELS, TokenizeRequest,
        list[list[Token]], TEXTS,
    ),
    Route(
        "/decode", "The text of token ids.", answer_in_thread(decode), TEXT_MODELS, DecodeRequest, list[str],
        {"ids": [[101, 102]]},
    ),
    Route("/info", "What a model is.", info, ANY, result=dict[str, Any]),
]  # fmt: skip
