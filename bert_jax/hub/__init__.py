"""Hub: a model directory in and out, in the layouts other tools read and write."""
