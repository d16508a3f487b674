"""Where the project stands."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "bert_jax"
LAUNCH = ROOT / "launch"
