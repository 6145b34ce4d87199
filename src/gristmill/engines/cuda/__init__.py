"""An engine for NVIDIA GPUs: the native engine's tokenizers in tables, CUDA kernels over batches of
documents.

Nothing here imports a GPU package but `cupy_device`, and nothing imports that but `open_cuda`, when it is
asked for.
"""
