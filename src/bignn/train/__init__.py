"""Training: the loop, its batches, checkpoints, teachers and recipes.

Empty on purpose: recipes are plain data, and importing them must not import torch.
"""
