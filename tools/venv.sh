#!/usr/bin/env bash
# venv.sh GROUP ...: installs the packages that uv.lock pins for these groups of pyproject.toml into
# .venv, or the folder VENV, and makes this tree importable. Does nothing when uv.lock is unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${1:?usage: venv.sh GROUP ...}"
venv=${VENV:-.venv}
stamp=$venv/.installed-$(IFS=-; echo "$*")

if cmp -s uv.lock "$stamp"; then exit 0; fi

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

has_pip() { "$1" -m pip --version >/dev/null 2>&1; } # not after an interrupted installation

if ! is_new_enough "$venv"/bin/python || ! has_pip "$venv"/bin/python; then
  python=
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if is_new_enough "$candidate"; then
      python=$candidate
      break
    fi
  done
  if [[ -z $python ]]; then
    found=$("${PYTHON:-python3}" --version 2>&1 || true)
    echo "error: Python 3.11 or newer is needed, found: ${found:-none}." \
      "Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
  fi
  rm -rf "$venv"
  if ! "$python" -m venv "$venv"; then
    rm -rf "$venv"
    echo "error: $python cannot make a virtual environment." \
      "On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
  fi
fi

source tools/registries.sh

echo "installing the packages of $* ..." >&2
rm -f "$venv"/.installed-requirements* # stamps of versions before uv.lock, which would skip the installation
"$venv"/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
  --requirement tools/uv.txt
# Not `uv sync`, which fetches files from their addresses in uv.lock even where there is a mirror.
# Bytecode is compiled now, because at the first start a dozen processes import these packages at
# once, and some environments forbid writing it later. `===` is needed, as `==2.13.0` also matches
# 2.13.0+cpu of another source, which then outranks the locked file.
"$venv"/bin/uv export --quiet --frozen --no-header --no-annotate "${@/#/--only-group=}" \
  | sed -E 's/^([A-Za-z0-9][^=; ]*)==/\1===/' >"$venv"/.requirements
install() {
  "$venv"/bin/uv pip install --quiet --python "$venv"/bin/python --compile-bytecode \
    --require-hashes --requirement "$venv"/.requirements
}
if ! install; then # an additional index has precedence, and may have other files of the same version
  if [[ -z ${UV_INDEX:-}${UV_FIND_LINKS:-} ]]; then exit 1; fi
  echo "trying again with the default index alone ..." >&2
  unset UV_INDEX UV_FIND_LINKS
  install
fi
rm "$venv"/.requirements
# A path file instead of an editable install: no build, and nothing to repeat when a file is added.
pwd >"$("$venv"/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/antiphon.pth"
bin=$(cd "$venv" && pwd)/bin
# A shell script, because a `#!` line may have at most 127 characters, and no spaces in the path.
quoted=\'${bin//\'/\'\\\'\'}/python\'
printf '#!/bin/sh\nexec %s -P -m deployments.cli.main "$@"\n' "$quoted" >"$bin/antiphon"
chmod +x "$bin/antiphon"
cp uv.lock "$stamp"
