#!/bin/sh
# Goal: the layers keep their direction: each folder includes only what lies below it, and the maths library stays behind engine/ops.
# Method: reads the #include lines of the sources. Exits 1 and names every line that breaks a rule.
cd "$(dirname "$0")/.." || exit 1
broken=0

# forbid FOLDERS PATTERN WHY: no file below FOLDERS includes a header that matches PATTERN.
forbid() {
  # shellcheck disable=SC2086 # a list of folders
  found=$(grep -rnE "^#include [<\"]($2)" --include='*.h' --include='*.cc' $1)
  if [ -n "$found" ]; then
    printf '%s:\n%s\n' "$3" "$found"
    broken=1
  fi
}

forbid engine '(grpc|grpc\+\+|grpcpp|google/protobuf|encoderd/v1|prometheus|absl/flags|server)/' \
  'engine/ knows nothing of gRPC, protobuf, Prometheus, flags or the server'
forbid 'engine/io engine/model engine/tensor server deploy tests' '(oneapi/dnnl|dnnl|hwy)[./]' \
  'oneDNN and Highway are known to engine/ops alone'
outside=$(grep -nE '^#include [<"](oneapi/dnnl|dnnl|hwy)[./]' engine/*.h engine/*.cc)
if [ -n "$outside" ]; then
  printf 'oneDNN and Highway are known to engine/ops alone:\n%s\n' "$outside"
  broken=1
fi
forbid engine/tensor 'engine/(io|ops|model|engine|encoder|request|weights)' \
  'engine/tensor is the lowest layer'
forbid engine/io 'engine/(ops|model|engine|encoder|request|weights)' 'engine/io knows bytes and names'
forbid engine/ops 'engine/(io|model|engine|encoder|request|weights)' \
  'engine/ops knows no model'
forbid engine/model 'engine/(engine|encoder|request|weights|ops/(attention|linear|layer_norm|onednn|runtime))' \
  'engine/model describes, and runs nothing'
forbid server/batching '(grpc|grpcpp|google/protobuf|encoderd/v1|prometheus|absl/flags)/|engine/(engine|encoder|request|model|io|ops)' \
  'server/batching sees neither gRPC nor the engine'

# A look at the rules themselves: they find what they are meant to find.
probe=$(mktemp -d) || exit 1
mkdir "$probe/engine"
echo '#include "oneapi/dnnl/dnnl.hpp"' >"$probe/engine/a.cc"
before=$broken
forbid "$probe/engine" '(oneapi/dnnl|dnnl|hwy)[./]' probe >/dev/null
[ "$broken" = 1 ] || { echo 'the probe was not found: these rules find nothing'; rm -r "$probe"; exit 1; }
broken=$before
rm -r "$probe"
exit "$broken"
