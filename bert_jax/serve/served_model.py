"""What every model that is served has."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from bert_jax.inference.encoder import Encoder
from bert_jax.inference.runner import TextPipeline


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
        shown: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if encoder := self.encoder:
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
