"""Modules that not every installation has. They are imported by the first test that uses them, or it is skipped."""

import pytest


class OptionalModule:
    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str):
        return getattr(pytest.importorskip(self._name), attribute)


peft, torch, transformers = OptionalModule("peft"), OptionalModule("torch"), OptionalModule("transformers")
