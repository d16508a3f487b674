"""How a model turns texts into vectors of their tokens: which tokens are read, added, left out and pooled."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError, check_name
from bert_jax.hub.multi_vector_encoder import DOCUMENT, QUERY, TASKS, MultiVectorSettings
from bert_jax.inference.computations import QueryTokenVectors, TokenVectors
from bert_jax.inference.max_sim import max_sim_matrix
from bert_jax.inference.runner import ModelInputs, Runner
from bert_jax.inference.text_vectors import (
    DOCUMENT_PROMPTS,
    QUERY_PROMPTS,
    PromptedPipeline,
    PromptText,
    find_prompt_name,
)
from bert_jax.inference.token_pooling import choose_pooling, pool_tokens
from bert_jax.text.encoding import Encoding
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import TruncationCounter, TruncationWarner

PROMPTS = {QUERY: QUERY_PROMPTS, DOCUMENT: DOCUMENT_PROMPTS}


class TokenVectorPipeline(PromptedPipeline[np.ndarray]):
    """Computes the vectors [T, D] of each of a list of texts, which are queries or documents."""

    def __init__(
        self, model: Runner, task: str = DOCUMENT, *, prompt: str | PromptText | None = None,
        pool_factor: float | None = None, long_texts: str = "truncate",
        truncated: TruncationCounter | None = None,
    ):  # fmt: skip
        check_name(task, TASKS, "task")
        settings = require_multi_vector(model)
        self.expansion = settings.expansion if task == QUERY else None
        pooling = choose_pooling(settings.pooling, pool_factor)
        self.pooling = pooling if pooling and task in pooling.tasks else None
        longest = settings.longest(task, model.config.max_position_embeddings)
        encoding_options = EncodingOptions(longest, long_texts)
        if encoding_options.long_texts == "windows":
            raise BertJaxError("a multi-vector embedder truncates long texts; leave long_texts out")
        computes = QueryTokenVectors if self.expansion and not self.expansion.attend else TokenVectors
        super().__init__(
            model, computes(settings.projection, settings.normalize),
            find_prompt_name(settings, PROMPTS[task]) if prompt is None else prompt,
            "truncate", truncated or TruncationWarner(longest),
        )  # fmt: skip
        self.encoding_options = encoding_options
        self.is_compared = token_choice(settings, task, model.tokenizer)
        if computes is QueryTokenVectors:
            self.extra_shapes = ({"attended": ()},)

    def preprocess(self, texts: Sequence) -> ModelInputs:
        inputs = super().preprocess(texts)
        if self.expansion is None:
            return inputs
        settings = require_multi_vector(self.model)
        rows = [expand_query(row, settings, self.model.tokenizer) for row in inputs.rows]
        attended = np.array([len(row.input_ids) for row in inputs.rows], np.int32)
        extra_inputs = None if self.expansion.attend else {"attended": attended}
        return replace(inputs, rows=rows, extra_inputs=extra_inputs)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> list[np.ndarray]:
        results = []
        for row, output in zip(inputs.rows, outputs, strict=True):
            vectors = np.asarray(output, np.float32)[: len(row.input_ids)][self.is_compared(row.input_ids)]
            results.append(pool_tokens(vectors, self.pooling) if self.pooling else vectors)
        return results


def task_for(model: Runner, prompt: str | None) -> dict[str, Any]:
    """Return the task and the prompt of a pipeline for the name of a prompt, which other programs have for both: those
    of queries name their task, even if the model puts no text before them."""
    task = QUERY if prompt in QUERY_PROMPTS else DOCUMENT
    is_usual = prompt in PROMPTS[task] and prompt not in model.text_settings.prompts
    return {"task": task, "prompt": None if is_usual else prompt}


def pair_scorer(
    model: Runner, long_texts: str = "truncate", truncated: TruncationCounter | None = None
) -> Callable[[Sequence[tuple[str, str]]], Iterator[float]]:
    """Return the function that computes the MaxSim of each pair (query, document) of a list. Pairs whose document is
    truncated are counted in `truncated`; without it there is a warning."""
    read_queries = TokenVectorPipeline(model, QUERY)
    read_documents = TokenVectorPipeline(model, DOCUMENT, long_texts=long_texts, truncated=truncated)
    mean = require_multi_vector(model).similarity == "meanmaxsim"

    def score(pairs: Sequence[tuple[str, str]]) -> Iterator[float]:
        queries, documents = (list(dict.fromkeys(texts)) for texts in zip(*pairs, strict=True))
        of_queries = dict(zip(queries, read_queries(queries), strict=True))
        inputs = read_documents.preprocess(documents)
        rows = dict(zip(documents, inputs.first_rows, strict=True))
        read_documents.truncated.count(rows[document] for _, document in pairs)
        outputs = model.run(inputs.rows, read_documents.computation)
        of_documents = dict(zip(documents, read_documents.postprocess(inputs, outputs), strict=True))
        for query, group in groupby(pairs, key=itemgetter(0)):
            candidates = [of_documents[document] for _, document in group]
            yield from max_sim_matrix([of_queries[query]], candidates, mean)[0].tolist()

    return score


def require_multi_vector(model: Runner) -> MultiVectorSettings:
    if model.layout.multi_vector is None:
        raise BertJaxError(
            f"this model has no vectors of tokens to compare, for it is a {type(model).__name__}; train one with "
            "configs/late_interaction.py"
        )
    return model.layout.multi_vector


def expand_query(row: Encoding, settings: MultiVectorSettings, tokenizer: Tokenizer) -> Encoding:
    """Return a query with the tokens that lengthen it."""
    if settings.expansion is None:
        return row
    token, added = settings.expansion.token, settings.expansion.length - len(row.input_ids)
    number = tokenizer.special.mask if token is None else tokenizer.rust.token_to_id(token)
    if number is None:
        raise BertJaxError(
            f"queries are lengthened with the token {token!r:.40}, which is not in the vocabulary; copy the model again"
        )
    return replace(
        row,
        input_ids=row.input_ids + [number] * added,
        token_type_ids=row.token_type_ids + [0] * added,
        offsets=row.offsets + [(0, 0)] * added,
    )


def token_choice(
    settings: MultiVectorSettings, task: str, tokenizer: Tokenizer
) -> Callable[[Sequence[int]], np.ndarray]:
    """Return a function of ids that says which of these tokens are compared."""
    left_out = skipped_ids(settings, tokenizer) if task in settings.skiplist_tasks else []
    kept = settings.kept_ids if task != QUERY else ()

    def choose(ids: Sequence[int]) -> np.ndarray:
        chosen = ~np.isin(ids, left_out)
        chosen[:1] &= settings.first_token
        return chosen & np.isin(ids, kept) if kept else chosen

    return choose


def skipped_ids(settings: MultiVectorSettings, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the words of the skiplist that are tokens."""
    numbers = map(tokenizer.rust.token_to_id, settings.skiplist)
    return [number for number in numbers if number is not None]
