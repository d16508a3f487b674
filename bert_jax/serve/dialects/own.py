"""The routes of this project: predictions with their calibration, and indexes."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec

from bert_jax.search.index import RERANK_TOP, Hit
from bert_jax.serve.call import Call
from bert_jax.serve.models import USUAL_FILLINGS, RequestOptions, Search
from bert_jax.serve.requests import Refusal, unprocessable
from bert_jax.serve.route import PAIR_SCORERS, Route, tei_error_body

error_body = tei_error_body
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Size = Annotated[int, msgspec.Meta(ge=1)]
LongTexts = Literal["truncate", "windows"]


class Pair(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    text_pair: str


class QuestionInput(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    context: str


class ClassifyRequest(msgspec.Struct, forbid_unknown_fields=True):
    inputs: str | Pair | list[str | Pair]
    min_precision: Share | dict[str, Share] | None = None
    probabilities: bool = False
    out_of_scope: Share | None = None
    long_texts: LongTexts = "truncate"
    truncate: bool = True


class TagRequest(msgspec.Struct, forbid_unknown_fields=True):
    inputs: str | list[str]
    min_precision: Share | dict[str, Share] | None = None


class AnswerRequest(msgspec.Struct, forbid_unknown_fields=True):
    inputs: QuestionInput | list[QuestionInput]
    allow_no_answer: bool | None = None
    min_precision: Share | None = None


class FillMaskRequest(msgspec.Struct, forbid_unknown_fields=True):
    inputs: str | list[str]
    top_k: Size = USUAL_FILLINGS


class SearchRequest(msgspec.Struct, forbid_unknown_fields=True):
    queries: str | list[str]
    top_k: Size = 10
    retrievers: tuple[str, ...] | None = None
    weights: dict[str, float] | None = None
    reranker: str | None = None
    rerank_top: Size = RERANK_TOP
    explain: bool = False


class AnswersResponse(msgspec.Struct):
    model: str
    results: list[Any]
    warnings: list[str]


def listed(inputs: Any) -> list:
    return inputs if isinstance(inputs, list) else [inputs]


def answers(call: Call, results: list) -> dict[str, Any]:
    return {"model": call.model.name, "results": results, "warnings": call.warnings}


async def classify(call: Call, body: ClassifyRequest) -> dict[str, Any]:
    texts = [
        given if isinstance(given, str) else (given.text, given.text_pair) for given in listed(body.inputs)
    ]
    refuse_blank(texts)
    options = RequestOptions(body.long_texts, None, body.min_precision, body.out_of_scope, body.probabilities)
    return answers(call, await call.model.predict(call, texts, options, body.truncate))


def refuse_blank(texts: list) -> None:
    for number, text in enumerate(texts, 1):
        if any(not part.strip() for part in (text if isinstance(text, tuple) else (text,))):
            raise Refusal(
                422, f"text {number} is blank, so there is nothing to classify; leave it out", "Empty"
            )


async def tag(call: Call, body: TagRequest) -> dict[str, Any]:
    options = RequestOptions(precision=body.min_precision)
    return answers(call, await call.model.predict(call, listed(body.inputs), options))


async def answer(call: Call, body: AnswerRequest) -> dict[str, Any]:
    pairs = [(given.question, given.context) for given in listed(body.inputs)]
    options = RequestOptions(precision=body.min_precision, allow_no_answer=body.allow_no_answer)
    return answers(call, await call.model.predict(call, pairs, options))


async def fill_mask(call: Call, body: FillMaskRequest) -> dict[str, Any]:
    filled = await call.model.fill(call, listed(body.inputs), body.top_k)
    return answers(
        call, [[[asdict(filled) for filled in fillings] for fillings in of_text] for of_text in filled]
    )


async def search(call: Call, body: SearchRequest) -> dict[str, Any]:
    weights = tuple(sorted((body.weights or {}).items()))
    reranker = find_reranker(call, body.reranker)
    function = Search(
        call.model.model, body.top_k, body.retrievers, weights, reranker, body.rerank_top, body.explain
    )
    by_query = await call.compute(function, listed(body.queries))
    return answers(call, [[show_hit(hit, body.explain) for hit in hits] for hits in by_query])


def find_reranker(call: Call, name: str | None) -> Any:
    if name is None:
        return None
    rerankers = [known for known, served in call.models.items() if served.kind in PAIR_SCORERS]
    if name not in rerankers:
        shown = f"served are {', '.join(rerankers)}" if rerankers else "none is served"
        raise unprocessable(f'no reranker "{name:.60}"; {shown}')
    return call.models[name].model


def show_hit(hit: Hit, explain: bool) -> dict[str, Any]:
    shown = asdict(hit)
    if not explain:
        del shown["rankings"]
    return shown


async def models(call: Call, _: None) -> dict[str, Any]:
    return {"models": [served.describe() for served in call.models.values()]}


ROUTES = [
    Route("/models", "The models that are served.", models, (), result=dict[str, list[dict[str, Any]]]),
    Route(
        "/classify", "Classes, labels or a number for texts or pairs, with calibrated probabilities; with a wanted "
        "precision, whether the model abstains.", classify, ("classifier",), ClassifyRequest, AnswersResponse,
        {"inputs": ["I liked it."], "probabilities": True},
    ),
    Route(
        "/tag", "The labelled spans of texts of any length.", tag, ("tagger",), TagRequest, AnswersResponse,
        {"inputs": ["Ada lives in London."]},
    ),
    Route(
        "/answer", "The part of a text of any length that answers a question.", answer, ("question-answerer",),
        AnswerRequest, AnswersResponse, {"inputs": {"question": "Who lives there?", "context": "Ada lives in London."}},
    ),
    Route(
        "/fill-mask", "The likeliest tokens at each mask.", fill_mask, ("masked-lm",), FillMaskRequest,
        AnswersResponse,
        {"inputs": ["The [MASK] sat."]},
    ),
    Route(
        "/search", "The passages of an index that match each query.", search, ("index",), SearchRequest,
        AnswersResponse,
        {"queries": ["where do cats land?"], "top_k": 3},
    ),
]  # fmt: skip
