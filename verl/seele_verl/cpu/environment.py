"""The environment of every CPU process that imports verl; hardware/cpu.yaml hands the same to Ray."""

# VERL_ENGINE_DEVICE: verl/workers/engine/fsdp/transformer_impl.py registers its engine for ["cuda", "npu"]
# only, although FSDP2 runs on any device; verl/workers/engine/base.py lets this variable choose the
# registration.
ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "seele_verl.cpu.plugin,seele_verl.cpu.speed",
    "VERL_ENGINE_DEVICE": "cuda",
}
