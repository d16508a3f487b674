import sys

from bert_jax.command.main import command

sys.exit(command())
