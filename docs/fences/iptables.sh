#!/bin/sh
# Fence by iptables, for hosts without nftables: no TCP packet reaches these ports, except from the addresses named in ALLOW.
#   iptables.sh apply|verify|lift PORT...
# As nftables.sh, for IPv4 only: set IPTABLES=ip6tables for IPv6. At most 15 ports (a limit of multiport).
# Exit: verify 0 it stands, 1 it does not; anything else: it could not be seen.
set -eu
ipt="${IPTABLES:-iptables} -w 5"
chain=HOMEREGION-FENCE
verb=${1:-}
[ $# -ge 2 ] || { echo "usage: iptables.sh apply|verify|lift PORT..." >&2; exit 64; }
shift
ports=$(printf '%s,' "$@" | sed 's/,$//')
case $ports in *[!0-9,]*) echo "ports are numbers" >&2; exit 64 ;; esac
case ${ALLOW:-} in *[!0-9a-fA-F.:/,]*) echo "ALLOW holds addresses, separated by commas" >&2; exit 64 ;; esac

# Fails when we may not look; a missing rule must not be taken for that.
seen() { $ipt -S INPUT >/dev/null || exit 2; }
jump() { $ipt -C INPUT -p tcp -m multiport --dports "$ports" -j $chain 2>/dev/null; }
refuses() { $ipt -C $chain -p tcp -j REJECT --reject-with tcp-reset 2>/dev/null; }

case $verb in
apply)
  seen
  # The chain is filled before anything jumps to it, and the jump comes first of all rules.
  $ipt -N $chain 2>/dev/null || true
  if ! jump || ! refuses; then
    while jump; do $ipt -D INPUT -p tcp -m multiport --dports "$ports" -j $chain; done
    $ipt -F $chain
    for from in $(printf '%s' "${ALLOW:-}" | tr ',' ' '); do $ipt -A $chain -s "$from" -j RETURN; done
    $ipt -A $chain -p tcp -j REJECT --reject-with tcp-reset
    $ipt -I INPUT 1 -p tcp -m multiport --dports "$ports" -j $chain
  fi
  ;;
verify)
  seen
  if jump && refuses; then exit 0; fi
  echo "no rule in INPUT that jumps to $chain, or it does not refuse"
  exit 1
  ;;
lift)
  seen
  while jump; do $ipt -D INPUT -p tcp -m multiport --dports "$ports" -j $chain; done
  if $ipt -S $chain >/dev/null 2>&1; then
    $ipt -F $chain
    $ipt -X $chain
  fi
  ;;
*)
  echo "usage: iptables.sh apply|verify|lift PORT..." >&2
  exit 64
  ;;
esac
