"""Methods, one short file each: what it composes and how it differs. The YAML file of the same name has the
numbers.
"""

from seele.config import SeeleConfig
from seele.errors import ConfigError
from seele.methods import (
    adaback,
    adaprefix,
    adhint,
    asymre,
    bread,
    cispo,
    dapo,
    drgrpo,
    exgrpo,
    ghpo,
    grpo,
    gspo,
    luffy,
    mfc,
    milestones,
    opmd,
    opsd,
    pope,
    ppo,
    prefix_rft,
    prefix_rl,
    relift,
    rl_sft_loss,
    rloo,
    sage,
    scaf_grpo,
    seele,
    seele_paper,
    sft,
    sft_rl,
    trapo,
    uft,
)
from seele.methods.method import Method

METHODS: dict[str, Method] = {
    module.METHOD.name: module.METHOD
    for module in (
        seele,
        seele_paper,
        grpo,
        drgrpo,
        rloo,
        ppo,
        dapo,
        gspo,
        cispo,
        asymre,
        opmd,
        luffy,
        milestones,
        rl_sft_loss,
        uft,
        prefix_rft,
        trapo,
        adaback,
        adaprefix,
        mfc,
        adhint,
        ghpo,
        sage,
        scaf_grpo,
        bread,
        prefix_rl,
        pope,
        exgrpo,
        opsd,
        relift,
        sft,
        sft_rl,
    )
}


def check_method(config: SeeleConfig) -> Method:
    """Return the run's method after checking that the settings fit it.

    Raises:
        ConfigError: The method is unknown, or a setting contradicts it.
    """
    if config.method not in METHODS:
        raise ConfigError(f"seele.method: unknown method {config.method!r}; allowed are {sorted(METHODS)}")
    method = METHODS[config.method]
    method.check(config)
    return method


__all__ = ["METHODS", "Method", "check_method"]
