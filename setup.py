"""Packaging of Scopeline: dependency ranges and entry points; exact versions are in uv.lock."""

from setuptools import find_packages, setup

INSTALL_REQUIRES = [
    # The pipeline: these release together and are only tested together; their insides are touched
    # in components/compat/.
    "tfx>=1.21,<1.22",
    "tensorflow-transform>=1.21,<1.22",
    "tensorflow-data-validation>=1.21,<1.22",
    "tensorflow-model-analysis>=0.52,<0.53",
    "ml-metadata>=1.21,<1.22",
    "tfx-bsl>=1.21,<1.22",
    # Its insides are touched in components/compat/: the minor version that was tested.
    "apache-beam>=2.77,<2.78",
    # The training stack: legacy Keras is what every tf.distribute strategy works with. Its insides
    # are touched in trainer_module/compat/: the minor version that was tested.
    "tensorflow>=2.21,<2.22",
    "tf-keras>=2.21,<2.22",
    "tensorboard>=2.20,<3",
    # Everything else: see docs/dependencies.md for one line of why each.
    "cronsim>=2.6,<3",
    "filelock>=3.16,<5",
    "h5py>=3.10,<4",
    "httptools>=0.6,<1",
    "kfp>=2.16,<2.17",
    "kfp-server-api>=2.16,<3",
    "kfp-kubernetes>=2.16,<2.17",
    "kubernetes>=26,<36",
    "numpy>=1.26,<3",
    # A study goes on after a kill by what its storage does: the minor version that was tested.
    "optuna>=5.0,<5.1",
    "orjson>=3.10,<4",
    "pillow>=10.1,<13",
    "prometheus-client>=0.20,<1",
    "psutil>=5.9,<8",
    "pyarrow>=14,<25",
    "pydantic>=2.9,<3",
    "PyMySQL>=1.1,<2",
    "PyYAML>=6,<7",
    "rich>=13,<16",
    "requests>=2.31,<3",
    "safetensors>=0.5,<1",
    "scikit-learn>=1.5,<2",
    "starlette>=0.40,<2",
    "tensorflow-text>=2.21,<2.22",
    "tzdata",
    "typer>=0.15,<1",
    "urllib3>=1.26,<3",
    # Its connections are ours, by its insides: the minor version that was tested.
    "uvicorn>=0.54,<0.55",
    "uvloop>=0.20,<1",
    "ydf>=0.16,<0.17",
]

OPTIMIZE_REQUIRES = [
    "ai-edge-litert>=2,<3",
    "onnx>=1.17,<2",
    "onnxruntime>=1.20,<2",
    # Its insides are touched in trainer_module/compat/: the minor version that was tested.
    "tensorflow-model-optimization>=0.8,<0.9",
    "tf2onnx>=1.17,<2",
]

CONTROL_REQUIRES = ["gymnasium>=1.2,<2"]

setup(
    packages=[
        *find_packages(include=["pipeline*", "components*", "trainer_module*"]),
        # Data only: the worked examples, which the runner's defaults name.
        "configs",
    ],
    py_modules=["kubeflow_runner", "local_runner"],
    package_data={"configs": ["*.yaml"]},
    install_requires=INSTALL_REQUIRES,
    extras_require={
        # TensorFlow's CUDA libraries, gigabytes that machines without a GPU do without.
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        # What the section `optimize` makes models smaller with, and runs them by.
        "optimize": OPTIMIZE_REQUIRES,
        # Fetches a BERT by its name on Hugging Face's hub.
        "hub": ["huggingface-hub>=2.4,<3"],
        # The environments that a task `control` learns in, and is judged in.
        "control": CONTROL_REQUIRES,
    },
    entry_points={
        "console_scripts": [
            "scopeline=local_runner:main",
            "scopeline-kubeflow=kubeflow_runner:main",
        ]
    },
)
