"""Models as files of other programs: ONNX graphs, written layer by layer, and StableHLO programs, traced by JAX."""
