"""Fixes that the released verl needs to run on a machine without an accelerator.

Each names the upstream line that makes it necessary. ``plugin`` enables them in processes that import verl,
and only where ``VERL_PLATFORM=cpu`` (set by ``hardware=cpu``). On a GPU nothing here has any effect. Fixes
for vLLM are in ``seele_verl.engine.plugin``.
"""

# VERL_ENGINE_DEVICE: verl/workers/engine/fsdp/transformer_impl.py registers its engine for ["cuda", "npu"]
# only, although FSDP2 runs on any device; verl/workers/engine/base.py lets this variable choose the
# registration.
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "seele_verl.cpu.plugin,seele_verl.cpu.speed",
    "VERL_ENGINE_DEVICE": "cuda",
}
"""The environment of every CPU process that imports verl; hardware/cpu.yaml passes the same to Ray."""
