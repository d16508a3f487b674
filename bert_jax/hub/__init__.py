"""Read and write model directories in the layouts that other tools read and write."""
