"""Compiled programs as files: a later process loads them, and neither traces nor compiles.

They stand beside those of JAX's own cache, which are found only after a program is traced, and are trusted as they are:
a program is code, so a folder in which others may write is not read.
"""

import os
import pickle
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.core.kept_folder import HASH, PACKAGE, device_facts, hash_sources, kept_folder
from bert_jax.core.processor import cores, processor_flags
from bert_jax.models.kernels.kernel_choice import choose_kernel

SUFFIX = ".program"
VARIABLES = "XLA_", "LIBTPU_", "TPU_", "NPROC"  # what their names begin with
# Parts of the names of settings by which no program differs.
OF_CACHES = "compilation_cache", "persistent_cache"
SOURCES = "models/**/*.py", "inference/programs.py"  # what is computed


def program_file(program: object, block: type) -> Path | None:
    """Return where a program is kept, which is named by all that it depends on; None if it is not kept, as where its
    block is a user's, whose code may change."""
    folder, code = kept_folder(), getattr(sys.modules[block.__module__], "__file__", None)
    if folder is None or code is None or not Path(code).is_relative_to(PACKAGE):
        return None
    settings = [
        (name, getattr(jax.config, name, value))  # in this thread
        for name, value in sorted(jax.config.values.items())
        if not any(part in name for part in OF_CACHES)
    ]
    variables = sorted((name, value) for name, value in os.environ.items() if name.startswith(VARIABLES))
    facts = repr((program, settings, variables, machine(), hash_sources(*SOURCES)))
    return folder / f"{HASH(facts.encode()).hexdigest()}{SUFFIX}"


@cache
def machine() -> tuple:
    flags = sorted(processor_flags()) if jax.default_backend() == "cpu" else []
    return device_facts(), jax.local_devices()[0].id, cores(), flags


def load_program(file: Path) -> jax.stages.Compiled | None:
    """Return the program of a file; None if there is none that is whole, or if it has other kernels than are taken."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    with suppress(OSError):  # of a disk that is read only
        os.utime(file)  # the programs that were not used for longest are removed first
    size = HASH().digest_size
    digest, payload = content[:size], content[size:]
    if hash_of(file, payload) != digest:
        return None
    (program, inputs, outputs), kernels, devices = pickle.loads(payload)
    if any(choose_kernel("auto", request) != name for request, name in kernels.items()):
        return None
    try:
        return deserialize_and_load(program, inputs, outputs, execution_devices=jax.local_devices()[:devices])
    except jax.errors.JaxRuntimeError:  # of another build of the compiler
        return None


def save_program(file: Path, program: jax.stages.Compiled, kernels: dict) -> None:
    """Keep a program, with the attention kernels that were chosen for it, and remove others if there are too many. One
    that finds no room is compiled again next time.

    On a CPU the file of a program that came from JAX's own cache lacks functions, which is noticed when it runs: this
    takes only what was compiled here."""
    devices = jax.tree.leaves(program.output_shardings)[0].device_set
    payload = pickle.dumps((serialize(program), kernels, len(devices)))
    with suppress(OSError, BertJaxError):
        write_atomically(file, hash_of(file, payload) + payload)
        remove_oldest(file.parent, jax.config.jax_compilation_cache_max_size)


def hash_of(file: Path, payload: bytes) -> bytes:
    return HASH(file.name.encode() + payload).digest()


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the programs that were not used for longest, until the others have at most so many bytes; -1: no limit."""
    files = [
        (status.st_mtime, status.st_size, file)
        for file in folder.glob(f"*{SUFFIX}")
        if (status := file.stat())
    ]
    left = sum(size for _, size, _ in files)
    for _, size, file in sorted(files) if most_bytes >= 0 else ():
        if left <= most_bytes:
            return
        file.unlink(missing_ok=True)
        left -= size
