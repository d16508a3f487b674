import atexit
import dataclasses
import datetime
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.cases import SEED, draw

# Before JAX is imported: tests run on the CPU, also where libtpu is installed and there is no TPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A program that one test compiled serves all others, also those in processes of their own.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    programs = os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="bert-jax-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, programs, ignore_errors=True)

# All workers draw the same cases.
os.environ.setdefault(SEED, str(datetime.date.today()))

# A shell starts what runs in its background deaf to Ctrl-C, and nohup to the end of the terminal; so would be all that
# the tests start.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


HERE = Path(__file__).parent
# The files that take longest begin first, so that no process ends with one of them while the other is idle.
LONGEST = {
    "docs/test_pages.py",
    "hub/families/test_reference.py",
    "hub/families/test_packed_rows.py",
    "training/test_meshes.py",
    "training/test_processes.py",
    "finetuning/test_cross_validation.py",
    "runs/test_interruptions.py",
    "tasks/test_electra.py",
    "tasks/test_embed.py",
    "docs/test_light.py",
    "training/test_checkpoint.py",
    "training/test_whole_batch_loss.py",
    "cluster/test_cluster.py",
}

# Files whose slow tests every run has: what the project is for, and what must not break for a day.
ALWAYS = {
    "docs/test_pages.py",
    "finetuning/test_finetune.py",
    "inference/test_answers.py",
    "models/test_reference.py",
    "runs/test_interruptions.py",
    "search/test_index.py",
    "serve/test_curl.py",
    "tasks/test_pretrain.py",
    "training/test_meshes.py",
}
assert all((HERE / name).is_file() for name in ALWAYS | LONGEST), "a file has another name"
DRAWN = 0.15  # the share of the other files whose slow tests a run has
DRAWS = "BERT_JAX_TESTS_DRAW"
MOST_RESIDENT = 1.5e9  # bytes of a worker's memory that a file may leave to the next


def names_long(markexpr: str) -> bool:
    """Return whether `-m` asks for what is marked long."""
    return bool(re.search(r"(?<!not )\blong\b", markexpr))


def pytest_addoption(parser):
    parser.addoption(
        "--whole", action="store_true", help="run the slow tests of all files, not of those drawn"
    )


def pytest_configure(config):
    """Files are drawn where neither files nor long tests are named. Workers are told by the environment: to them, the
    first process names all files."""
    if not hasattr(config, "workerinput"):
        is_suite = config.args_source is not pytest.Config.ArgsSource.ARGS
        is_whole = config.option.whole or names_long(config.option.markexpr)
        os.environ[DRAWS] = "yes" if is_suite and not is_whole else ""


def slow_tests_not_drawn(items) -> list:
    slow = [item for item in items if item.get_closest_marker("slow")]
    files = sorted({str(item.path.relative_to(HERE)) for item in slow} - ALWAYS)
    chosen = ALWAYS.union(draw(files, round(DRAWN * len(files))))
    return [item for item in slow if str(item.path.relative_to(HERE)) not in chosen]


def leave_out(config, items, some) -> None:
    config.hook.pytest_deselected(items=some)
    out = {*some}
    items[:] = [item for item in items if item not in out]


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(config, items):
    """What is marked ci is slow, too. What is marked long runs only if that mark is named, whatever `-m` selects."""
    for item in items:
        if item.get_closest_marker("ci"):
            item.add_marker("slow")
    if os.environ[DRAWS]:
        leave_out(config, items, slow_tests_not_drawn(items))
    items.sort(key=lambda item: str(item.path.relative_to(HERE)) not in LONGEST)
    if "long" not in config.option.markexpr:
        leave_out(config, items, [item for item in items if item.get_closest_marker("long")])


def pytest_collection_finish():
    """What was imported stays: it is not looked through at the end of each file."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"the same cases are drawn with {SEED}={os.environ[SEED]}")
    if os.environ[DRAWS]:
        terminalreporter.write_line(f"slow tests of {DRAWN:.0%} of the files were drawn; --whole runs all")


@pytest.fixture(scope="module", autouse=True)
def quick_to_compile(request):
    """Programs that run a few steps need no optimization, but in files that are about those that users run."""
    import jax

    optimized = request.node.get_closest_marker("optimized")
    jax.config.update("jax_disable_most_optimizations", not optimized)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module", autouse=True)
def programs_end_with_a_file():
    """A worker would keep those of all files, which are gigabytes; what two files need is in the cache on the disk."""
    yield
    statm = Path("/proc/self/statm")  # of Linux
    if statm.exists() and int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") < MOST_RESIDENT:
        return
    import jax

    from bert_jax.core.memory import return_freed_memory

    if inference := sys.modules.get("bert_jax.inference.programs"):
        inference.PROGRAMS.clear()
    jax.clear_caches()
    gc.collect()
    return_freed_memory()


@pytest.fixture
def executables(tmp_path):
    """The folder of kept programs and kernel choices, which is empty."""
    import jax

    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path / "executables"
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture(scope="module")
def shared_steps():
    """Runs of a file share the steps that are compiled, where they may, as those of a sweep do."""
    from bert_jax.training import loop

    cache = loop.StepCache()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "StepCache", lambda: cache)
        yield


@pytest.fixture(scope="session", autouse=True)
def rows_are_packed():
    """Models of tests are so narrow that attention outweighs their products: no row would hold two texts."""
    from bert_jax.data.examples.row_packing import COSTS

    COSTS["cpu"] = dataclasses.replace(COSTS["cpu"], attention=1.0)


# What several files share. Models are made once in a process: tests only read them.


@pytest.fixture(scope="session")
def encoder_path(tmp_path_factory):
    """A model directory of one layer with initial values."""
    from tests.support.tiny_encoder import save_encoder

    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def teacher_path(tmp_path_factory):
    """The model directory of a trained classifier of two layers."""
    from tests.support.distillation_runs import train_teacher

    return train_teacher(tmp_path_factory.mktemp("teacher"))


@pytest.fixture(scope="session")
def headed_model(tmp_path_factory):
    """(head, labels, changes of config.json) -> a model directory with that head."""
    from tests.support.small_models import edit_config, write_model

    def save(head, labels=(), **config):
        path = tmp_path_factory.mktemp("model")
        write_model(path, heads=(head,), labels=labels)
        edit_config(path, **config)
        return path

    return save


@pytest.fixture(scope="session")
def small_classifier(headed_model):
    import bert_jax

    return bert_jax.load(headed_model("classify", ("no", "yes", "maybe")))


@pytest.fixture
def stdin_pipe(monkeypatch):
    from tests.support.standard_input import piped_stdin

    with piped_stdin(monkeypatch) as lines:
        yield lines
