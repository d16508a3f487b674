"""Config files: Python files that define `get_config(name)`, here or where the package's own are.

They may also define `names()`, what can stand behind the colon: {name: what it is}.
"""

import importlib.util
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from bert_jax.errors import BertJaxError

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Recipe:
    """A config that came with the package."""

    name: str
    purpose: str
    names: dict[str, str]  # that can stand behind the colon, and what each is


def read_file(spec: str) -> dict:
    """What `get_config` of `FILE:NAME` returns, as plain nested dicts."""
    place, _, name = spec.partition(":")
    path = find(place)
    module = module_of(path)
    with of_user(path):
        config = module.get_config(name) if name else module.get_config()
    values = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(values, Mapping):
        raise BertJaxError(f"{path}: get_config returns {values!r:.40}; let it return a ConfigDict")
    return dict(values)


def find(place: str) -> Path:
    """The file of this path, or else the package's own of this name, wherever we are: classify, configs/classify.py.

    A file that is not Python's does not stand in the way of a bare name.
    """
    path, known = Path(place), own_files()
    if path.suffix == ".py" and path.is_file():
        return path
    name = place.removeprefix("configs/").removesuffix(".py")
    if name in known:
        return known[name]
    if path.is_file():
        raise BertJaxError(f"{path} is not a Python file; give FILE.py or FILE.py:NAME")
    raise BertJaxError(
        f"no config file {place}; give FILE.py or FILE.py:NAME, or one of {', '.join(known)}, which are installed"
    )


def own_files() -> dict[str, Path]:
    """The config files that came with the package, by their names: those of the checkout, or else the installed."""
    if (ROOT / "pyproject.toml").is_file() and (ROOT / "configs").is_dir():
        paths = sorted((ROOT / "configs").glob("*.py"))
    else:
        paths = installed_files()
    return {path.stem: path for path in paths if path.is_file()}


def installed_files() -> list[Path]:
    try:
        files = metadata.files("bert-jax") or ()
    except metadata.PackageNotFoundError:  # a copy of the package alone
        return []
    return [Path(str(f.locate())).resolve() for f in files if f.match("share/bert-jax/configs/*.py")]


def recipes() -> list[Recipe]:
    """What came with the package, by name."""
    modules = {name: module_of(path) for name, path in sorted(own_files().items())}
    return [
        Recipe(name, (module.__doc__ or "").partition("\n")[0], getattr(module, "names", dict)())
        for name, module in modules.items()
    ]


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bert_jax_config", path)
    assert spec and spec.loader  # as of every file whose name ends in .py
    module = importlib.util.module_from_spec(spec)
    with of_user(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def of_user(path: Path) -> Iterator[None]:
    """The file is a program of the user: whatever it raises is reported with its line, not as our traceback."""
    try:
        yield
    except BertJaxError:
        raise
    except Exception as error:
        line = line_in(path, error)
        raise BertJaxError(f"{path}{f':{line}' * bool(line)}: {type(error).__name__}: {error}") from error


def line_in(path: Path, error: Exception) -> int | None:
    """The line of a file that an error comes from, also by way of other files; None where it comes from none."""
    own = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if Path(frame.f_code.co_filename).resolve() == path.resolve()
    ]
    if own:
        return own[-1]
    return error.lineno if isinstance(error, SyntaxError) else None
