import sys

from bert_jax.command.main import main

sys.exit(main())
