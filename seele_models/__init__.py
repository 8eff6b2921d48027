"""Small models, made here on a CPU in minutes, so that every command can be tried without a download.

Start at ``base.py``: a folder for a recipe. ``seele model base --task chains --out models`` is its command.
"""
