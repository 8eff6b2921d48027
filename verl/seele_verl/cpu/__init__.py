"""What the released verl and vLLM need to run on a machine without accelerator.

Small pieces, each naming the upstream line that makes it necessary. ``plugin`` switches them on in
processes that verl is imported in, and only where ``VERL_PLATFORM=cpu`` (set by ``hardware=cpu``). On a GPU
nothing here does anything. What vLLM needs is in ``seele_verl.engine.plugin``.
"""
