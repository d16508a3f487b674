"""The bare address, which answers by the kind of the model, as Hugging Face's inference clients ask it."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec

from bert_jax.inference.zero_shot import CandidateLabels
from bert_jax.serve.call import Call
from bert_jax.serve.dialects import tei
from bert_jax.serve.models import RequestOptions
from bert_jax.serve.requests import unprocessable
from bert_jax.serve.route import TEXT_MODELS, Route, tei_error_body

error_body = tei_error_body
Size = Annotated[int, msgspec.Meta(ge=1)]


class TagParameters(msgspec.Struct, forbid_unknown_fields=True):
    # Spans are whole words: how the scores of a word's pieces are joined is the model's own.
    aggregation_strategy: Literal["simple", "first", "average", "max"] | None = None
    ignore_labels: list[str] | None = None


class TokenClassification(msgspec.Struct):
    inputs: str
    parameters: TagParameters | None = None


class QuestionParameters(msgspec.Struct, forbid_unknown_fields=True):
    handle_impossible_answer: bool | None = None
    top_k: Literal[1] | None = None


class Question(msgspec.Struct):
    question: str
    context: str


class QuestionAnswering(msgspec.Struct):
    inputs: Question
    parameters: QuestionParameters | None = None


class FillParameters(msgspec.Struct, forbid_unknown_fields=True):
    top_k: Size | None = None
    targets: list[str] | None = None


class FillMask(msgspec.Struct):
    inputs: str
    parameters: FillParameters | None = None


class ClassificationParameters(msgspec.Struct):
    top_k: Size | None = None
    function_to_apply: Literal["none", "sigmoid", "softmax"] | None = None


class Classification(msgspec.Struct):
    inputs: str | list[str]
    parameters: ClassificationParameters | None = None


class ZeroShotParameters(msgspec.Struct, forbid_unknown_fields=True):
    candidate_labels: str | list[str]
    hypothesis_template: str | None = None
    multi_label: bool | None = None


class ZeroShot(msgspec.Struct):
    inputs: str | list[str]
    parameters: ZeroShotParameters


async def zero_shot(call: Call, body: ZeroShot) -> Any:
    given = body.parameters
    candidates = CandidateLabels.read(
        given.candidate_labels, given.hypothesis_template or "", bool(given.multi_label)
    )
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    ranked = await call.model.zero_shot(call, texts, candidates)
    answers = [[{"label": label.label, "score": label.score} for label in labels] for labels in ranked]
    return answers[0] if isinstance(body.inputs, str) else answers


async def embed(call: Call, request: dict) -> Any:
    if isinstance(request.get("inputs"), dict):
        return await tei.similarity(call, convert(request, tei.SimilarityRequest))
    return await tei.embed(call, convert(request, tei.EmbedRequest))


async def classify(call: Call, body: Classification) -> Any:
    parameters = body.parameters or ClassificationParameters()
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    results = await tei.score_labels(call, texts, function=parameters.function_to_apply)
    # A list even for one text: clients take its first element.
    return [scored[: parameters.top_k] for scored in results]


async def tag(call: Call, body: TokenClassification) -> Any:
    ignored = (body.parameters and body.parameters.ignore_labels) or ()
    (record,) = await call.model.predict(call, [body.inputs])
    return [
        {"entity_group": span["label"], "score": span["score"], "word": span["text"], "start": span["start"],
         "end": span["end"]}
        for span in record["spans"] if span["label"] not in ignored
    ]  # fmt: skip


async def answer(call: Call, body: QuestionAnswering) -> Any:
    missing = body.parameters.handle_impossible_answer if body.parameters else None
    pair = (body.inputs.question, body.inputs.context)
    (record,) = await call.model.predict(call, [pair], RequestOptions(allow_no_answer=missing))
    if record["answer"] is None:
        return {"answer": "", "score": 0.0, "start": 0, "end": 0}
    return {name: record[name] for name in ("answer", "score", "start", "end")}


async def fill(call: Call, body: FillMask) -> Any:
    parameters = body.parameters or FillParameters()
    if parameters.targets:
        raise unprocessable("targets are not served; leave them out")
    (masks,) = await call.model.fill(call, [body.inputs], parameters.top_k or 5)
    shown = [
        [
            {"score": filled.score, "token": filled.token_id, "token_str": filled.token, "sequence": filled.text}
            for filled in fillings
        ]
        for fillings in masks
    ]  # fmt: skip
    return shown[0] if len(shown) == 1 else shown


ZERO_SHOT = ("classifier", "embedder")  # kinds of models that choose between labels by their names
# The kind of a model -> what it reads, and the function that answers.
BY_KIND: dict[str, tuple[Any, Callable[[Call, Any], Awaitable[Any]]]] = {
    "embedder": (dict[str, Any], embed),
    "sparse-embedder": (tei.EmbedSparseRequest, tei.embed_sparse),
    "multi-vector-embedder": (tei.EmbedRequest, tei.embed_all),
    "reranker": (tei.RerankRequest, tei.rerank),
    "classifier": (Classification, classify),
    "tagger": (TokenClassification, tag),
    "question-answerer": (QuestionAnswering, answer),
    "masked-lm": (FillMask, fill),
}


def convert(request: dict, kind: Any) -> Any:
    try:
        return msgspec.convert(request, kind)
    except msgspec.ValidationError as error:
        raise unprocessable(error) from None


async def answer_by_kind(call: Call, request: dict[str, Any]) -> Any:
    parameters = request.get("parameters")
    if call.model.kind in ZERO_SHOT and isinstance(parameters, dict) and "candidate_labels" in parameters:
        return await zero_shot(call, convert(request, ZeroShot))
    kind, function = BY_KIND[call.model.kind]
    return await function(call, convert(request, kind))


ROUTES = [
    Route(
        "/", "What the model does, in the forms of Hugging Face's inference API: vectors, labels, spans, an answer or "
        "fillings.", answer_by_kind, TEXT_MODELS, dict[str, Any], Any, {"inputs": "a text"},
    )
]  # fmt: skip
