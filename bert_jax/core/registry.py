"""Registries: each file of a folder is an entry, so a new entry needs a new file and no list to edit."""

import importlib
import os
import pkgutil
from collections.abc import Sequence
from functools import cache
from typing import Any

from bert_jax.core.errors import BertJaxError, suggest_name


class Registry(dict[str, Any]):
    """Name -> the `attribute` of the module of that name, or the module itself, which has the `members`.

    Modules are imported on first use. A dash in a name stands for an underscore in the file name. Code outside the
    package is registered, or is named by the dotted path of its module:

        BLOCKS = Registry("bert_jax.models.blocks", "block", "Block")
        BLOCKS["post_norm"]               # Block of bert_jax/models/blocks/post_norm.py
        BLOCKS["mine"] = MyBlock
        BLOCKS["mypackage.blocks.mine"]   # Block of that module
    """

    def __init__(self, package: str, noun: str, attribute: str | None = None, members: Sequence[str] = ()):
        super().__init__()
        self.package, self.noun, self.attribute = package, noun, attribute
        self.members = [attribute] if attribute else members

    def names(self) -> list[str]:
        """Return all known names, the registered ones last."""
        folders = tuple(importlib.import_module(self.package).__path__)
        files = modules_in(folders, tuple(os.stat(folder).st_mtime_ns for folder in folders))
        return list(dict.fromkeys([*files, *self]))

    def check(self, name: str) -> None:
        """Raise unless the name is known or is a dotted path. Nothing is imported."""
        dotted = "." in name and not name.startswith(".")
        if not dotted and name.replace("-", "_") not in self.names() and name not in self:
            own = f"; {name}.py is found in a folder: folder.{name} names folder/{name}.py"
            raise BertJaxError(
                f'no {self.noun} "{name}"; {suggest_name(name, self.names())}'
                + own * os.path.isfile(f"{name}.py")
            )

    def look_up_from_file(self, name):
        """Look up a name that a file gives. A module's path is refused: a file must not choose which code runs."""
        if not isinstance(name, str) or ("." in name and name not in self):
            raise BertJaxError(f'no {self.noun} "{name}"; {suggest_name(name, self.names())}')
        return self[name]

    def __missing__(self, name: str):
        self.check(name)
        path = name if "." in name else f"{self.package}.{name.replace('-', '_')}"
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise  # the module itself exists, but something that it imports does not
            raise BertJaxError(
                f'no {self.noun} "{name}": Python finds no module {error.name}; install it, or run '
                "`python -m bert_jax` instead of `bert-jax` in the folder that holds it"
            ) from None
        if lacking := [member for member in self.members if not hasattr(module, member)]:
            raise BertJaxError(f'no {self.noun} "{name}": {path} has no "{lacking[0]}"')
        return getattr(module, self.attribute) if self.attribute else module


@cache
def modules_in(folders: tuple[str, ...], changed: tuple[int, ...]) -> list[str]:
    """List the modules of the folders. Cached until a time in `changed` differs: every prediction looks up its kind."""
    return [module.name for module in pkgutil.iter_modules(folders)]
