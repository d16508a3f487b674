"""Run a comparison."""

import os
import sys

from bert_jax.command.main import interruptible, quiet_libraries
from bert_jax.core.errors import BertJaxError
from bert_jax.core.memory import use_large_pages
from tests.bench.command import make_parser


def main(argv: list[str] | None = None) -> int:
    args = make_parser().parse_args(sys.argv[1:] if argv is None else argv)
    quiet_libraries()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", "")  # the first calls compile
    # Several processes use a GPU in turn, so each allocates memory as needed.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        with interruptible():
            args.run(args)
    except BertJaxError as error:
        if args.debug:
            raise
        print(f"tests.bench {args.choice}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        return 128 + (interrupt.args or (2,))[0]
    return 0


if __name__ == "__main__":
    use_large_pages()
    sys.exit(main())
