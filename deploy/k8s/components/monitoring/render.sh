#!/bin/sh
# render.sh: prints prometheusrule.yaml, the rules of ../../../prometheus/rules.yaml as the
# Prometheus operator takes them. A test holds the file to what this prints.
set -eu
cat <<'END'
# Made by render.sh from deploy/prometheus/rules.yaml; not to be edited.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: encoderd
  labels: {app.kubernetes.io/name: encoderd}
spec:
END
sed -e '/^$/! s/^/  /' "$(dirname -- "$0")/../../../prometheus/rules.yaml"
