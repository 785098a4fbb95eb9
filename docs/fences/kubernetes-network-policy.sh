#!/bin/sh
# Fence by a Kubernetes NetworkPolicy: the pods with these labels reach nothing but DNS.
#   kubernetes-network-policy.sh apply|verify|lift NAMESPACE LABEL=VALUE
# KUBE_CONTEXT chooses the cluster. Needs get, create, patch and delete on networkpolicies in the namespace, and a network plugin that enforces them
# (without one the policy is stored and does nothing). Plugins differ in whether they cut connections that are open: never the only fence.
# Exit: verify 0 it stands, 1 it does not; anything else: it could not be seen.
set -eu
name=homeregion-fence
verb=${1:-} namespace=${2:-} selector=${3:-}
case $selector in ?*=?*) ;; *) echo "usage: kubernetes-network-policy.sh apply|verify|lift NAMESPACE LABEL=VALUE" >&2; exit 64 ;; esac
# Both become part of a manifest.
case $namespace$selector in *[!A-Za-z0-9./_=-]*) echo "not a label or a namespace: $namespace $selector" >&2; exit 64 ;; esac
kube() { kubectl ${KUBE_CONTEXT:+--context "$KUBE_CONTEXT"} --request-timeout=10s -n "$namespace" "$@"; }

case $verb in
apply)
  kube apply --validate=false -f - <<MANIFEST
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: $name
  labels: { app.kubernetes.io/managed-by: homeregion }
spec:
  podSelector: { matchLabels: { "${selector%%=*}": "${selector#*=}" } }
  policyTypes: [Egress]
  egress:
    - ports: [ { protocol: UDP, port: 53 }, { protocol: TCP, port: 53 } ]
MANIFEST
  ;;
verify)
  # Empty where there is none; an error of any other kind is not "lifted".
  types=$(kube get networkpolicy $name --ignore-not-found -o 'jsonpath={.spec.policyTypes[*]} {.spec.egress[*].to}') || exit 2
  case $types in
  'Egress ') exit 0 ;;
  '') echo "no networkpolicy $name in $namespace" && exit 1 ;;
  *) echo "networkpolicy $name in $namespace is not ours any more: $types" && exit 1 ;;
  esac
  ;;
lift)
  kube delete networkpolicy $name --ignore-not-found
  ;;
*)
  echo "usage: kubernetes-network-policy.sh apply|verify|lift NAMESPACE LABEL=VALUE" >&2
  exit 64
  ;;
esac
