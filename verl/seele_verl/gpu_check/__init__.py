"""Checks of a GPU node before a long run: one module each, with ``check(device, ...) -> str``.

``python -m seele_verl.gpu_check`` runs them all, each in its own process with a time limit. A check returns
what it measured, or raises ``CheckFailed``. With ``--device cpu`` they run on a CPU, which tests the checks
themselves.
"""
