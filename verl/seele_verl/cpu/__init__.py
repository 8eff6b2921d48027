"""What the released verl and vLLM need to run on a machine without accelerator.

Small pieces, each naming the upstream line that makes it necessary. ``plugin`` switches them on in
processes that verl is imported in, and only where ``VERL_PLATFORM=cpu`` (set by ``hardware=cpu``). On a GPU
nothing here does anything. What vLLM needs is in ``seele_verl.engine.plugin``.
"""

# VERL_ENGINE_DEVICE: verl/workers/engine/fsdp/transformer_impl.py registers its engine for ["cuda", "npu"]
# only, although FSDP2 runs on any device; verl/workers/engine/base.py lets this variable choose the
# registration.
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "seele_verl.cpu.plugin,seele_verl.cpu.speed",
    "VERL_ENGINE_DEVICE": "cuda",
}
"""The environment of every CPU process that imports verl; hardware/cpu.yaml hands the same to Ray."""
