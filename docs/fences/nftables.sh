#!/bin/sh
# Fence by nftables: no TCP packet reaches these ports of this host, except from the addresses named in ALLOW.
#   nftables.sh apply|verify|lift PORT...
# To run on the host of the region's database or broker, e.g. through `ssh root@db-a`. ALLOW holds addresses or networks, separated by commas:
# homeregion's own host (or it could neither prove nor lift its other fences) and the standbys. IPv4 and IPv6 may be mixed.
# Packets of connections that are open are refused too: there is no "established, accept" in front of the rule.
# Exit: verify 0 it stands, 1 it does not; anything else: it could not be seen.
set -eu
table=homeregion_fence
verb=${1:-}
[ $# -ge 2 ] || { echo "usage: nftables.sh apply|verify|lift PORT..." >&2; exit 64; }
shift
ports=$(printf '%s,' "$@" | sed 's/,$//')
case $ports in *[!0-9,]*) echo "ports are numbers" >&2; exit 64 ;; esac

# Numbers and letters of addresses only: what is in ALLOW becomes part of a rule.
case ${ALLOW:-} in *[!0-9a-fA-F.:/,]*) echo "ALLOW holds addresses, separated by commas" >&2; exit 64 ;; esac
allowed() { printf '%s' "${ALLOW:-}" | tr ',' '\n' | grep "$1" | paste -sd, - || true; }

standing() {
  # `list tables` fails when we may not look; a missing table must not be taken for that.
  tables=$(nft list tables) || exit 2
  printf '%s\n' "$tables" | grep -qx "table inet $table" || return 1
  rules=$(nft list table inet $table) || exit 2
  printf '%s\n' "$rules" | grep -q "type filter hook input" && printf '%s\n' "$rules" | grep -q "reject with tcp reset"
}

case $verb in
apply)
  v4=$(allowed '\.')
  v6=$(allowed ':')
  # One transaction of nft: the old rules go and the new ones come together, or nothing changes.
  {
    echo "add table inet $table"
    echo "delete table inet $table"
    echo "add table inet $table"
    echo "add chain inet $table input { type filter hook input priority -200; policy accept; }"
    [ -z "$v4" ] || echo "add rule inet $table input ip saddr { $v4 } accept"
    [ -z "$v6" ] || echo "add rule inet $table input ip6 saddr { $v6 } accept"
    echo "add rule inet $table input tcp dport { $ports } counter reject with tcp reset"
  } | nft -f -
  ;;
verify)
  if standing; then
    nft list table inet $table | grep -o 'counter packets [0-9]*' || true
    exit 0
  fi
  echo "no table inet $table"
  exit 1
  ;;
lift)
  if standing; then nft delete table inet $table; fi
  ;;
*)
  echo "usage: nftables.sh apply|verify|lift PORT..." >&2
  exit 64
  ;;
esac
