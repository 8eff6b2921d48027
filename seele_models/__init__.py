"""Small models, made here on a CPU in minutes, so that every command can be tried without a download.

Start at ``training.py``; the command is ``seele model base --task chains --out models``. Pretrained models
come by ``seele model fetch`` (``pretrained.py``) and are taught a form of answers by
``seele model warm-start`` (``warm_start.py``).
"""
