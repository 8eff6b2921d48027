"""What a GPU node is made to do before a long run: a module each, with ``check(device, ...) -> str``.

``python -m seele_verl.gpu_check`` runs them all, each in a process of its own with a time limit. A check
returns what it measured, or raises ``CheckFailed``. With ``--device cpu`` they run on a CPU, which tests the
checks.
"""
