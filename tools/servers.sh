#!/usr/bin/env bash
# Installs the servers that the tests run against, and npm as a source of weights, if they are
# missing and the user is root on Debian or Ubuntu. Elsewhere it prints which tests are skipped.
set -euo pipefail

missing=()
compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || command -v postgres >/dev/null \
  || missing+=(postgresql)
command -v redis-server >/dev/null || command -v valkey-server >/dev/null || missing+=(redis-server)
for program in npm nginx caddy; do
  command -v "$program" >/dev/null || missing+=("$program")
done
((${#missing[@]})) || exit 0

if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "NOTE: ${missing[*]} missing and not installed (needs root and apt-get);" \
    "the tests that need them are skipped." >&2
  exit 0
fi

echo "installing ${missing[*]} ..." >&2
# The packages must not start servers of their own: the tests start theirs, on free ports.
if [[ ! -e /usr/sbin/policy-rc.d ]]; then
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod +x /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || true
for package in "${missing[@]}"; do # one by one: not every release has all of them
  apt-get install -y -qq --no-install-recommends "$package" >/dev/null \
    || echo "NOTE: apt-get failed; the tests that need $package are skipped." >&2
done
