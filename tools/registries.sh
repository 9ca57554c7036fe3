# Sourced, with `venv` set: passes the registries of pip on to uv, which does not read its configuration.
# Files of uv.lock are checked against their hashes, so it does not matter which registry they come from.
pip_setting() { # `head` would end the pipe early, and `pipefail` counts that as a failure
  "$venv"/bin/python -m pip config list 2>/dev/null | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | sed -n 1p
}
pass_on() { # pass_on VARIABLE pip-setting separator
  local value
  value=$(pip_setting "$2")
  value=${value//\\n/ }
  if [[ -n $value && -z ${!1:-} ]]; then
    read -ra parts <<<"$value"
    export "$1=$(IFS=$3; echo "${parts[*]}")"
  fi
}
pass_on UV_DEFAULT_INDEX index-url ' '
pass_on UV_INDEX extra-index-url ' '
pass_on UV_FIND_LINKS find-links ,
pass_on SSL_CERT_FILE cert ' '
export UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match} # as pip chooses
