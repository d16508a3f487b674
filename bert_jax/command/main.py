"""`bert-jax VERB`: parse the flags and call the verb's function. Each verb is a file of this folder."""

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from keyword import iskeyword
from multiprocessing import popen_spawn_posix

from bert_jax import __version__
from bert_jax.command.flags import Parser, Verb
from bert_jax.core.arguments import use_config_spelling
from bert_jax.core.compilation_cache import avoid_missing_tpu, enable_compilation_cache
from bert_jax.core.errors import BertJaxError, explain_os_error, first_line, one_line, suggest_name
from bert_jax.core.memory import use_large_pages
from bert_jax.core.terminal import print_line

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Files in which no exception may be raised: NumPy prints the traceback of an import that is interrupted, and a process
# that is being started would get only a part of its start data.
UNINTERRUPTED = {"<frozen importlib._bootstrap>", popen_spawn_posix.__file__}
WITHOUT_JAX = ("jax", "flax", "optax", "orbax", "ml_collections")  # what launch/light.sh leaves out
MEMORY_REMEDY = "take a smaller batch, shorter texts or a smaller model, or a machine with more memory"
GROUPS = {
    "text": ("vocab", "prepare", "inspect"),
    "train": ("config", "train", "preflight", "export", "pairs", "mine"),
    "use": ("predict", "embed", "rerank", "fill-mask", "score"),
    "search": ("index", "search"),
    "serve": ("serve",),
    "check": ("evaluate", "info", "check", "bench", "import"),
}


def verb_of(name: str) -> Verb:
    """Return the verb of a file of this folder: `fill-mask` of fill_mask.py, `import` of import_.py."""
    file = name.replace("-", "_") + "_" * iskeyword(name)
    return getattr(import_module(f"bert_jax.command.{file}"), file)


VERBS = {name: verb_of(name) for group in GROUPS.values() for name in group}


def make_parser(name: str) -> Parser:
    parser = Parser(prog=f"bert-jax {name}", **VERBS[name].help_texts)
    VERBS[name].add_to_parser(parser)
    return parser


def quiet_libraries() -> None:
    """Suppress TensorFlow's log lines, and libtpu's where there is no TPU."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    avoid_missing_tpu()


def print_verbs() -> None:
    width = max(map(len, VERBS))
    print("usage: bert-jax VERB [...]\n\nBERT in JAX, from raw text to predictions.")
    for group, names in GROUPS.items():
        print(f"\n{group}:")
        for name in names:
            print(f"  {name:<{width}}  {VERBS[name].summary}")
    print("\nbert-jax VERB --help shows a verb's flags and an example.")


def command() -> int:
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        # Before and after the work, Ctrl-C has nothing to clean up and should show no traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] in (["train"], ["bench"]):
        use_large_pages()
    try:
        code = main()
    except BrokenPipeError:  # the reader of our output has exited (`| head`)
        end_output()
        code = 128 + signal.SIGPIPE
    except Exception:
        if not is_joined():
            raise
        traceback.print_exc()
        code = 1
    if code and is_joined():
        # A normal exit would wait for the other processes of the run, for minutes, and they wait for this one.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def is_joined() -> bool:
    """Whether this process still belongs to several that run together."""
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        print_verbs()
        return 0
    if argv[0] == "--version":
        print(f"bert-jax {__version__}")
        return 0
    if argv[0] not in VERBS:
        hint = suggest_name(argv[0], VERBS, "the verbs", most=len(VERBS))
        print(f'bert-jax: no verb "{one_line(argv[0], 60)}"; {hint}', file=sys.stderr)
        return 2
    name = f"bert-jax {argv[0]}"
    args = make_parser(argv[0]).parse_args(argv[1:])
    quiet_libraries()
    if argv[0] in ("bench", "preflight"):  # they measure compilation, or compile for another machine
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")
    else:
        enable_compilation_cache()
    if sys.stdout is None:  # the first file opened would get its file descriptor, and all that is printed
        print(f"{name}: standard output is closed; redirect it to a file or to /dev/null", file=sys.stderr)
        return 1
    try:
        written = use_config_spelling() if "config" in args else nullcontext()
        with interruptible(), written, warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print_line(f"{name}: {one_line(message)}", sys.stderr)
            args.run(args)
            sys.stdout.flush()
    except BertJaxError as error:
        if args.debug:
            raise
        print_line(f"{name}: {error}", sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        raise
    except Exception as error:
        explanation = None if args.debug else explain_error(error)
        if explanation is None:
            raise
        print_line(f"{name}: {explanation}", sys.stderr)
        end_output()
        return explanation.exit_code
    except KeyboardInterrupt as interrupt:
        if args.debug:
            raise
        return 128 + (interrupt.args or (signal.SIGINT,))[0]
    return 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the context, Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt(signal number), again every 2 seconds.

    It is repeated because Python drops an exception raised in a callback of the garbage collector, such as JAX has.
    """
    received = []

    def interrupt(number, frame):
        received.append(number)
        if any(caller.f_code.co_filename in UNINTERRUPTED for caller, _ in traceback.walk_stack(frame)):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        signal.setitimer(signal.ITIMER_REAL, 2)
        raise KeyboardInterrupt(received[0])

    def report_others(unraisable):
        # After a failed save an event loop may report that it is closed; the failure itself is reported elsewhere.
        is_closed_loop = str(unraisable.exc_value) == "Event loop is closed"
        if unraisable.exc_type is not KeyboardInterrupt and not is_closed_loop:
            sys.__unraisablehook__(unraisable)

    # `nohup` has set SIGHUP to be ignored.
    numbers = [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in (*numbers, signal.SIGALRM)}
    sys.unraisablehook = report_others
    try:
        yield
    except Exception as error:
        if received:  # modules and libraries turn an interrupt into errors of their own
            raise KeyboardInterrupt(received[0]) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = sys.__unraisablehook__
        for number, handler in before.items():
            signal.signal(number, handler)


def end_output() -> None:
    """Flush standard output; if that fails, write nothing more to it, not even at interpreter exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain_error(error: Exception) -> BertJaxError | None:
    """Return an error with one line for the user; None for a bug in this program, which needs its traceback."""
    # An error of a file names the file; that of a connection has no name.
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
        return explain_os_error(error, error.filename or "standard output")
    if isinstance(error, ModuleNotFoundError) and error.name in WITHOUT_JAX:
        return BertJaxError(
            f"{error.name} is not installed here, so only embed, predict, rerank, search and evaluate work, with "
            "--engine onnxruntime or with static embeddings; install the whole package for all"
        )
    text = str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return BertJaxError(f"out of memory ({first_line(error)}); {MEMORY_REMEDY}")
    if "jax" in sys.modules and not has_device():
        asked = os.environ.get("JAX_PLATFORMS", "")
        named = f" {asked!r:.40}" if asked else ""
        remedy = "unset JAX_PLATFORMS" if asked else "set JAX_PLATFORMS=cpu"
        return BertJaxError(
            f"JAX finds no device{named} here; {remedy}, or install the build of JAX for your device"
        )
    return None


def has_device() -> bool:
    import jax

    try:
        return bool(jax.devices())
    except Exception:  # most platforms raise a RuntimeError, others a bare AssertionError
        return False
