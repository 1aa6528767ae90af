"""The digest of tensors: one definition, a plain-torch twin, a compiled path for CPUs and a kernel for NVIDIA GPUs.

Importing this package imports nothing else; `diagd.cuda_ext.digest` needs torch.
"""
