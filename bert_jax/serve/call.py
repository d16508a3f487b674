"""One request: the model that was asked, and what computing the answer took."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.serve.compute_queue import ComputeQueue, Function, Work, describe_truncation
from bert_jax.serve.requests import Refusal

MOST_NUMBERS = 25_000_000  # of vectors in an answer: as JSON, 300 MB
CHARACTERS_READ = 64  # of a text that is truncated, for each token that the model reads


@dataclass
class Call:
    model: Any  # of the kind that the route needs
    queue: ComputeQueue
    timeout: float
    models: Mapping[str, Any]  # all that are served, by name
    works: list[Work] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    async def compute(
        self, function: Function, texts: Sequence, *, truncate: bool = True, most_tokens: int | None = None
    ) -> list:
        """Return the results of a function of texts. Texts of more than `most_tokens` are truncated, which is told or,
        without `truncate`, refused; None: they are read whole."""
        if not texts:
            raise Refusal(400, "the request holds no text", "Empty")
        work = Work(function, texts, asyncio.get_running_loop().create_future(), truncate)
        if most_tokens:
            work.most_tokens = most_tokens
            # Tokenizing takes as long as a text is long, and most of this one would not be read.
            work.texts = [cut(text, CHARACTERS_READ * most_tokens) for text in texts]
            work.cut = {n for n, text in enumerate(texts) if work.texts[n] != text}
        self.works.append(work)
        results = await self.queue.run(work, self.timeout)
        if work.truncated:
            self.warnings.append(describe_truncation(work) + "; the rest was left out")
        return results

    def refuse_large_answer(self, numbers: int) -> None:
        if numbers > MOST_NUMBERS:
            shown = f"the answer would hold {numbers:,} numbers, and may hold {MOST_NUMBERS:,}"
            raise Refusal(413, f"{shown}; send fewer texts at a time", "Validation")

    @property
    def tokens(self) -> int:
        return sum(work.tokens for work in self.works)

    @property
    def truncated_texts(self) -> int:
        return sum(len(work.truncated) for work in self.works)


def cut(text: Any, most: int) -> Any:
    """Cut a text, or each of a pair.

    >>> cut("abc", 2), cut(("a", "bcd"), 2)
    ('ab', ('a', 'bc'))
    """
    if isinstance(text, tuple):
        return tuple(part[:most] for part in text)
    return text[:most] if isinstance(text, str) else text
