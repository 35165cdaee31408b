#!/usr/bin/env bash
# Runs the README's two commands on simulated machines that have only Python, pip and make:
#
#   tools/fresh_machine.sh                            both commands, on Debian 12 and 13
#   tools/fresh_machine.sh run trixie                 only `make run`, only on Debian 13
#   ARGS="tests/tools" tools/fresh_machine.sh test    only some tests, on Debian 12 and 13
#
# A machine is a folder that debootstrap fills. The script enters the folder by chroot, in separate
# namespaces, and tests the files of the checkout that git does not ignore. The script needs root and
# debootstrap. The variable ROOTS is the folder in which the base systems are kept; MIRROR is the
# address of Debian's packages.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/.." && pwd)
roots=${ROOTS:-/var/cache/scopeline-roots}
mirror=${MIRROR:-http://deb.debian.org/debian}
tests=${ARGS:-}

# The simulated machines use the settings of this machine for the package index and the network.
reaching=(PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT UV_DEFAULT_INDEX UV_INDEX UV_INDEX_URL
  SSL_CERT_FILE http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY)
files=(/etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt)

fail() {
  echo "fresh machine: $1" >&2
  exit 2
}

make_root() { # SUITE FOLDER
  local base="$roots/$1.base" file
  if [ ! -d "$base" ]; then
    echo "fresh machine: making a minimal $1 in $base"
    rm -rf "$base.new"
    debootstrap --variant=minbase --include=python3,python3-pip,make,ca-certificates \
      "$1" "$base.new" "$mirror" >"$roots/$1.log" 2>&1 || fail "debootstrap failed, see $roots/$1.log"
    mv "$base.new" "$base"
  fi
  rm -rf "$2"
  cp -a "$base" "$2"
  for file in "${files[@]}"; do
    [ ! -f "$file" ] || install -D -m 600 "$file" "$2$file"
  done
  mkdir -p "$2/scopeline"
  git -C "$checkout" ls-files --cached --others --exclude-standard -z |
    tar -C "$checkout" --null --ignore-failed-read -T - -c | tar -C "$2/scopeline" -x
}

try() { # FOLDER COMMAND [VARIABLE=VALUE]
  local environment=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  local name
  for name in "${reaching[@]}"; do
    [ -z "${!name:-}" ] || environment+=("$name=${!name}")
  done
  # shellcheck disable=SC2016 # $1 is the inner shell's.
  unshare --mount --pid --fork --kill-child --propagation private bash -ec '
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs tmpfs "$1/tmp"
    exec chroot "$1" "${@:2}"' bash "$1" \
    env -i "${environment[@]}" make -C /scopeline "${@:2}"
}

[ "$(id -u)" = 0 ] || fail "debootstrap and chroot need root"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"

commands=() suites=()
for word in "$@"; do
  case $word in
    run | test) commands+=("$word") ;;
    bookworm | trixie) suites+=("$word") ;;
    *) fail "found '$word'; expected the command run or test, or the suite bookworm or trixie" ;;
  esac
done
[ ${#commands[@]} -gt 0 ] || commands=(run test)
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie)

# Only root may read the folders, because the settings of an index may contain a token.
install -d -m 700 "$roots"
failed=()
for suite in "${suites[@]}"; do
  root="$roots/$suite.machine"
  trap 'rm -rf "$root"' EXIT
  make_root "$suite" "$root"
  for command in "${commands[@]}"; do
    echo "fresh machine: $suite: make $command"
    began=$SECONDS
    variables=()
    [ "$command" = run ] || variables=("ARGS=$tests")
    try "$root" "$command" "${variables[@]}" || failed+=("make $command on $suite")
    echo "fresh machine: $suite: make $command took $((SECONDS - began)) s"
  done
  rm -rf "$root"
done
[ ${#failed[@]} = 0 ] || { printf 'fresh machine: %s failed\n' "${failed[@]}" >&2; exit 1; }
