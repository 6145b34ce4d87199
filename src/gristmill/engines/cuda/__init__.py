"""An engine for NVIDIA GPUs: the native engine's tokenizers in tables, CUDA kernels over batches of
documents.

Nothing here imports a GPU package but `cupy_device`, which is imported when a GPU is asked for.
"""

RUN_BATCH_BYTES = 8 << 20
"""Of a block of a run. Larger ones take longer to fill, smaller ones keep the interpreter busier."""
