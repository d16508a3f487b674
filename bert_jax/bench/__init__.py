"""What `bert-jax bench` measures, one file each."""
