"""What `evaluate` returns."""

from dataclasses import dataclass
from typing import Any

from bert_jax.core.files import to_json


@dataclass(frozen=True)
class Evaluation:
    """What was measured, as lines for people and as facts for programs."""

    lines: list[str]
    facts: dict[str, Any]

    def finite_facts(self) -> dict[str, Any]:
        """Return the facts; refuse a number that is not finite, as JSON does."""
        to_json(self.facts)
        return self.facts

    def format(self, as_json: bool) -> str:
        return to_json(self.facts) if as_json else "\n".join(self.lines)
