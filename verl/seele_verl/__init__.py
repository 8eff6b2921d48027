"""SEELE on the released verl: the only code that names verl, Ray, vLLM or FSDP."""
