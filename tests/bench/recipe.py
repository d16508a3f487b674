"""A config file and its settings, written as on a command line: FILE:NAME KEY=VALUE ..."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bert_jax import tasks
from bert_jax.core import config_files
from bert_jax.runs.run import run_from_config
from bert_jax.training.run_config import RunConfig


@dataclass(frozen=True)
class Recipe:
    text: str
    shared: tuple[str, ...] = ()  # settings that every recipe gets

    @property
    def spec(self) -> str:
        return shlex.split(self.text)[0]

    @property
    def words(self) -> list[str]:
        return [self.spec, *self.settings]

    @property
    def values(self) -> dict:
        return config_files.run_config_file(self.spec)

    @property
    def settings(self) -> list[str]:
        return [*self.shared, *shlex.split(self.text)[1:]]

    @property
    def module(self) -> ModuleType:
        return tasks.find_task_module(self.values, self.settings)

    def config(self, *settings: str) -> RunConfig:
        return tasks.read_config(self.values, [*self.settings, *settings])[1]

    def train(self, directory: Path, command: str, *settings: str) -> None:
        run_from_config(self.values, [*self.settings, *settings], str(directory), command)
