#!/usr/bin/env bash
# mcp_conformance.sh ARGUMENTS...: runs the conformance suite of the Model Context Protocol, which
# needs npm and Node 22; with an older Node it takes that version from npm. The first run installs
# both. Exit status 3: it cannot run here, and stderr says why.
set -euo pipefail

version=0.1.16
site=${XDG_CACHE_HOME:-$HOME/.cache}/antiphon/mcp-conformance-$version

if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
  echo "no npm or no node" >&2
  exit 3
fi

if [[ ! -e $site ]]; then
  packages=("@modelcontextprotocol/conformance@$version")
  node -e 'process.exit(parseInt(process.versions.node) < 22)' || packages+=(node@22)
  mkdir -p "$(dirname "$site")"
  fresh=$(mktemp -d "$site.XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  if ! log=$(npm install --prefix "$fresh" --no-audit --no-fund --no-package-lock "${packages[@]}" 2>&1); then
    echo "npm could not install ${packages[*]}: $(tail -n 1 <<<"$log")" >&2
    exit 3
  fi
  # -T: if a concurrent run created the folder first, this fails instead of moving into it.
  mv -T "$fresh" "$site" 2>/dev/null || [[ -e $site ]]
  trap - EXIT
  rm -rf "$fresh"
fi

PATH=$site/node_modules/node/bin:$PATH exec node "$site/node_modules/@modelcontextprotocol/conformance/dist/index.js" "$@"
