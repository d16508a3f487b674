"""No code asks which task, config or source of data it holds: what differs between tasks is a member of theirs."""

import ast
import importlib
import pkgutil

from bert_jax import finetuning, tasks
from bert_jax.data.batch_source import BatchSource
from bert_jax.training.run_config import RunConfig
from bert_jax.training.task import Task
from tests.support.project import PACKAGE

FOUND = """
isinstance(task, FinetuneTask)
x = 1 if isinstance(config, FinetuneConfig | RerankConfig) else 2
isinstance(data, (int, epochs.Epochs))
match task:
    case PretrainTask():
        pass
isinstance(task, FinetuneThing)
"""


def names_of_subclasses(kind: type) -> set[str]:
    return {kind.__name__}.union(*map(names_of_subclasses, kind.__subclasses__()))


def questions(code: str, types: set[str]) -> list[str]:
    """The places where the code asks for one of the types."""
    found = []
    for node in ast.walk(ast.parse(code)):
        asks = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")
        if asks or isinstance(node, ast.MatchClass):
            asked = node.args[1] if asks else node.cls
            named = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(asked)}
            found += [ast.unparse(node)] if named & types else []
    return found


def test_no_code_asks_which_task_it_holds():
    for package in (tasks, finetuning):
        for _, name, _ in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(name)
    types = set().union(*map(names_of_subclasses, (Task, RunConfig, BatchSource)))
    assert {"FinetuneTask", "PretrainTask", "EmbedConfig", "Stream", "Epochs"} <= types
    assert len(questions(FOUND, types)) == 4
    own = (PACKAGE / "tasks", PACKAGE / "finetuning")
    for path in PACKAGE.rglob("*.py"):
        assert path.parent in own or not questions(path.read_text(encoding="utf-8"), types), path
