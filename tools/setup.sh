#!/usr/bin/env bash
# Creates the virtual environment from uv.lock. Needs only a Python with pip.
set -euo pipefail

venv=${1:-.venv}
cd "$(dirname "$0")/.."

if command -v uv >/dev/null; then
  uv=uv
elif [ -x .tools/bin/uv ]; then
  uv=.tools/bin/uv
else
  echo "set-up: getting uv"
  # --target leaves a system's own Python, which may be managed by its distribution, alone.
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --target .tools "uv>=0.5,<1"
  uv=.tools/bin/uv
fi

echo "set-up: installing the packages of uv.lock into $venv (minutes when none are cached)"
# Compiled bytecode: TFX then imports in 10 s instead of 30. The platform: two wheels ask for a
# newer glibc than they need, which the next step mends.
UV_PROJECT_ENVIRONMENT=$venv "$uv" sync --locked --quiet --compile-bytecode \
  --python-platform x86_64-manylinux_2_39
"$venv/bin/python" tools/relax_glibc.py "$("$venv/bin/python" -c \
  'import sysconfig; print(sysconfig.get_path("purelib"))')"
touch "$venv/.ready"
