"""A model that the server answers for; each kind is a file of models/."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from bert_jax.core.errors import BertJaxError
from bert_jax.core.registry import Registry
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.pipeline import TextPipeline

SERVED_MODELS = Registry("bert_jax.serve.models", "kind of served model", "ServedModel")


class ServedModel(ABC):
    kind: ClassVar[str]

    def __init__(self, name: str, model: Any):
        self.name, self.model = name, model

    @abstractmethod
    def pipelines(self) -> Sequence[TextPipeline]:
        """Return the pipelines of requests without options, whose programs are compiled before the first request."""

    @property
    def encoder(self) -> Encoder | None:
        """The model that reads its texts; None for an index of keywords alone."""
        return self.model

    def describe(self) -> dict[str, Any]:
        """Return what a client may want to know."""
        encoder = self.encoder
        shown: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if encoder:
            shown |= {
                "max_length": self.max_length,
                "engine": encoder.engine.name,
                "dtype": encoder.engine.dtype,
                "family": encoder.layout.family.model_type,
            }
        return shown

    @property
    def max_length(self) -> int:
        """The most tokens of a text that it reads at once."""
        return self.model.config.max_position_embeddings


def serve_model(name: str, model: Any) -> ServedModel:
    """Return a model or an index as it is served under a name."""
    kind = re.sub(
        r"(?<=[a-z])(?=[A-Z])", "_", type(model).__name__
    ).lower()  # QuestionAnswerer: question_answerer
    if kind not in SERVED_MODELS.names():
        raise BertJaxError(
            f"{name} is a plain encoder, which answers nothing; save it as an embedder first: "
            'bert_jax.Embedder.load(DIR, pooling="mean").save(NEW)'
        )
    return SERVED_MODELS[kind](name, model)
