#!/usr/bin/env bash
# The commands of Vault's command line that the docs show, over its API: the test's Vault has no command line.
set -eo pipefail

text() {
  local text
  text=$(cat; printf x)
  text=${text%x}
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "${text//$'\n'/\\n}"
}

request() {
  curl --silent --show-error --fail-with-body --request "$1" --header "X-Vault-Token: $VAULT_TOKEN" ${3:+--data "$3"} "$VAULT_ADDR/v1/$2"
}

# An object of pairs, each with a value or with a file behind an @.
object() {
  local body= pair value
  for pair; do
    value=${pair#*=}
    if [ "${value:0:1}" = @ ]; then
      value=$(text <"${value:1}")
    else
      value=$(printf %s "$value" | text)
    fi
    body+="${body:+,}\"${pair%%=*}\":$value"
  done
  printf '{%s}' "$body"
}

# The fields of a flat object, a line each.
fields() {
  tr ',' '\n' | sed -E 's/^[{]?"([^"]*)":"?([^"}]*)"?[}]?$/\1    \2/'
}

case "$1 $2" in
"policy write")
  body="{\"policy\":$(if [ "$4" = - ]; then cat; else cat "$4"; fi | text)}"
  request POST "sys/policies/acl/$3" "$body"
  ;;
"auth enable")
  request POST "sys/auth/$3" "{\"type\":\"$3\"}"
  ;;
"kv get")
  answer=$(request GET "${3%%/*}/data/${3#*/}")
  echo "======= Metadata ======="
  sed -E 's/.*"version":([0-9]+).*/version    \1/' <<<"$answer"
  echo "====== Data ======"
  sed -E 's/.*"data":\{"data":(\{[^}]*\}).*/\1/' <<<"$answer" | fields
  ;;
"kv put")
  request POST "${3%%/*}/data/${3#*/}" "{\"data\":$(object "${@:4}")}"
  ;;
"kv metadata")
  answer=$(request GET "${4%%/*}/metadata/${4#*/}")
  # The versions follow each other in order.
  grep -oE '"deletion_time":"[^"]*"' <<<"$answer" | fields
  ;;
"write "*)
  request POST "$2" "$(object "${@:3}")"
  ;;
*)
  echo "vault $*: not among the commands that the docs show" >&2
  exit 2
  ;;
esac
