#!/bin/bash
# fetch_schemas.sh DIR: what schemas_test.py judges the manifests by, into DIR. Needs the network,
# by pip and by Go's module proxy; what is there already is kept. Exits with 77 where pip or the
# proxy cannot be reached: what they would have brought is not there then.
#   DIR/venv   Python with kubernetes-validate, which carries the schemas of Kubernetes itself
#   DIR/crds   the published definitions of the custom kinds, out of their projects' Go modules;
#              not there where Go is missing
set -euo pipefail
dir=$1

# Module, and the file in it.
definitions=(
  "sigs.k8s.io/gateway-api@v1.3.0
   config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml"
  "github.com/prometheus-operator/prometheus-operator@v0.82.0
   example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"
  "github.com/prometheus-operator/prometheus-operator@v0.82.0
   example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"
  "github.com/kedacore/keda/v2@v2.17.0
   config/crd/bases/keda.sh_scaledobjects.yaml"
  "github.com/cert-manager/cert-manager@v1.17.1
   deploy/crds/crd-certificates.yaml"
)

fetch_definition() {  # MODULE FILE
  local downloaded folder
  # -modcacherw: so that the build tree can be deleted.
  downloaded=$(cd "$dir" &&
               GOMODCACHE=$PWD/modules GOFLAGS=-modcacherw go mod download -json "$1") || exit 77
  folder=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])' <<<"$downloaded")
  cp "$folder/$2" "$dir/crds.part/"
}

if [ ! -e "$dir/venv.done" ]; then
  python3 -m venv "$dir/venv"
  "$dir/venv/bin/pip" install --quiet kubernetes-validate==1.37.0 || exit 77
  touch "$dir/venv.done"
fi

if [ ! -e "$dir/crds" ] && command -v go >/dev/null; then
  mkdir -p "$dir/crds.part"
  # shellcheck disable=SC2086  # two words
  for definition in "${definitions[@]}"; do fetch_definition $definition; done
  mv "$dir/crds.part" "$dir/crds"
fi
