#!/usr/bin/env bash
# Creates the virtual environment from uv.lock. The script needs only Python with pip, or uv.
set -euo pipefail

venv=${1:-.venv}
cd "$(dirname "$0")/.."

pythons="Python 3.11, 3.12 or 3.13"

fail() {
  echo "set-up: $1" >&2
  exit 1
}

machine="$(uname -s) on $(uname -m)"
[ "$machine" = "Linux on x86_64" ] ||
  fail "this is $machine, but the wheels of TFX exist for Linux on x86_64 alone; use a machine or container with Linux on x86_64"

if command -v uv >/dev/null; then
  uv=uv
elif [ -x .tools/bin/uv ]; then
  uv=.tools/bin/uv
else
  command -v python3 >/dev/null ||
    fail "python3 is missing; install $pythons with pip (Debian and Ubuntu: apt-get install python3-pip)"
  python3 -m pip --version >/dev/null 2>&1 ||
    fail "$(command -v python3) has no pip; install it (Debian and Ubuntu: apt-get install python3-pip)"
  echo "set-up: getting uv"
  # --target does not change a Python that the distribution manages.
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    --target .tools "uv>=0.5,<1" ||
    fail "uv could not be installed, for the reason that pip gives above"
  uv=.tools/bin/uv
fi

echo "set-up: installing the packages of uv.lock into $venv (minutes when none are cached: about 1 GB is downloaded)"
# Compiled bytecode reduces the import time of TFX from 30 s to 10 s. The platform is set because two
# wheels declare a newer glibc than they need, which the next step corrects.
quiet=--quiet
[ ! -t 2 ] || quiet=  # uv shows its progress on a terminal.
if ! UV_PROJECT_ENVIRONMENT=$venv "$uv" sync --locked --extra optimize --extra hub --extra control $quiet \
  --compile-bytecode --python-platform x86_64-manylinux_2_39; then
  "$uv" python find >/dev/null 2>&1 ||
    fail "no $pythons was found here, and uv could not download one; install one of them"
  fail "the packages could not be installed, for the reason that uv gives above"
fi
# -P: the folder of the module, which has names of libraries, is not searched for imports.
"$venv/bin/python" -P components/compat/older_linux.py
touch "$venv/.ready"
