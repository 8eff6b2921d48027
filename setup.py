"""One distribution, four import packages, each standing where its readers look for it.

    seele        seele/                        the method, free of engines
    seele_models seele_models/                 small models: made on a CPU, or fetched
    seele_verl   verl/seele_verl/              the trainer layer on the released verl
    seele_eval   simpleRL-reason/seele_eval/   evaluation

``verl/`` and ``simpleRL-reason/`` are plain folders without ``__init__.py``: that way ``import verl`` means
the released package, also from the root of a checkout. Hence ``find_packages`` per folder, and never
``find_namespace_packages``.

The dependencies below are those of the core. What training needs is pinned in requirements.txt (GPU) and
requirements-cpu.txt (CPU), which scripts/setup.sh installs: the two stacks exclude each other.
"""

from setuptools import find_packages, setup

FOLDERS = {"seele": ".", "seele_models": ".", "seele_verl": "verl", "seele_eval": "simpleRL-reason"}

setup(
    name="seele",
    version="0.1.0",
    description="Hinted reinforcement learning at the edge of what a language model can do, on verl",
    license="Apache-2.0",
    license_files=["LICENSE", "NOTICE"],
    python_requires=">=3.11,<3.13",
    packages=[
        found
        for package, folder in FOLDERS.items()
        for found in find_packages(folder, include=[package, f"{package}.*"])
    ],
    package_dir={package: f"{folder}/{package}" for package, folder in FOLDERS.items()},
    package_data={
        "seele": ["data/sources/*.yaml", "report/templates/*", "report/templates/browser/*"],
        "seele_models": ["weights/*.safetensors"],
        "seele_verl": ["config/**/*.yaml", "options/*.yaml"],
    },
    install_requires=[
        "numpy>=2.0",
        "scipy>=1.13",
        "pyarrow>=19.0",
        "pyyaml>=6.0",
        "matplotlib>=3.9",
        "jinja2>=3.1",
        "rich>=13.7",
        "typer>=0.12",
        "starlette>=0.40",
        "uvicorn>=0.30",
        "mathruler==0.1.0",
        # mathruler imports these three without declaring them.
        "sympy>=1.13",
        "pylatexenc>=2.10",
        "tqdm>=4.66",
    ],
    extras_require={
        "losses": ["torch>=2.11"],
        "notebooks": ["pandas>=2.2"],
        "math-verify": ["math-verify>=0.8"],
        "hub": ["datasets>=3.0", "httpx>=0.27", "huggingface-hub>=1.0"],
        "reasoning": ["reasoning-gym==0.1.25"],
        "tokens": ["transformers>=5.5.3"],
    },
    entry_points={
        "console_scripts": ["seele = seele.cli.main:main"],
        "seele.commands": [
            "train = seele_verl.train:main",
            "check = seele_verl.check:main",
            "eval = seele_eval.run:command",
            "merge = seele_verl.merge:main",
            "model = seele_models.command:main",
        ],
        "vllm.general_plugins": ["seele = seele_verl.engine.plugin:register"],
    },
)
