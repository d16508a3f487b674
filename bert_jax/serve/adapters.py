"""The adapters in a folder, which may come and go while the server runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.core.terminal import print_line
from bert_jax.hub.adapter import CONFIG, WEIGHTS
from bert_jax.inference.adapters import AdapterModels
from bert_jax.inference.engine import open_directory
from bert_jax.search.index_manifest import INDEX_FILE
from bert_jax.serve.models import serve_model
from bert_jax.serve.served_model import ServedModel

Facts = tuple[tuple[int, int], ...]  # (time of the last change, size) of each file


def open_adapters(model: Path, named: Mapping[str, Path], **computed: Any) -> AdapterModels:
    """Open a model with adapters."""
    if (model / INDEX_FILE).is_file():
        raise BertJaxError(f"{model} is an index; name the model of the adapters first")
    directory = open_directory(model, **computed)
    if directory.engine != "jax":
        raise BertJaxError(
            f"adapters are computed by the engine jax, not by {directory.engine}; leave --engine out"
        )
    return AdapterModels(directory, named)


class AdapterFolder:
    """The adapters in the folders of a folder, by the names of those."""

    def __init__(self, folder: Path, opened: AdapterModels):
        if not folder.is_dir():
            raise BertJaxError(f"--adapter-folder {folder} is not a folder")
        self.folder, self.opened = folder, opened
        self.seen: dict[str, Facts] = {}

    def update(self, served: Mapping[str, ServedModel]) -> dict[str, ServedModel]:
        """Return what is served from now on: with adapters that are new or have changed, without those that are gone.

        One that does not open is told, once, and is tried again when its files change.
        """
        present = {
            path.parent.name: file_facts(path.parent) for path in sorted(self.folder.glob(f"*/{CONFIG}"))
        }
        changed = {name for name in {*present, *self.seen} if present.get(name) != self.seen.get(name)}
        now = {name: model for name, model in served.items() if name not in changed & set(self.seen)}
        for name in sorted(changed):
            if self.seen.pop(name, None) and name in self.opened:
                self.opened.remove(name)
            if name not in present:
                print_line(f"adapter {name} is gone")
                continue
            self.seen[name] = present[name]
            try:
                now[name] = self.open_adapter(name, now)
            except BertJaxError as error:
                print_line(f"adapter {name} is not served: {error}")
        return now

    def open_adapter(self, name: str, served: Mapping[str, ServedModel]) -> ServedModel:
        if name in served:
            raise BertJaxError(f'another model is called "{name}"; rename {self.folder / name}')
        self.opened.add(name, self.folder / name)
        print_line(f"adapter {name} is served")
        return serve_model(name, self.opened[name])


def file_facts(directory: Path) -> Facts:
    facts = [path.stat() for name in (CONFIG, WEIGHTS) if (path := directory / name).is_file()]
    return tuple((fact.st_mtime_ns, fact.st_size) for fact in facts)
