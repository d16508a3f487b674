"""Config files: Python files that define `get_config(name)`, the user's own or those that come with the package.

A file may also define `names()`, which describes the names allowed after the colon of `FILE:NAME`: {name: description}.
Three sections of a config change its other values in some runs: `from_init` if a run starts from a model directory,
`on_tpu` and `on_gpu` if it runs on such devices.
"""

import importlib.util
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from bert_jax.core.errors import BertJaxError

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class BundledConfig:
    """A config file that comes with the package."""

    name: str
    purpose: str
    names: dict[str, str]  # allowed after the colon: {name: description}


def run_config_file(spec: str) -> dict:
    """Run `get_config` of `FILE:NAME` and return its config as plain nested dicts."""
    location, _, name = spec.partition(":")
    path = find_config_file(location)
    module = load_config_module(path)
    with errors_in_config(path):
        config = module.get_config(name) if name else module.get_config()
    values = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(values, Mapping):
        raise BertJaxError(f"{path}: get_config returns {values!r:.40}; let it return a ConfigDict")
    return dict(values)


def find_config_file(location: str) -> Path:
    """Find a config file by its path, or one of the package's by its name: classify or configs/classify.py.

    A Python file at the path comes first. The package's files are found from any working directory, by a bare name even
    if the working directory has a file of that name that is not a Python file.
    """
    path, known = Path(location), bundled_config_paths()
    if path.suffix == ".py" and path.is_file():
        return path
    name = location.removeprefix("configs/").removesuffix(".py")
    if name in known:
        return known[name]
    if path.is_file():
        raise BertJaxError(f"{path} is not a Python file; give FILE.py or FILE.py:NAME")
    raise BertJaxError(
        f"no config file {location}; give FILE.py or FILE.py:NAME, or one of {', '.join(known)}, which are installed"
    )


def bundled_config_paths() -> dict[str, Path]:
    """Return the package's config files by name: those of the checkout, or else the installed ones."""
    if (ROOT / "pyproject.toml").is_file() and (ROOT / "configs").is_dir():
        paths = sorted((ROOT / "configs").glob("*.py"))
    else:
        paths = installed_files()
    return {path.stem: path for path in paths if path.is_file()}


def installed_files() -> list[Path]:
    try:
        files = metadata.files("bert-jax") or ()
    except metadata.PackageNotFoundError:  # the package was copied, not installed
        return []
    return [Path(str(f.locate())).resolve() for f in files if f.match("share/bert-jax/configs/*.py")]


def bundled_configs() -> list[BundledConfig]:
    """Return the config files that come with the package, sorted by name."""
    modules = {name: load_config_module(path) for name, path in sorted(bundled_config_paths().items())}
    return [
        BundledConfig(name, (module.__doc__ or "").partition("\n")[0], getattr(module, "names", dict)())
        for name, module in modules.items()
    ]


def load_config_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bert_jax_config", path)
    assert spec and spec.loader  # true for every file whose name ends in .py
    module = importlib.util.module_from_spec(spec)
    with errors_in_config(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def errors_in_config(path: Path) -> Iterator[None]:
    """Report any error of the user's config file as one line with its line number, without our traceback."""
    try:
        yield
    except BertJaxError:
        raise
    except Exception as error:
        line = line_in(path, error)
        raise BertJaxError(f"{path}{f':{line}' * bool(line)}: {type(error).__name__}: {error}") from error


def line_in(path: Path, error: Exception) -> int | None:
    """Return the file's innermost line in the traceback, or else the line of a SyntaxError; None without either."""
    own = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if Path(frame.f_code.co_filename).resolve() == path.resolve()
    ]
    if own:
        return own[-1]
    return error.lineno if isinstance(error, SyntaxError) else None
