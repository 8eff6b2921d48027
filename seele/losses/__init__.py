"""Loss terms in plain torch. The only part of ``seele`` that imports torch."""
