"""Commands in a process that cannot find the modules named as JSON: `python light.py MODULES COMMANDS`, a line of JSON
for each command with its exit code and what it said."""

import contextlib
import io
import json
import sys
from importlib.machinery import PathFinder

MODULES, COMMANDS = map(json.loads, sys.argv[1:])


class Others(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname in MODULES else super().find_spec(fullname, path, target)


sys.meta_path = [Others if finder is PathFinder else finder for finder in sys.meta_path]

if __name__ == "__main__":  # worker processes import this file
    from bert_jax.command.main import main

    for command in COMMANDS:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = main(command)
        print(json.dumps([code, output.getvalue()]), flush=True)
