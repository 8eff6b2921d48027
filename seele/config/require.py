"""How a settings class says no."""


def require(condition: bool, message: str) -> None:
    """Raise ``ValueError``, which ``from_mapping`` turns into an error that names the section."""
    if not condition:
        raise ValueError(message)
