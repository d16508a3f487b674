"""What TPU chips can do, and what a run costs on a slice of them."""
