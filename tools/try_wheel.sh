#!/usr/bin/env bash
# Installs the wheel with a line of the README, and goes from a CSV file to a served answer.
#
#   try_wheel.sh uv|pip|pipx    on a machine of tools/fresh_machine.sh, beside dist/ and README.md
set -euo pipefail
cd "$(dirname "$0")"
tool=$1

fail() {
  echo "try wheel: $1" >&2
  exit 1
}

if [ "$tool" != pip ]; then
  # Debian's own packages, which pip cannot replace, would conflict with those of pipx.
  python3 -m venv "tools-$tool"
  "tools-$tool/bin/pip" install --quiet "$tool"
  PATH=$PWD/tools-$tool/bin:$PATH
fi
install=$(sed ':line; /\\$/ { N; s/\\\n *//; b line }' README.md |
  grep -m 1 -E "^$tool (tool )?install .*scopeline") ||
  fail "README.md has no line that begins with '$tool ... install'"
if [ "$tool" = pip ]; then
  python3 -m venv environment
  PATH=$PWD/environment/bin:$PATH
fi
PATH=$HOME/.local/bin:$PATH
echo "+ $install"
eval "$install"

python=$(sed -n '1s/^#!//p' "$(command -v scopeline)")
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir empty && cd empty
set -x
scopeline --version
scopeline-kubeflow --version
"$python" -m scopeline --version
scopeline doctor --fix
touch installed
scopeline run

"$python" - <<'CSV'
import random

random.seed(1)
with open("customers.csv", "w") as file:
    file.write("age,plan,calls,churned\n")
    for _ in range(2000):
        age, calls, plan = random.randint(18, 90), random.randint(0, 12), random.choice("ABC")
        churned = "yes" if random.random() < 0.05 + 0.06 * calls + 0.1 * (plan == "A") else "no"
        file.write(f"{age},{plan},{calls},{churned}\n")
CSV
scopeline init customers.csv
scopeline run config.yaml
row='{"age": 41, "plan": "A", "calls": 9}'
scopeline predict config.yaml --row "$row"
scopeline serve config.yaml &
curl -sS --retry 60 --retry-delay 1 --retry-connrefused \
  localhost:8501/v1/models/customers:predict -d "{\"instances\": [$row]}" | grep predictions
kill %1
wait %1
set +x

written=$(find "$packages" -newer installed -type f ! -path '*/__pycache__/*')
[ -z "$written" ] || fail "the commands have written beside the package: $written"
