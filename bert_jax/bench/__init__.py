"""The measurements of `bert-jax bench`, and what they share."""
