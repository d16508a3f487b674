"""The process that fork_pool.py starts. Requests come on standard input.

{"run": [...], "output": FILE} forks a command and is answered with its number, {"wait": NUMBER} with its exit status.
"""

import json
import os
import sys


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitpid(request["wait"], 0)[1], flush=True)
            continue
        number = os.fork()
        if not number:
            return become(request["run"], request["output"])
        print(number, flush=True)
    return None


def become(arguments: list[str], output: str) -> None:
    from bert_jax.command.main import command

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    sys.argv = ["bert-jax", *arguments]
    sys.exit(command())


if __name__ == "__main__":
    import bert_jax.command.train
    import bert_jax.data.corpus.prepare
    import bert_jax.hub.extend_vocabulary
    import bert_jax.report.prediction_page
    import bert_jax.tasks.classify
    import bert_jax.tasks.pretrain
    import bert_jax.text.host_tensorflow  # noqa: F401

    serve()
