#!/usr/bin/env bash
# autobahn.sh ARGUMENTS...: runs wstest of the Autobahn test suite, which needs Python 2.7. The first
# run installs it with that Python's pip. Exit status 3: it cannot run here, and stderr says why.
set -euo pipefail

version=25.10.1
site=${XDG_CACHE_HOME:-$HOME/.cache}/antiphon/autobahn-$version

is_python2() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (2, 7))' 2>/dev/null; }

python=
for candidate in ${PYTHON2:-python2.7 python2 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7*/bin/python}; do
  if is_python2 "$candidate"; then
    python=$candidate
    break
  fi
done
if [[ -z $python ]]; then
  echo "no Python 2.7 (PYTHON2=/path/to/python2.7 names one)" >&2
  exit 3
fi

if [[ ! -e $site ]]; then
  mkdir -p "$(dirname "$site")"
  fresh=$(mktemp -d "$site.XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  if ! said=$("$python" -m pip install --quiet --disable-pip-version-check --no-warn-script-location \
    --target "$fresh" "autobahntestsuite==$version" 2>&1); then
    echo "pip could not install autobahntestsuite $version: $(tail -n 1 <<<"$said")" >&2
    exit 3
  fi
  touch "$fresh/zope/__init__.py" # pip omits it for a namespace package, and no .pth is read here
  # -T: if a concurrent run created the folder first, this fails instead of moving into it.
  mv -T "$fresh" "$site" 2>/dev/null || [[ -e $site ]]
  trap - EXIT
  rm -rf "$fresh"
fi

PYTHONPATH=$site exec "$python" -c 'from autobahntestsuite.wstest import run; run()' "$@"
