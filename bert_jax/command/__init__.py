"""The command line: `bert-jax VERB`."""
