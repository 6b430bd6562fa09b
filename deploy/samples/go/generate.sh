#!/bin/sh
# Writes encoderpb/ from encoder.proto. The two plugins are the versions that go.mod names; protoc
# comes from the system (protobuf-compiler).
set -eu
cd -- "$(dirname -- "$0")"
mkdir -p encoderpb
plugins=$(mktemp -d)
trap 'rm -r -- "$plugins"' EXIT
GOBIN=$plugins go install tool
protoc --proto_path=../../../proto \
  --plugin="protoc-gen-go=$plugins/protoc-gen-go" \
  --plugin="protoc-gen-go-grpc=$plugins/protoc-gen-go-grpc" \
  --go_out=. --go_opt=module=encoderd.example/sample \
  --go_opt=Mencoderd/v1/encoder.proto=encoderd.example/sample/encoderpb \
  --go-grpc_out=. --go-grpc_opt=module=encoderd.example/sample \
  --go-grpc_opt=Mencoderd/v1/encoder.proto=encoderd.example/sample/encoderpb \
  encoderd/v1/encoder.proto
