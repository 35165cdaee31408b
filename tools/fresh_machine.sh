#!/usr/bin/env bash
# Runs the README's commands on simulated machines that have only Python, pip, make and curl:
#
#   tools/fresh_machine.sh                            `make run` and `make test`, on Debian 12 and 13
#   tools/fresh_machine.sh run trixie                 only `make run`, only on Debian 13
#   ARGS="tests/tools" tools/fresh_machine.sh test    only some tests, on Debian 12 and 13
#   tools/fresh_machine.sh uv pip pipx                install the wheel, and run tools/try_wheel.sh
#
# A machine is a folder that debootstrap fills. The script enters the folder by chroot, in separate
# namespaces. `run` and `test` use the files of the checkout that git does not ignore; `uv`, `pip`
# and `pipx` use only what `make wheel` builds. The script needs root and debootstrap. The variable
# ROOTS is the folder in which the base systems are kept; MIRROR is the address of Debian's packages.
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
    debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,make,curl,ca-certificates \
      "$1" "$base.new" "$mirror" >"$roots/$1.log" 2>&1 || fail "debootstrap failed, see $roots/$1.log"
    mv "$base.new" "$base"
  fi
  rm -rf "$2"
  cp -a "$base" "$2"
  for file in "${files[@]}"; do
    [ ! -f "$file" ] || install -D -m 600 "$file" "$2$file"
  done
  mkdir -p "$2/scopeline"
}

copy_checkout() { # FOLDER
  git -C "$checkout" ls-files --cached --others --exclude-standard -z |
    tar -C "$checkout" --null --ignore-failed-read -T - -c | tar -C "$1/scopeline" -x
}

copy_wheel() { # FOLDER
  make -C "$checkout" --no-print-directory wheel
  cp -r "$checkout/dist" "$checkout/README.md" "$checkout/tools/try_wheel.sh" "$1/scopeline"
}

try() { # FOLDER COMMAND [ARGUMENT]...
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
    env -i "${environment[@]}" "${@:2}"
}

[ "$(id -u)" = 0 ] || fail "debootstrap and chroot need root"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"

commands=() suites=()
for word in "$@"; do
  case $word in
    run | test | uv | pip | pipx) commands+=("$word") ;;
    bookworm | trixie) suites+=("$word") ;;
    *) fail "found '$word'; expected run, test, uv, pip or pipx, or the suite bookworm or trixie" ;;
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
  content=
  for command in "${commands[@]}"; do
    needed=checkout
    case $command in
      run) line=(make -C /scopeline run) ;;
      test) line=(make -C /scopeline test "ARGS=$tests") ;;
      *) needed="wheel for $command" line=(bash /scopeline/try_wheel.sh "$command") ;;
    esac
    if [ "$suite" = bookworm ] && [[ $command = pip* ]]; then
      echo "fresh machine: bookworm: $command refuses two wheels that declare glibc 2.39; skipped"
      continue
    fi
    if [ "$content" != "$needed" ]; then
      make_root "$suite" "$root"
      "copy_${needed%% *}" "$root"
      content=$needed
    fi
    echo "fresh machine: $suite: $command"
    began=$SECONDS
    try "$root" "${line[@]}" || failed+=("$command on $suite")
    echo "fresh machine: $suite: $command took $((SECONDS - began)) s"
  done
  rm -rf "$root"
done
[ ${#failed[@]} = 0 ] || { printf 'fresh machine: %s failed\n' "${failed[@]}" >&2; exit 1; }
