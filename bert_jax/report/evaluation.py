"""What `evaluate` returns."""

from dataclasses import dataclass
from typing import Any

from bert_jax.core.files import to_json


@dataclass(frozen=True)
class Evaluation:
    """What was measured, as lines for people and as facts for programs."""

    lines: list[str]
    facts: dict[str, Any]

    def format(self, as_json: bool) -> str:
        return to_json(self.facts) if as_json else "\n".join(self.lines)
