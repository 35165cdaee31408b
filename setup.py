"""Packaging of Scopeline: dependency ranges and entry points; exact versions are in uv.lock."""

from setuptools import find_packages, setup

INSTALL_REQUIRES = [
    # The pipeline: Google releases and tests these versions together. components/compat/ uses
    # private names of the packages, so the minor versions are pinned.
    "tfx>=1.21,<1.22",
    "tensorflow-transform>=1.21,<1.22",
    "tensorflow-data-validation>=1.21,<1.22",
    "tensorflow-model-analysis>=0.52,<0.53",
    "ml-metadata>=1.21,<1.22",
    "tfx-bsl>=1.21,<1.22",
    # components/compat/ uses private names of Beam, so the minor version is pinned.
    "apache-beam>=2.77,<2.78",
    # The training stack: only legacy Keras works with every strategy of tf.distribute.
    # trainer_module/compat/ uses private names of Keras, so the minor version is pinned.
    "tensorflow>=2.21,<2.22",
    "tf-keras>=2.21,<2.22",
    "tensorboard>=2.20,<3",
    # The other dependencies: docs/dependencies.md gives the reason for each package.
    "cronsim>=2.6,<3",
    "filelock>=3.16,<5",
    "h5py>=3.10,<4",
    "httptools>=0.6,<1",
    "jinja2>=3.1,<4",
    "kfp>=2.16,<2.17",
    "kfp-server-api>=2.16,<3",
    "kfp-kubernetes>=2.16,<2.17",
    "kubernetes>=26,<36",
    "numpy>=1.26,<3",
    # Studies resume after a kill by internals of the storage, so the minor version is pinned.
    "optuna>=5.0,<5.1",
    "orjson>=3.10,<4",
    "packaging>=24.2",
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
    # The server uses private names of uvicorn, so the minor version is pinned.
    "uvicorn>=0.54,<0.55",
    "uvloop>=0.20,<1",
    "vl-convert-python>=1.7,<2",
    "ydf>=0.16,<0.17",
]

OPTIMIZE_REQUIRES = [
    "ai-edge-litert>=2,<3",
    "onnx>=1.17,<2",
    "onnxruntime>=1.20,<2",
    # trainer_module/compat/ uses private names of TFMOT, so the minor version is pinned.
    "tensorflow-model-optimization>=0.8,<0.9",
    "tf2onnx>=1.17,<2",
]

CONTROL_REQUIRES = ["gymnasium>=1.2,<2"]

setup(
    packages=[
        *find_packages(include=["pipeline*", "components*", "trainer_module*"]),
        # This package contains only data: the example configs, which are the runners' defaults, and
        # their JSON Schema.
        "configs",
    ],
    py_modules=["kubeflow_runner", "local_runner", "scopeline", "scopeline_programs"],
    package_data={
        "configs": ["*.yaml", "*.json"],
        "components.pages": ["templates/*"],
        "components.serving.server.page": ["page.*"],
        "pipeline.report": ["templates/*"],
    },
    install_requires=INSTALL_REQUIRES,
    extras_require={
        # TensorFlow's CUDA libraries take gigabytes, and only machines with a GPU need them.
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],
        # The section `optimize` converts models with these packages, and runs the variants.
        "optimize": OPTIMIZE_REQUIRES,
        # The run downloads a BERT by its name on Hugging Face's hub.
        "hub": ["huggingface-hub>=2.4,<3"],
        # `task: control` trains and evaluates in these environments.
        "control": CONTROL_REQUIRES,
    },
    entry_points={
        "console_scripts": [
            "scopeline=scopeline_programs:scopeline",
            "scopeline-kubeflow=scopeline_programs:scopeline_kubeflow",
        ]
    },
)
