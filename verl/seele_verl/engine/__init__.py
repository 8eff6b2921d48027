"""vLLM as verl's rollout engine: a round as one call, seeded sampling, and the weights' socket."""
