"""Registries: what a folder offers is found because its file is there, without a list to edit."""

import importlib
import os
import pkgutil
from functools import cache
from typing import Any

from bert_jax.errors import BertJaxError, nearest


class Registry(dict[str, Any]):
    """Name -> what the file of that name offers as `attribute`, or the module itself without one; imported when asked.

    A dash in a name is an underscore in the file's. Code outside of the package registers its own, or is named by the
    dotted path of its module:

        BLOCKS = Registry("bert_jax.models.blocks", "block", "Block")
        BLOCKS["post_norm"]               # Block of bert_jax/models/blocks/post_norm.py
        BLOCKS["mine"] = MyBlock
        BLOCKS["mypackage.blocks.mine"]   # Block of that module
    """

    def __init__(self, package: str, noun: str, attribute: str | None = None, helpers: tuple[str, ...] = ()):
        super().__init__()
        self.package, self.noun, self.attribute = package, noun, attribute
        self.helpers = helpers  # files of the folder that the others share

    def names(self) -> list[str]:
        """Every known name, the registered ones last."""
        folders = tuple(importlib.import_module(self.package).__path__)
        files = modules_in(folders, tuple(os.stat(folder).st_mtime_ns for folder in folders))
        return list(dict.fromkeys([*(name for name in files if name not in self.helpers), *self]))

    def check(self, name: str) -> None:
        """Raise unless the name is known or a dotted path; nothing is imported."""
        dotted = "." in name and not name.startswith(".")
        if not dotted and name.replace("-", "_") not in self.names() and name not in self:
            raise BertJaxError(f'no {self.noun} "{name}"; {nearest(name, self.names())}')

    def named_in_file(self, name):
        """By a name alone, never a module's path: a file does not choose the code that runs."""
        if not isinstance(name, str) or ("." in name and name not in self):
            raise BertJaxError(f'no {self.noun} "{name}"; {nearest(name, self.names())}')
        return self[name]

    def __missing__(self, name: str):
        self.check(name)
        path = name if "." in name else f"{self.package}.{name.replace('-', '_')}"
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{path}.".startswith(f"{error.name}."):
                raise  # of what the module itself imports
            raise BertJaxError(f'no {self.noun} "{name}": Python finds no module {error.name}') from None
        if self.attribute is None:
            return module
        if not hasattr(module, self.attribute):
            raise BertJaxError(f'no {self.noun} "{name}": {path} has no "{self.attribute}"')
        return getattr(module, self.attribute)


@cache
def modules_in(folders: tuple[str, ...], changed: tuple[int, ...]) -> list[str]:
    """Listed again only after a folder `changed`: every prediction asks for its kind."""
    return [module.name for module in pkgutil.iter_modules(folders)]
